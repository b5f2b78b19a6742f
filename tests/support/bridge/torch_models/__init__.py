"""Makers of small models with random weights, shared by the tests and by the page on PyTorch."""
