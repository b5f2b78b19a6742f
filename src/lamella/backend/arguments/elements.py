"""The NumPy types of the tensor language's element types."""

from __future__ import annotations

from types import MappingProxyType

from lamella.base.arrays import DType, numpy_dtype
from lamella.base.dtype import LANGUAGES

DTYPES = MappingProxyType({name: numpy_dtype(element) for name, element in LANGUAGES["tensor"].items()})
"""For each element type, the NumPy type that holds it; `index` and `i64` share one."""


def dtype_of(element: str) -> DType:
    """The NumPy type of an element type."""
    found: DType = DTYPES[element]
    return found
