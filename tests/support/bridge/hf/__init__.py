"""Tiny folders written by transformers, and the mappings under which we read them."""
