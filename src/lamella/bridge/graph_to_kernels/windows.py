"""Sums of products over windows as `gemm`: convolutions, transposed ones, and what else slides along a tensor.

In `y[…, s * i + d * j - p] += x[…, c, i] * w[c, …, j]` an index counts with two loops. The shorter of them is *peeled*:
it runs outside, and for each of its steps the other one is a strided view of the tensor, cut to the steps that no guard
skips. So each tap of a filter is a matrix product of views, and nothing is multiplied that the formula leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product
from math import prod

from lamella.bridge.graph_to_kernels.affine import find_form
from lamella.bridge.graph_to_kernels.products import SMALLEST, find_digits, find_factors, find_shape
from lamella.bridge.graph_to_kernels.terms import TensorView
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import Blas, Expand, IndexOrSize, Memref, Scalar, Slice, Value
from lamella.lang.tensor.nodes.types import BOOL
from lamella.ops.formula import Contraction, Element, Guard

GROUP_STEPS = 1 << 21
"""Multiplications that are worth a work-group of their own."""
MOST_GROUPS = 16
FEWEST_COLUMNS = 16
"""Columns that a work-group keeps when they are shared out."""
MOST_PIECES = 64
"""Products of one kernel; what is cut into more is left to plain loops."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A mode of a tensor, at `constant + factor * loop + Σ factor * peeled loop`; a `guarded` one may be outside."""

    size: int
    loop: str | None
    factor: int = 1
    constant: int = 0
    peeled: tuple[tuple[str, int], ...] = ()
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Steps of a loop of the product that are one view: `count` of them from `first`, for steps of the peeled loop."""

    first: int
    count: int
    peeled: str | None = None
    begin: int = 0
    end: int = 1


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode of a view: so many places, every `factor`-th of a tensor, the first of them `shift` behind the room's."""

    count: int
    stride: int
    factor: int
    shift: int


@dataclass(frozen=True, slots=True)
class WindowProduct:
    """A matrix product for each step of the other loops: those over work-groups, and those inside of each."""

    elements: tuple[Element, Element, Element]
    axes: tuple[tuple[Axis, ...], ...]
    """Of the target and of both factors, the outermost first."""
    row: str
    column: str
    sum: str
    groups: tuple[str, ...]
    inner: tuple[str, ...]
    pieces: Mapping[str, tuple[Piece, ...]]
    extents: Mapping[str, int]

    @property
    def blocks(self) -> int:
        """Into how many parts the columns are cut so that several threads have work."""
        columns, found = self.extents[self.column], 1
        if self.pieces[self.column] != (Piece(0, columns),):
            return found
        steps = columns * prod(self.extents[name] for name in (self.row, self.sum, *self.inner))
        groups = prod(self.extents[name] for name in self.groups)
        while (
            columns % (2 * found) == 0
            and columns // (2 * found) >= FEWEST_COLUMNS
            and steps // (2 * found) >= GROUP_STEPS
            and groups * found < MOST_GROUPS
        ):
            found *= 2
        return found

    def shape(self, number: int) -> tuple[int, ...]:
        """The modes of a tensor, the last axis first."""
        return tuple(axis.size for axis in reversed(self.axes[number]))


# --- finding ------------------------------------------------------------------------------------------------


def find_window(
    contraction: Contraction, tensors: Mapping[tuple[str, int | None], TensorView], real: Scalar
) -> WindowProduct | None:
    """The products over windows that a contraction is; None where it is none, or too small."""
    elements = find_factors(contraction, tensors, real)
    extents = {loop.index: loop.extent for loop in contraction.loops if isinstance(loop.extent, int)}
    if elements is None or len(extents) != len(contraction.loops) or 0 in extents.values():
        return None
    rows = [_axes(item, extents, find_shape(tensors, item)) for item in elements]
    found = [row for row in rows if row is not None]
    if len(found) < len(rows):
        return None
    # Few products of long views are better; but the longer loop may be the only one that a factor has.
    ways = (_peel(found, extents, shorter) for shorter in (True, False))
    windows = (_arrange(elements, axes, extents) for axes in ways if axes is not None)
    return next((item for item in windows if item is not None), None)


def _axes(element: Element, extents: Mapping[str, int], shape: Sequence[int]) -> list[Axis] | None:
    """The modes of a tensor, all loops of an index as if they were peeled; None where one does not count like that."""
    found: list[Axis] = []
    for index, size in zip(element.indices, shape, strict=True):
        guarded = isinstance(index, Guard)
        if isinstance(index, Guard) and (index.below is not None or index.above is not None):
            return None
        form = find_form(index.index if isinstance(index, Guard) else index, extents)
        if form is None or any(factor < 0 for _, factor in form.terms):
            return None
        digits = find_digits(form, extents, size)
        if digits:
            found += [Axis(extents[name], None, peeled=((name, 1),)) for name in digits]
            continue
        last = form.constant + sum(factor * (extents[name] - 1) for name, factor in form.terms)
        leaves = form.constant < 0 or last >= size
        if len(form.terms) > 2 or (leaves and not guarded):
            return None
        found.append(Axis(size, None, 1, form.constant, form.terms, leaves))
    return found


def _peel(
    rows: Sequence[Sequence[Axis]], extents: Mapping[str, int], shorter: bool
) -> list[tuple[Axis, ...]] | None:
    """The modes with the loop that is left in each: of two the longer or the shorter one."""
    outside: set[str] = set()
    for axis in (axis for row in rows for axis in row):
        names = [name for name, _ in axis.peeled]
        if len(names) == 2 and not outside & set(names):
            outside.add((min if shorter else max)(names, key=lambda name: extents[name]))
    found = [tuple(_keep(axis, outside) for axis in row) for row in rows]
    for row in found:
        kept = [axis.loop for axis in row if axis.loop is not None]
        if len(set(kept)) < len(kept):
            return None
    return found


def _keep(axis: Axis, outside: set[str]) -> Axis:
    kept = [(name, factor) for name, factor in axis.peeled if name not in outside]
    if not kept:
        return axis
    peeled = tuple(item for item in axis.peeled if item != kept[0])
    return Axis(axis.size, kept[0][0], kept[0][1], axis.constant, peeled, axis.guarded)


def _arrange(
    elements: tuple[Element, Element, Element],
    axes: Sequence[tuple[Axis, ...]],
    extents: Mapping[str, int],
) -> WindowProduct | None:
    """Which loop is what: the closest of the target and of each factor are rows and columns, a common one is summed."""
    target, left, right = ([axis.loop for axis in row if axis.loop is not None] for row in axes)
    first = [name for name in target if name in left and name not in right]
    second = [name for name in target if name in right and name not in left]
    summed = [name for name in left if name in right and name not in target]
    peeled = {name for row in axes for axis in row for name, _ in axis.peeled}
    loops = {name for name, extent in extents.items() if extent > 1}
    if not first or not second or not summed or {*target, *summed, *peeled} != loops | peeled:
        return None
    row, column, total = first[-1], second[-1], max(summed, key=lambda name: extents[name])
    if target.index(row) < target.index(column):
        row, column, axes = column, row, [axes[0], axes[2], axes[1]]
        elements = elements[0], elements[2], elements[1]
    if not peeled or extents[row] * extents[column] * extents[total] < SMALLEST:
        return None
    pieces = _pieces(axes, (row, column, total), extents)
    if pieces is None:
        return None
    own = [axis.loop for axis in axes[0] if axis.loop is not None and not axis.peeled]
    groups = tuple(name for name in own if name not in (row, column))
    taken = {row, column, total, *groups, *(item.peeled for items in pieces.values() for item in items)}
    inner = tuple(name for name in extents if name in loops | peeled and name not in taken)
    return WindowProduct(elements, tuple(axes), row, column, total, groups, inner, pieces, extents)


# --- pieces -------------------------------------------------------------------------------------------------


def _pieces(
    axes: Sequence[tuple[Axis, ...]], names: tuple[str, str, str], extents: Mapping[str, int]
) -> dict[str, tuple[Piece, ...]] | None:
    """The steps of rows, columns and sum as views; None where peeled loops cut them in a more complicated way."""
    found: dict[str, tuple[Piece, ...]] = {}
    cutting: list[str] = []
    for name in names:
        own = [axis for row in axes for axis in row if axis.loop == name]
        cut = [axis for axis in own if axis.guarded or axis.factor > 1]
        outer = {item for axis in cut for item in axis.peeled}
        if len({item for item, _ in outer}) > 1 or any(len(axis.peeled) > 1 for axis in cut):
            return None
        peeled = next((item for item, _ in outer), None)
        cutting += [] if peeled is None else [peeled]
        found[name] = tuple(_cut(name, peeled, cut, extents))
    if len(set(cutting)) < len(cutting) or prod(map(len, found.values())) > MOST_PIECES:
        return None
    return found


def _cut(name: str, peeled: str | None, axes: Sequence[Axis], extents: Mapping[str, int]) -> Iterator[Piece]:
    """Steps of the peeled loop that leave the same steps of a loop inside, as long as they are one view."""
    steps = range(1 if peeled is None else extents[peeled])
    spans = [(step, _span(extents[name], step, axes)) for step in steps]
    for (first, last), run in groupby(spans, key=lambda item: item[1]):
        places = [step for step, _ in run]
        if first < last:
            yield from _fit(Piece(first, last - first, peeled, places[0], places[-1] + 1), axes)


def _span(extent: int, step: int, axes: Sequence[Axis]) -> tuple[int, int]:
    """The steps of a loop that no axis skips, in a step of the peeled loop."""
    first, last = 0, extent
    for axis in axes:
        place = axis.constant + sum(factor * step for _, factor in axis.peeled)
        first = max(first, -(place // axis.factor))
        last = min(last, (axis.size - 1 - place) // axis.factor + 1)
    return first, max(first, last)


def _fit(piece: Piece, axes: Sequence[Axis]) -> Iterator[Piece]:
    """A piece, cut further where the room of its strided steps would not lie inside a tensor."""
    if all(find_shift(piece, axis) is not None for axis in axes):
        yield piece
    elif piece.end - piece.begin > 1:
        for step in range(piece.begin, piece.end):
            yield from _fit(Piece(piece.first, piece.count, piece.peeled, step, step + 1), axes)
    else:
        head = Piece(piece.first, piece.count - 1, piece.peeled, piece.begin, piece.end)
        yield from _fit(head, axes)
        yield Piece(piece.first + piece.count - 1, 1, piece.peeled, piece.begin, piece.end)


def find_shift(piece: Piece, axis: Axis) -> int | None:
    """How far before its first step the room of a strided view begins, so that `factor * count` places lie inside."""
    if axis.factor == 1 or piece.count == 1:
        return 0
    starts = [
        axis.constant + axis.factor * piece.first + sum(factor * step for _, factor in axis.peeled)
        for step in (piece.begin, piece.end - 1)
    ]
    over = max(starts) + axis.factor * piece.count - axis.size
    found = max(over, 0)
    return found if found < axis.factor and min(starts) >= found else None


# --- the kernel ---------------------------------------------------------------------------------------------


def write_window(builder: Builder, window: WindowProduct, memrefs: Sequence[Value], real: Scalar) -> int:
    """Write the body of a kernel that goes on from what the target holds; gives the number of its work-groups."""
    blocks = window.blocks
    writing = _WindowWriter(
        window, tuple(memrefs), real, window.extents[window.column] // blocks if blocks > 1 else 0
    )
    rest = builder.builtin("group_id", Scalar("index"))
    if blocks > 1:
        count, size = builder.constant(blocks), builder.constant(writing.width)
        writing.places[window.column] = builder.arith("mul", builder.arith("rem", rest, count), size)
        rest = builder.arith("div", rest, count)
    for place, name in enumerate(reversed(window.groups)):
        extent, last = builder.constant(window.extents[name]), place == len(window.groups) - 1
        writing.places[name] = rest if last else builder.arith("rem", rest, extent)
        rest = rest if last else builder.arith("div", rest, extent)
    writing.open_loops(builder, window.inner)
    return blocks * prod(window.extents[name] for name in window.groups)


@dataclass(slots=True)
class _WindowWriter:
    """The loops of one kernel while they are written."""

    window: WindowProduct
    memrefs: tuple[Value, ...]
    real: Scalar
    width: int
    """Columns of a work-group where they are shared out, else 0."""
    places: dict[str, Value] = field(default_factory=dict)
    """The loops that are open, and where the columns of the work-group begin."""

    def open_loops(self, builder: Builder, names: Sequence[str]) -> None:
        """The loops round the products, one inside the other."""
        if names:
            self._loop(
                builder,
                (names[0], 0, self.window.extents[names[0]]),
                lambda body: self.open_loops(body, names[1:]),
            )
            return
        sides = [self.window.pieces[name] for name in (self.window.row, self.window.column, self.window.sum)]
        for pieces in product(*sides):
            self._open_pieces(builder, pieces, pieces)

    def _open_pieces(self, builder: Builder, pieces: Sequence[Piece], waiting: Sequence[Piece]) -> None:
        """The peeled loops that cut rows, columns and sum."""
        if not waiting:
            self._guard(builder, pieces)
            return
        piece, rest = waiting[0], waiting[1:]
        if piece.peeled is None:
            self._open_pieces(builder, pieces, rest)
        else:
            span = (piece.peeled, piece.begin, piece.end)
            self._loop(builder, span, lambda body: self._open_pieces(body, pieces, rest))

    def _loop(self, builder: Builder, span: tuple[str, int, int], write: Callable[[Builder], None]) -> None:
        name, begin, end = span
        if end - begin == 1:
            self.places[name] = builder.constant(begin)
            write(builder)
            return
        with builder.loop(builder.constant(begin), builder.constant(end)) as loop:
            self.places[name] = loop.variable
            write(loop.body)

    def _guard(self, builder: Builder, pieces: Sequence[Piece]) -> None:
        """The product, in a branch where an index that is no row, column or sum may be outside."""
        ends = (self.window.row, self.window.column, self.window.sum)
        tested = {axis for row in self.window.axes for axis in row if axis.guarded and axis.loop not in ends}
        condition: Value | None = None
        for axis in sorted(tested, key=repr):
            place, zero, end = self._value(builder, axis), builder.constant(0), builder.constant(axis.size)
            for test in (builder.compare("ge", place, zero), builder.compare("lt", place, end)):
                condition = test if condition is None else builder.arith("and", condition, test, type_=BOOL)
        if condition is None:
            self._multiply(builder, pieces)
            return
        with builder.condition(condition) as inner:
            self._multiply(inner, pieces)

    def _multiply(self, builder: Builder, pieces: Sequence[Piece]) -> None:
        window = self.window
        known = dict(zip((window.row, window.column, window.sum), pieces, strict=True))
        views = [self._view(builder, number, known) for number in range(3)]
        one = builder.constant(1.0, self.real)
        transposes = (
            self._comes_before(1, window.row, window.sum),
            self._comes_before(2, window.sum, window.column),
        )
        builder.put(Blas("gemm", (one, views[1], views[2], one, views[0]), transposes))

    def _comes_before(self, number: int, first: str, second: str) -> bool:
        """Whether one loop counts further out than another: the rows of gemm are the mode that lies closest."""
        loops = [axis.loop for axis in self.window.axes[number]]
        return loops.index(first) < loops.index(second)

    # --- views ----------------------------------------------------------------------------------------------

    def _view(self, builder: Builder, number: int, pieces: Mapping[str, Piece]) -> Value:
        """The matrix of a tensor in this step."""
        slices: list[Slice] = []
        kept: list[Mode] = []
        stride = 1
        for axis in reversed(self.window.axes[number]):
            piece = pieces.get(axis.loop or "")
            if piece is None:
                slices.append(Slice(self._place(builder, axis)))
            else:
                count = self.width if self.width and axis.loop == self.window.column else piece.count
                factor = 1 if count == 1 else axis.factor
                shift = (find_shift(piece, axis) or 0) if factor > 1 else 0
                first = self._place(builder, axis, axis.factor * piece.first - shift)
                slices.append(Slice(first, count * factor))
                kept.append(Mode(count, stride, factor, shift))
            stride *= axis.size
        sizes, strides = (item.count * item.factor for item in kept), (item.stride for item in kept)
        type_ = Memref(self.real.name, tuple(sizes), tuple(strides))
        view = builder.subview(self.memrefs[number], slices, type_)
        return self._strided(builder, view, kept) if any(item.factor > 1 for item in kept) else view

    def _strided(self, builder: Builder, view: Value, kept: Sequence[Mode]) -> Value:
        """Every so many-th place of a view: the mode as two, of which one is picked."""
        name = self.real.name
        sizes, strides = [item.count * item.factor for item in kept], [item.stride for item in kept]
        for place, mode in reversed(list(enumerate(kept))):
            if mode.factor > 1:
                sizes[place : place + 1] = [mode.factor, mode.count]
                strides[place : place + 1] = [mode.stride, mode.stride * mode.factor]
                type_ = Memref(name, tuple(sizes), tuple(strides))
                view = builder.value(Expand(view, place, (mode.factor, mode.count), type_))
        slices: list[Slice] = []
        for mode in kept:
            slices += [Slice(mode.shift)] if mode.factor > 1 else []
            slices.append(Slice(0, mode.count))
        counts, steps = (item.count for item in kept), (item.stride * item.factor for item in kept)
        return builder.subview(view, slices, Memref(name, tuple(counts), tuple(steps)))

    def _place(self, builder: Builder, axis: Axis, more: int = 0) -> IndexOrSize:
        """Where an axis is in this step: a number, or what open loops make of it."""
        factors = [*axis.peeled, *([(axis.loop, axis.factor)] if axis.loop in self.places else [])]
        found: Value | None = None
        for name, factor in factors:
            value = self.places[name or ""]
            part = value if factor == 1 else builder.arith("mul", value, builder.constant(factor))
            found = part if found is None else builder.arith("add", found, part)
        constant = axis.constant + more
        if found is None:
            return constant
        return found if constant == 0 else builder.arith("add", found, builder.constant(constant))

    def _value(self, builder: Builder, axis: Axis) -> Value:
        found = self._place(builder, axis)
        return builder.constant(found) if isinstance(found, int) else found
