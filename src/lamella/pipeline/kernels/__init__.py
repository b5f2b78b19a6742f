"""The form of kernels: a graph with the program that computes its operations."""
