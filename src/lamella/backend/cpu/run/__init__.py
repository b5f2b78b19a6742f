"""Run machine code on NumPy arrays: threads, local memory, arguments, kernels by name."""
