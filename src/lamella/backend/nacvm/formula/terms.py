"""The right side of a formula as NumPy calls: each term once, known parts computed before the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lamella.backend.nacvm.formula.reads import find_part, read
from lamella.backend.nacvm.formula.values import Space, UnsupportedError, Value, astype
from lamella.backend.nacvm.tape import Function, Register
from lamella.backend.reference.formula.access import computing_type
from lamella.backend.reference.formula.affine import Form, span
from lamella.backend.reference.formula.cells import Access, Cell, Cells, Formula
from lamella.backend.reference.formula.contract import OPERAND
from lamella.backend.reference.formula.scalars import BOOLEAN, INTEGER, Real, convert, find_function
from lamella.base.arrays import Array, DType
from lamella.lang.skriptnd.rules.graphs import INDEX_OUTSIDE
from lamella.ops.formula import Apply
from lamella.ops.problem import Fault

# --- reading overlapping windows, also beyond the edges of a tensor, as one strided view; zeros -------------


@dataclass(frozen=True, slots=True)
class Window:
    """How a tensor is read: the part of it that is spanned, with its edges, and the loops over it."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    """The lengths of the loops."""
    factors: tuple[tuple[int, ...], ...]
    """For each loop, how far one step of it goes in each dimension."""
    starts: tuple[int, ...]
    """Where the loops begin in the part."""
    room: tuple[int, ...] | None
    """The part with zeros beyond the edges; None where nothing is beyond them."""
    source: tuple[slice, ...]
    target: tuple[slice, ...]

    def look(self, array: Array) -> Array:
        """The windows of an array."""
        if self.room is not None:
            part = np.zeros(self.room, array.dtype)
            part[self.target] = array[self.source]
            array = part
        strides = tuple(
            sum(factor * stride for factor, stride in zip(row, array.strides, strict=True))
            for row in self.factors
        )
        corner = array[tuple(slice(start, None) for start in self.starts)]
        return as_strided(corner, self.shape, strides, writeable=False)


def find_window(space: Space, cells: Cells, access: Access, shape: Sequence[int], dtype: DType) -> Window:
    """The windows that an access reads, where its indices are affine and what is beyond the edges is skipped."""
    forms = [cells[place.at].form for place in access.places]
    known = [form for form in forms if form is not None]
    replaced = any(place.below is not None or place.above is not None for place in access.places)
    if len(known) != len(forms) or access.picked is not None or replaced:
        raise UnsupportedError("an index is computed")
    box = tuple((0, extent) for extent in space.extents)
    spans = [span(form, box) for form in known]
    beyond = [low < 0 or high >= size for (low, high), size in zip(spans, shape, strict=True)]
    if any(is_beyond and not place.guarded for is_beyond, place in zip(beyond, access.places, strict=True)):
        raise UnsupportedError("an index leaves its tensor")
    axes = tuple(sorted({axis for form in known for axis in form.symbols}))
    if not any(beyond):
        return _window(space, axes, known, [form.constant for form in known], None)
    starts = [form.constant - low for form, (low, _) in zip(known, spans, strict=True)]
    room = tuple(high - low + 1 for low, high in spans)
    space.reserve_bytes(room, dtype)
    return _window(space, axes, known, starts, room, _edges(spans, shape))


def _window(
    space: Space,
    axes: tuple[int, ...],
    forms: Sequence[Form],
    starts: Sequence[int],
    room: tuple[int, ...] | None,
    edges: tuple[tuple[slice, ...], tuple[slice, ...]] = ((), ()),
) -> Window:
    factors = tuple(tuple(dict(form.terms).get(axis, 0) for form in forms) for axis in axes)
    return Window(axes, space.shape(axes), factors, tuple(starts), room, *edges)


def _edges(
    spans: Sequence[tuple[int, int]], shape: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of the tensor that is spanned, and where it stands among the zeros."""
    source, target = [], []
    for (low, high), size in zip(spans, shape, strict=True):
        start = max(low, 0)
        stop = max(min(high + 1, size), start)
        source.append(slice(start, stop))
        target.append(slice(start - low, stop - low))
    return tuple(source), tuple(target)


# --- elements at computed indices: one NumPy index, after a look at the indices -----------------------------


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


LONGEST = 1 << 20
"""Indices that are counted before the run; more are counted by the run."""
LAZY = ("?:", "&&", "||", "=>")
"""Functions that do not look at every operand."""
DIVIDING = ("/", "\\", "%", "**")
"""Functions of integers that have no value for some operands."""


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor that a formula may read: where it stands, its shape and its stored type."""

    register: Register
    shape: tuple[int, ...]
    dtype: DType


Tensors = Mapping[str, Held | tuple[Held, ...]]


@dataclass(slots=True)
class Terms:
    """The values of a formula's cells."""

    space: Space
    formula: Formula
    tensors: Tensors
    real: Real
    found: dict[int, Value] = field(default_factory=dict)
    padded: bool = False
    """Whether zeros were read beyond the edges of a tensor: right only where what they meet is finite."""

    def value(self, root: int) -> Value:
        """The value of a cell; the cells it needs come first."""
        for number in self.formula.cells.needed([root]):
            if number not in self.found:
                self.found[number] = self._make(self.formula.cells[number])
        return self.found[root]

    def tensor(self, access: Access) -> Held:
        """The tensor of an access whose item is known."""
        found = self.tensors.get(access.tensor)
        if isinstance(found, tuple) and 0 <= (access.item or 0) < len(found):
            return found[access.item or 0]
        if not isinstance(found, Held):
            raise UnsupportedError("what it writes is read")
        return found

    def _make(self, cell: Cell) -> Value:
        if cell.form is not None:
            return self._count(cell.form)
        if cell.access is not None:
            return self._read(cell.access)
        if isinstance(cell.term, Apply):
            return self._apply(cell, cell.term)
        if isinstance(cell.term, bool):
            return self.space.literal(np.asarray(cell.term))
        if isinstance(cell.term, float):
            return self.space.literal(np.asarray(cell.term, self.real))
        raise UnsupportedError("a term is looked up or counted")

    def _count(self, form: Form) -> Value:
        """The values of an index."""
        axes = tuple(sorted(form.symbols))
        if any(extent > LONGEST for extent in self.space.shape(axes)):
            raise UnsupportedError("it counts far")
        found = self.space.literal(np.asarray(form.constant, INTEGER))
        for axis, factor in form.terms:
            along = np.arange(self.space.extents[axis], dtype=INTEGER) * factor
            found = self.space.apply(np.add, [found, self.space.literal(along, (axis,))], INTEGER)
        return Value(found.register, axes, INTEGER)

    def _read(self, access: Access) -> Value:
        held = self.tensor(access)
        if 0 in held.shape:
            raise UnsupportedError("a tensor is empty")
        cells = self.formula.cells
        if all(cells[place.at].form is not None for place in access.places):
            value = read(self.space, cells, access, held.register, held.shape, held.dtype)
        elif self._is_lazy():
            raise UnsupportedError("an index may be computed for nothing")
        else:
            tensor = held.register, held.shape, held.dtype
            value = gather(self.space, cells, access, tensor, self.found)
        wide = computing_type(held.dtype, self.real)
        return value if wide == held.dtype else self.space.apply(astype(wide), [value], wide)

    def _is_lazy(self) -> bool:
        """Whether some values are not used in every step."""
        terms = (cell.term for cell in self.formula.cells.cells)
        return any(isinstance(term, Apply) and term.function in LAZY for term in terms)

    def windows(self, number: int) -> Value:
        """The value of a cell that may read beyond the edges of a tensor, where it finds zeros."""
        access = self.formula.cells[number].access
        try:
            return self.value(number)
        except UnsupportedError:
            if access is None or 0 in self.tensor(access).shape:
                raise
        held = self.tensor(access)
        found = find_window(self.space, self.formula.cells, access, held.shape, held.dtype)
        if self.space.reserve(found.axes, held.dtype) > OPERAND:
            raise UnsupportedError("windows are taken in parts")
        register = self.space.view(held.register, found.look)
        value, wide = Value(register, found.axes, held.dtype), computing_type(held.dtype, self.real)
        self.padded = self.padded or found.room is not None
        return value if wide == held.dtype else self.space.apply(astype(wide), [value], wide)

    def _apply(self, cell: Cell, term: Apply) -> Value:
        operands = [self.found[number] for number in cell.operands]
        dtype = _type_of(term.type, self.real)
        if term.function == "cast":
            return self._cast(operands[0], term.type, dtype)
        integers = operands[0].dtype == INTEGER
        if integers and term.function in DIVIDING and not self._divides(operands[1]):
            raise UnsupportedError("a divisor may be zero")
        return self.space.apply(find_function(term.function, integers), operands, dtype)

    def _cast(self, value: Value, kind: str, dtype: DType) -> Value:
        real = self.real

        def cast(values: Array) -> Array:
            return convert(np.asarray(values), kind, real)

        return value if value.dtype == dtype else self.space.apply(cast, [value], dtype)

    def _divides(self, value: Value) -> bool:
        """Whether a divisor or an exponent is known, and positive."""
        known = self.space.tape.literals.get(value.register)
        return known is not None and bool((known > 0).all())


def _type_of(kind: str, real: Real) -> DType:
    types: dict[str, DType] = {"int": INTEGER, "real": real, "bool": BOOLEAN}
    if kind not in types:
        raise UnsupportedError("it computes with strings")
    return types[kind]
