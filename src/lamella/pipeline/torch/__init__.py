"""Models of PyTorch: modules of a running program and .pt2 files."""
