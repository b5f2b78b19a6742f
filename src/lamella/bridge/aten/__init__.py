"""Lowering of ATen calls to operations of a graph and back, which the bridges from PyTorch and NAC share."""
