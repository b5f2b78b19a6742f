"""Annotations of tensors and parameters: conversions, storage, and what is kept beside the graph."""
