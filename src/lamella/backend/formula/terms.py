"""The right side of a formula as NumPy calls: each term once, known parts computed before the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from math import prod
from operator import itemgetter, methodcaller

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lamella.backend.formula.affine import Form, span
from lamella.backend.formula.contract import OPERAND
from lamella.backend.formula.evaluate import cut_edges
from lamella.backend.formula.expression_dag import ExpressionDag, PreparedFormula, TensorAccess, TermCell
from lamella.backend.formula.scalars import BOOLEAN, INTEGER, Real, computing_type, convert, find_function
from lamella.backend.formula.tape import Function, Register, Tape
from lamella.base.arrays import Array, DType
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.lang.skriptnd.rules.graphs import INDEX_OUTSIDE
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply

# --- values of a formula over its loops: arrays with one dimension for each loop they vary along ------------


Axes = tuple[int, ...]
FOLDED = 1 << 16
"""Elements of a value that is computed before the run; larger ones are computed by the run."""


@dataclass(frozen=True, slots=True)
class LoopValue:
    """An array that varies along some loops: one dimension for each, in the order of the loops."""

    register: Register
    axes: Axes
    dtype: DType


@dataclass(frozen=True, slots=True)
class LoopSpace:
    """The loops of a formula and the tape that its values are put on."""

    tape: Tape
    extents: tuple[int, ...]
    most_bytes: int

    def shape(self, axes: Sequence[int]) -> tuple[int, ...]:
        """The lengths of some loops."""
        return tuple(self.extents[axis] for axis in axes)

    def literal(self, array: Array, axes: Axes = ()) -> LoopValue:
        """A value known before the run."""
        return LoopValue(self.tape.literal(array), axes, array.dtype)

    def apply(self, function: Function, operands: Sequence[LoopValue], dtype: DType) -> LoopValue:
        """A function of values that broadcast together; computed now where all of them are known and it is small."""
        axes = tuple(sorted({axis for item in operands for axis in item.axes}))
        size = self.reserve(axes, dtype)
        aligned = [self.align(item, axes) for item in operands]
        known = [self.tape.literals.get(item) for item in aligned]
        found = [item for item in known if item is not None]
        if len(found) == len(known) and size <= FOLDED:
            with np.errstate(all="ignore"):
                return self.literal(np.asarray(function(*found)), axes)
        return LoopValue(self.tape.do(function, *aligned), axes, dtype)

    def reserve(self, axes: Sequence[int], dtype: DType) -> int:
        """The elements of a value along some loops; a value that memory has no room for is refused."""
        return self.reserve_bytes(self.shape(axes), dtype)

    def reserve_bytes(self, shape: Sequence[int], dtype: DType) -> int:
        """The elements of an array of a shape, for which there must be room."""
        size = prod(shape)
        if size * dtype.itemsize > self.most_bytes:
            raise Unsupported("a value is too large")
        self.tape.note(size * dtype.itemsize)
        return size

    def apply_whole(self, function: Function, value: LoopValue, axes: Axes, dtype: DType) -> LoopValue:
        """A function of a whole array that gives one along other loops."""
        return LoopValue(self.view(value.register, function), axes, dtype)

    def align(self, value: LoopValue, axes: Axes) -> Register:
        """A value in the dimensions of some loops; those in front of its own need none."""
        if value.axes == axes[len(axes) - len(value.axes) :]:
            return value.register
        first = axes.index(value.axes[0]) if value.axes else len(axes)
        shape = tuple(self.extents[axis] if axis in value.axes else 1 for axis in axes[first:])
        return self.view(value.register, reshape(shape))

    def view(self, register: Register, function: Function) -> Register:
        """Another look at the same elements; that of a known array is known."""
        known = self.tape.literals.get(register)
        if known is not None:
            return self.tape.literal(np.asarray(function(known)))
        found = self.tape.do(function, register)
        self.tape.views[found] = register
        return found

    def transpose(self, register: Register, order: Sequence[int]) -> Register:
        """Dimensions in another order; two such orders after each other are one, or none."""
        base, first = self.tape.transposed.get(register, (register, tuple(range(len(order)))))
        joined = tuple(first[place] for place in order)
        if joined == tuple(range(len(joined))):
            return base
        found = self.view(base, _transpose(joined))
        self.tape.transposed[found] = base, joined
        return found


def reshape(shape: Sequence[int]) -> Function:
    """Gives an array another shape."""
    return methodcaller("reshape", tuple(shape))


def _transpose(order: Sequence[int]) -> Function:
    """Gives the dimensions of an array another order; reversing all of them is NumPy's own."""
    reversed_order = list(order) == list(range(len(order)))[::-1]
    return np.ndarray.transpose if reversed_order else methodcaller("transpose", tuple(order))


def index(places: Sequence[int | slice]) -> Function:
    """Takes a part of an array."""
    return itemgetter(tuple(places))


def astype(dtype: DType) -> Function:
    """Gives the elements of an array another type."""
    return methodcaller("astype", dtype)


def spread(shape: Sequence[int]) -> Function:
    """Repeats an array along new dimensions."""
    return partial(_spread, tuple(shape))


def _spread(shape: tuple[int, ...], array: Array) -> Array:
    return np.broadcast_to(array, shape)


# --- affine access as views: dimensions are split, cut, left out and transposed -------------------------------


@dataclass(frozen=True, slots=True)
class DimensionUse:
    """How one dimension is used: the loops it is split into, or a slice of it, or one place."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    cut: slice | int | None
    """None takes the whole dimension."""


def read(
    space: LoopSpace,
    cells: ExpressionDag,
    access: TensorAccess,
    register: Register,
    shape: Sequence[int],
    dtype: DType,
) -> LoopValue:
    """The elements that an access reads, along the loops that its indices use."""
    parts = find_parts(space, cells, access, shape)
    axes = [axis for part in parts for axis in part.axes]
    if len(set(axes)) != len(axes):
        raise Unsupported("a loop runs along two dimensions")
    found = _reads_look(space, register, parts, shape)
    order = tuple(sorted(axes))
    if order != tuple(axes):
        found = space.transpose(found, [axes.index(axis) for axis in order])
    return LoopValue(found, order, dtype)


def _reads_look(
    space: LoopSpace, register: Register, parts: Sequence[DimensionUse], shape: Sequence[int]
) -> Register:
    """The dimensions split and cut, in their own order."""
    split = tuple(size for part in parts for size in part.sizes)
    if all(part.cut is None or (part.cut == 0 and part.sizes == (1,)) for part in parts):
        kept = tuple(size for part in parts if part.axes for size in part.sizes)
        return register if kept == tuple(shape) else space.view(register, reshape(kept))
    if split != tuple(shape):
        register = space.view(register, reshape(split))
    places: list[int | slice] = []
    for part in parts:
        places += [slice(None)] * len(part.sizes) if part.cut is None else [part.cut]
    return space.view(register, index(places))


def find_parts(
    space: LoopSpace, cells: ExpressionDag, access: TensorAccess, shape: Sequence[int]
) -> list[DimensionUse]:
    """How each dimension of a tensor is used by an access that stays inside."""
    if access.picked is not None:
        raise Unsupported("an item of a pack is computed")
    return [
        find_part(space, cells[place.at].form, size) for place, size in zip(access.places, shape, strict=True)
    ]


def find_part(space: LoopSpace, form: Form | None, size: int) -> DimensionUse:
    """How an index uses a dimension of a size."""
    if form is None:
        raise Unsupported("an index is computed")
    low, high = span(form, tuple((0, extent) for extent in space.extents))
    if low < 0 or high >= size:
        raise Unsupported("an index leaves its tensor")
    if not form.terms:
        return DimensionUse((), (size,), form.constant)
    if len(form.terms) > 1:
        return _split(space, form, size)
    ((axis, factor),) = form.terms
    count = space.extents[axis]
    whole = form.constant == 0 and factor == 1 and count == size
    end = form.constant + factor * count
    cut = slice(form.constant, end if end >= 0 else None, factor)
    return DimensionUse((axis,), (size,), None if whole else cut)


def _split(space: LoopSpace, form: Form, size: int) -> DimensionUse:
    """A dimension that loops run through like the digits of a number."""
    factors = sorted(form.terms, key=lambda item: -item[1])
    axes = tuple(axis for axis, _ in factors)
    sizes = space.shape(axes)
    step = size
    for (_, factor), count in zip(factors, sizes, strict=True):
        if factor * count != step:
            raise Unsupported("loops share a dimension")
        step = factor
    if step != 1 or form.constant:
        raise Unsupported("loops share a dimension")
    return DimensionUse(axes, sizes, None)


# --- windows: overlapping affine access as one strided view, zeros beyond the edges ---------------------------


@dataclass(frozen=True, slots=True)
class StridedWindow:
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


def find_window(
    space: LoopSpace, cells: ExpressionDag, access: TensorAccess, shape: Sequence[int], dtype: DType
) -> StridedWindow:
    """The windows that an access reads, where its indices are affine and what is beyond the edges is skipped."""
    forms = [cells[place.at].form for place in access.places]
    known = [form for form in forms if form is not None]
    replaced = any(place.below is not None or place.above is not None for place in access.places)
    if len(known) != len(forms) or access.picked is not None or replaced:
        raise Unsupported("an index is computed")
    box = tuple((0, extent) for extent in space.extents)
    spans = [span(form, box) for form in known]
    beyond = [low < 0 or high >= size for (low, high), size in zip(spans, shape, strict=True)]
    if any(is_beyond and not place.guarded for is_beyond, place in zip(beyond, access.places, strict=True)):
        raise Unsupported("an index leaves its tensor")
    axes = tuple(sorted({axis for form in known for axis in form.symbols}))
    if not any(beyond):
        return _window(space, axes, known, [form.constant for form in known], None)
    starts = [form.constant - low for form, (low, _) in zip(known, spans, strict=True)]
    room = tuple(high - low + 1 for low, high in spans)
    space.reserve_bytes(room, dtype)
    return _window(space, axes, known, starts, room, cut_edges(spans, shape))


def _window(
    space: LoopSpace,
    axes: tuple[int, ...],
    forms: Sequence[Form],
    starts: Sequence[int],
    room: tuple[int, ...] | None,
    edges: tuple[tuple[slice, ...], tuple[slice, ...]] = ((), ()),
) -> StridedWindow:
    factors = tuple(tuple(dict(form.terms).get(axis, 0) for form in forms) for axis in axes)
    return StridedWindow(axes, space.shape(axes), factors, tuple(starts), room, *edges)


# --- gathers: elements at computed indices --------------------------------------------------------------------


def gather(
    space: LoopSpace,
    cells: ExpressionDag,
    access: TensorAccess,
    tensor: tuple[Register, Sequence[int], DType],
    found: dict[int, LoopValue],
) -> LoopValue:
    """The elements that an access reads whose indices are values, or run along whole dimensions."""
    register, shape, dtype = tensor
    computed = [number for number, place in enumerate(access.places) if cells[place.at].form is None]
    first, last = computed[0], computed[-1]
    guarded = any(access.places[number].guarded for number in computed)
    if guarded or access.picked is not None or computed != list(range(first, last + 1)):
        raise Unsupported("an index is computed")
    values = [found[access.places[number].at] for number in computed]
    among = tuple(sorted({axis for value in values for axis in value.axes}))
    around = [
        _whole(space, cells, access, number, shape[number])
        for number in range(len(shape))
        if number not in computed
    ]
    order = (*around[:first], *among, *around[first:])
    if len(set(order)) != len(order):
        raise Unsupported("a loop runs along two dimensions")
    space.reserve(order, dtype)
    indices = [space.align(value, among) for value in values]
    look = _look(access.tensor, first, tuple(shape[number] for number in computed))
    taken = space.tape.do(look, register, *indices)
    axes = tuple(sorted(order))
    if axes != order:
        taken = space.transpose(taken, [order.index(axis) for axis in axes])
    return LoopValue(taken, axes, dtype)


def _whole(space: LoopSpace, cells: ExpressionDag, access: TensorAccess, number: int, size: int) -> int:
    """The loop that runs along a whole dimension."""
    part = find_part(space, cells[access.places[number].at].form, size)
    if part.cut is not None or len(part.axes) != 1:
        raise Unsupported("a part is picked from")
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
class StoredTensor:
    """A tensor that a formula may read: where it stands, its shape and its stored type."""

    register: Register
    shape: tuple[int, ...]
    dtype: DType


Tensors = Mapping[str, StoredTensor | tuple[StoredTensor, ...]]


@dataclass(slots=True)
class TermValues:
    """The values of a formula's cells."""

    space: LoopSpace
    formula: PreparedFormula
    tensors: Tensors
    real: Real
    found: dict[int, LoopValue] = field(default_factory=dict)
    padded: bool = False
    """Whether zeros were read beyond the edges of a tensor: right only where what they meet is finite."""
    lazy: bool | None = None

    def value(self, root: int) -> LoopValue:
        """The value of a cell; the cells it needs come first."""
        for number in self.formula.cells.needed([root]):
            if number not in self.found:
                self.found[number] = self._make(self.formula.cells[number])
        return self.found[root]

    def tensor(self, access: TensorAccess) -> StoredTensor:
        """The tensor of an access whose item is known."""
        found = self.tensors.get(access.tensor)
        if isinstance(found, tuple) and 0 <= (access.item or 0) < len(found):
            return found[access.item or 0]
        if not isinstance(found, StoredTensor):
            raise Unsupported("what it writes is read")
        return found

    def _make(self, cell: TermCell) -> LoopValue:
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
        raise Unsupported("a term is looked up or counted")

    def _count(self, form: Form) -> LoopValue:
        """The values of an index."""
        axes = tuple(sorted(form.symbols))
        if any(extent > LONGEST for extent in self.space.shape(axes)):
            raise Unsupported("it counts far")
        found = self.space.literal(np.asarray(form.constant, INTEGER))
        for axis, factor in form.terms:
            along = np.arange(self.space.extents[axis], dtype=INTEGER) * factor
            found = self.space.apply(np.add, [found, self.space.literal(along, (axis,))], INTEGER)
        return LoopValue(found.register, axes, INTEGER)

    def _read(self, access: TensorAccess) -> LoopValue:
        held = self.tensor(access)
        if 0 in held.shape:
            raise Unsupported("a tensor is empty")
        cells = self.formula.cells
        if all(cells[place.at].form is not None for place in access.places):
            value = read(self.space, cells, access, held.register, held.shape, held.dtype)
        elif self._is_lazy():
            raise Unsupported("an index may be computed for nothing")
        else:
            tensor = held.register, held.shape, held.dtype
            value = gather(self.space, cells, access, tensor, self.found)
        wide = computing_type(held.dtype, self.real)
        return value if wide == held.dtype else self.space.apply(astype(wide), [value], wide)

    def _is_lazy(self) -> bool:
        """Whether some values are not used in every step; found once, since formulas may have many reads."""
        if self.lazy is None:
            terms = (cell.term for cell in self.formula.cells.cells)
            self.lazy = any(isinstance(term, Apply) and term.function in LAZY for term in terms)
        return self.lazy

    def windows(self, number: int) -> LoopValue:
        """The value of a cell that may read beyond the edges of a tensor, where it finds zeros."""
        access = self.formula.cells[number].access
        try:
            return self.value(number)
        except Unsupported:
            if access is None or 0 in self.tensor(access).shape:
                raise
        held = self.tensor(access)
        found = find_window(self.space, self.formula.cells, access, held.shape, held.dtype)
        if self.space.reserve(found.axes, held.dtype) > OPERAND:
            raise Unsupported("windows are taken in parts")
        register = self.space.view(held.register, found.look)
        value, wide = LoopValue(register, found.axes, held.dtype), computing_type(held.dtype, self.real)
        self.padded = self.padded or found.room is not None
        return value if wide == held.dtype else self.space.apply(astype(wide), [value], wide)

    def _apply(self, cell: TermCell, term: Apply) -> LoopValue:
        operands = [self.found[number] for number in cell.operands]
        dtype = _type_of(term.type, self.real)
        if term.function == "cast":
            return self._cast(operands[0], term.type, dtype)
        integers = operands[0].dtype == INTEGER
        # Evaluated in boxes, a zero divisor is only a fault in steps that use the value; a program has no such steps.
        if integers and term.function in DIVIDING and not self._divides(operands[1]):
            raise Unsupported("a divisor may be zero")
        return self.space.apply(find_function(term.function, integers), operands, dtype)

    def _cast(self, value: LoopValue, kind: str, dtype: DType) -> LoopValue:
        real = self.real

        def cast(values: Array) -> Array:
            return convert(np.asarray(values), kind, real)

        return value if value.dtype == dtype else self.space.apply(cast, [value], dtype)

    def _divides(self, value: LoopValue) -> bool:
        """Whether a divisor or an exponent is known, and positive."""
        known = self.space.tape.literals.get(value.register)
        return known is not None and bool((known > 0).all())


def _type_of(kind: str, real: Real) -> DType:
    types: dict[str, DType] = {"int": INTEGER, "real": real, "bool": BOOLEAN}
    if kind not in types:
        raise Unsupported("it computes with strings")
    return types[kind]
