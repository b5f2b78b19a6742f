"""How tensors are held: the stored type of each element type, rounding on store, constants as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from lamella.backend.formula.scalars import DOUBLE, SINGLE, Real, computing_type
from lamella.base import arrays
from lamella.base.arrays import Array, DType
from lamella.base.dim import Dim, Logic, Test, Values, substitute, substitute_truth
from lamella.base.dtype import ElementType, Kind
from lamella.base.limits import LARGEST
from lamella.base.records import dataclass
from lamella.lang.skriptnd.rules.graphs import INTEGER_TOO_WIDE, NO_MEANING, TOO_MUCH_MEMORY
from lamella.ops.fault import Fault
from lamella.ops.instance import Shape, Single

TensorValue: TypeAlias = Array | tuple[Array, ...] | None
"""The value of an argument of an operation: an array, those of a pack, or none."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Stored types; with `wide` every real tensor is held and computed in 64 bits."""

    wide: bool
    most_bytes: int

    def dtype(self, element: ElementType) -> DType:
        """The type in which elements are held."""
        if element.kind is Kind.COMPLEX:
            raise Fault(NO_MEANING, reason=f"elements of type {element} are not executed")
        return DOUBLE if self.wide and element.is_float else arrays.numpy_dtype(element)

    def real(self, dtypes: Sequence[DType]) -> Real:
        """The type in which the reals of one call are computed: double where a tensor is, single otherwise."""
        return DOUBLE if self.wide or DOUBLE in dtypes else SINGLE

    def store(self, values: Array, element: ElementType) -> Array:
        """Computed values as they are held: reals rounded to nearest, integers cut to their bits."""
        dtype = self.dtype(element)
        if values.dtype == dtype:
            return values
        if element.is_float:
            return values.astype(dtype) if self.wide else arrays.cast(values, element)
        return values.astype(dtype) if element.kind is Kind.BOOL else arrays.wrap(values, element)

    def allocate(self, shape: Sequence[int], dtype: DType) -> Array:
        """An array of zeros, within the limit of memory."""
        if any(size < 0 for size in shape):
            raise Fault(NO_MEANING, reason=f"a tensor would have shape {list(shape)}")
        needed = largest = dtype.itemsize
        for size in shape:
            needed, largest = needed * size, largest * max(size, 1)
        # An empty tensor needs nothing, but NumPy still counts its other extents.
        if needed > self.most_bytes or largest > LARGEST:
            raise Fault(TOO_MUCH_MEMORY, needed=largest, limit=self.most_bytes)
        return np.zeros(shape, dtype)

    def constant(self, element: ElementType, shape: Sequence[int], value: Single | Sequence[Single]) -> Array:
        """A tensor with one value everywhere, or all values in row-major order."""
        found = self.allocate(shape, self.dtype(element))
        several = isinstance(value, Sequence) and not isinstance(value, str)
        items = _numbers(value if several and isinstance(value, Sequence) else [value])
        with np.errstate(over="ignore"):  # what is too large for the type is infinite
            computed = items.astype(computing_type(found.dtype, self.real([found.dtype])))
        found[...] = self.store(computed, element).reshape(shape if several else ())
        return found


def _numbers(values: Sequence[object]) -> Array:
    """Values of a constant as an array."""
    found = np.asarray(values)
    if found.dtype.kind in "biuf":
        return found
    widest = max((item.bit_length() for item in values if isinstance(item, int)), default=0)
    if widest:
        raise Fault(INTEGER_TOO_WIDE, bits=widest)
    raise Fault(NO_MEANING, reason="a constant holds strings")


def known_single(value: Single, values: Values) -> Single:
    """A value in this run."""
    if isinstance(value, Dim):
        return substitute(value, values)
    return substitute_truth(value, values) if isinstance(value, Test | Logic) else value


def known_shape(shape: Shape, values: Values) -> tuple[int, ...]:
    """A shape with every extent known."""
    return tuple(known_extent(extent, values) for extent in shape)


def known_extent(extent: int | Dim, values: Values) -> int:
    """An extent in this run."""
    found = substitute(extent, values)
    if isinstance(found, Dim):
        raise Fault(NO_MEANING, reason=f"nothing in this run says what {found} is")
    return found
