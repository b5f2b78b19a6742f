"""Calls of ATen operations as operations of a graph and back: what the roads of PyTorch and of NAC share."""
