"""Tensor-language files, from the text to the run of a kernel."""
