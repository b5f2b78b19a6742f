"""Elements at computed indices: one NumPy index, after a look at the indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamella.backend.nacvm.formula.reads import find_part
from lamella.backend.nacvm.formula.values import Space, UnsupportedError, Value
from lamella.backend.nacvm.tape import Function, Register
from lamella.backend.reference.formula.cells import Access, Cells
from lamella.base.arrays import Array, DType
from lamella.lang.skriptnd.rules.graphs import INDEX_OUTSIDE
from lamella.ops.problem import Fault


def gather(
    space: Space,
    cells: Cells,
    access: Access,
    tensor: tuple[Register, Sequence[int], DType],
    found: dict[int, Value],
) -> Value:
    """The elements that an access reads whose indices are values, or run along whole dimensions."""
    register, shape, dtype = tensor
    computed = [number for number, place in enumerate(access.places) if cells[place.at].form is None]
    first, last = computed[0], computed[-1]
    guarded = any(access.places[number].guarded for number in computed)
    if guarded or access.picked is not None or computed != list(range(first, last + 1)):
        raise UnsupportedError("an index is computed")
    values = [found[access.places[number].at] for number in computed]
    among = tuple(sorted({axis for value in values for axis in value.axes}))
    around = [
        _whole(space, cells, access, number, shape[number])
        for number in range(len(shape))
        if number not in computed
    ]
    order = (*around[:first], *among, *around[first:])
    if len(set(order)) != len(order):
        raise UnsupportedError("a loop runs along two dimensions")
    space.reserve(order, dtype)
    indices = [space.align(value, among) for value in values]
    look = _look(access.tensor, first, tuple(shape[number] for number in computed))
    taken = space.tape.do(look, register, *indices)
    axes = tuple(sorted(order))
    if axes != order:
        taken = space.transpose(taken, [order.index(axis) for axis in axes])
    return Value(taken, axes, dtype)


def _whole(space: Space, cells: Cells, access: Access, number: int, size: int) -> int:
    """The loop that runs along a whole dimension."""
    part = find_part(space, cells[access.places[number].at].form, size)
    if part.cut is not None or len(part.axes) != 1:
        raise UnsupportedError("a part is picked from")
    return part.axes[0]


def _look(name: str, first: int, sizes: tuple[int, ...]) -> Function:
    """Takes elements at indices along some dimensions, after the first ones."""
    before = (slice(None),) * first

    def look(array: Array, *indices: Array) -> Array:
        for number, (index, size) in enumerate(zip(indices, sizes, strict=True)):
            outside = (index < 0) | (index >= size)
            if outside.any():
                wrong = int(np.asarray(index)[outside].flat[0])
                raise Fault(INDEX_OUTSIDE, tensor=name, dimension=first + number, index=wrong, extent=size)
        where: tuple[slice | Array, ...] = (*before, *indices)
        return np.asarray(array[where])

    return look
