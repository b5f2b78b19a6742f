"""Linear algebra on single elements: axpby, cumsum, ger, hadamard and sum."""

from lamella.kernels.passes.lower_linalg.elements.each import lower_elements

__all__ = ["lower_elements"]
