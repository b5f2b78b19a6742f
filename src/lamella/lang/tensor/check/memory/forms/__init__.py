"""Affine forms over the symbols of a function, proofs about them, and the arithmetic that makes them."""
