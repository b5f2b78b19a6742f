"""Matrix products as loops over tiles: blocks of the sum, blocks of rows, columns, rows, and the inner loop.

A tile of C stays in registers for a whole block of the sum. Where A is copied, the loops round the copies are
collective and every copy and every column of tiles is a parallel region; else there is one region round all loops.
Subgroups take the tiles of a column in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lamella.base.records import dataclass
from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import (
    add,
    as_value,
    each,
    least,
    multiply,
    quotient,
    subtract,
    whole_part,
)
from lamella.kernels.passes.lower_linalg.operands import (
    CHECKED,
    AccumulatorPiece,
    GemmOperands,
    MatrixOperand,
    RowSpan,
    Scaling,
    Storing,
    Sums,
    cast,
    constant,
    scale_block,
    start_scaling,
)
from lamella.kernels.passes.lower_linalg.tiles import (
    TAIL_COLUMNS,
    Buffers,
    DepthBlock,
    Strip,
    TilePlan,
    make_buffers,
    make_columns,
    split,
)
from lamella.lang.tensor.nodes import (
    BOOL,
    INDEX,
    Coopmatrix,
    CoopMulAdd,
    CoopStore,
    IndexOrSize,
    LifetimeStop,
    Memref,
    Scalar,
    Slice,
    Value,
)

# --- A tile of a product: sums that stay in registers while the inner loop runs along the columns -----------


@dataclass(frozen=True, slots=True)
class Tile:
    """Some rows of A and some columns of B, whose product is kept in one matrix or in several."""

    a: MatrixOperand
    b: MatrixOperand
    pieces: tuple[AccumulatorPiece, ...]
    step: int
    """Columns of A in one step."""
    checked: tuple[bool, bool]
    """Whether A has fewer rows and B fewer columns."""

    def sum(self, builder: Builder, depth: IndexOrSize, whole: bool) -> list[Value]:
        """The sums: the inner loop, and what is left of the columns unless that is known to be nothing."""
        main = depth if whole else whole_part(builder, depth, self.step)
        found = start_sums(builder, self.pieces)
        if main != 0:
            found = self._loop(builder, (0, main, self.step), found)
        if whole or depth == main:
            return found
        if isinstance(depth, int):
            return self._add(builder, main, depth % self.step, found)
        return self._loop(builder, (main, depth, 1), found)

    def _loop(
        self, builder: Builder, bounds: tuple[IndexOrSize, IndexOrSize, int], start: list[Value]
    ) -> list[Value]:
        begin, end, step = bounds
        if begin == 0 and end == step:
            return self._add(builder, 0, step, start)
        first, last = as_value(builder, begin), as_value(builder, end)
        carried = [(value, piece.type) for value, piece in zip(start, self.pieces, strict=True)]
        with builder.loop(first, last, builder.constant(step), carried) as loop:
            loop.body.give(*self._add(loop.body, loop.variable, step, loop.carried))
        return loop.results

    def _add(self, builder: Builder, position: IndexOrSize, step: int, before: list[Value]) -> list[Value]:
        """Add the products of some columns of A and rows of B."""
        left: dict[IndexOrSize, Value] = {}
        right: dict[IndexOrSize, Value] = {}
        sums = []
        for piece, value in zip(self.pieces, before, strict=True):
            if piece.row not in left:
                left[piece.row] = self._load_a(builder, piece, position, step)
            if piece.column not in right:
                right[piece.column] = self._load_b(builder, piece, position, step)
            product = CoopMulAdd(left[piece.row], right[piece.column], value, piece.type)
            sums.append(builder.value(product))
        return sums

    def _load_a(self, builder: Builder, piece: AccumulatorPiece, position: IndexOrSize, step: int) -> Value:
        type_ = Coopmatrix(self.a.type.element, piece.type.rows, step, "matrix_a")
        return self.a.load(builder, (piece.row, position), type_, "rows" if self.checked[0] else "")

    def _load_b(self, builder: Builder, piece: AccumulatorPiece, position: IndexOrSize, step: int) -> Value:
        type_ = Coopmatrix(self.b.type.element, step, piece.type.columns, "matrix_b")
        return self.b.load(builder, (position, piece.column), type_, "cols" if self.checked[1] else "")


def start_sums(builder: Builder, pieces: tuple[AccumulatorPiece, ...]) -> list[Value]:
    """Sums of nothing."""
    return [constant(builder, 0, piece.type) for piece in pieces]


def cut_tile(element: str, shape: tuple[int, int], unit: int | None) -> tuple[AccumulatorPiece, ...]:
    """The matrices that hold a tile: one, or several where none may have more rows or columns than a unit."""
    rows, columns = (_cut(size, unit or size) for size in shape)
    return tuple(
        AccumulatorPiece(row, column, Coopmatrix(element, height, width, "matrix_acc"))
        for row, height in rows
        for column, width in columns
    )


def _cut(size: int, unit: int) -> list[tuple[int, int]]:
    return [(begin, min(unit, size - begin)) for begin in range(0, size, unit)]


# --- copies of what tiles read: parts of a matrix, put together in local memory so that they lie ------------


STEP = 16
"""Elements that are copied at a time along columns, or across them where each row lies in one piece."""
COLUMNS = 4
"""Columns that are copied at a time where each lies in one piece."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of some rows of a matrix, all columns of them, or the other way round."""

    source: MatrixOperand
    target: MatrixOperand
    count: int
    """How many rows, or columns where `along` is 0."""
    along: int = 1
    """The mode that is copied step by step: 1 for the columns of some rows, 0 for the rows of some columns."""
    checked: bool = False
    """Whether the source may have fewer, and what it lacks becomes 0."""
    filled: bool = False
    """Whether the last step is a whole one, and what the source lacks there becomes 0."""

    @property
    def step(self) -> int:
        """How much is copied at a time: what fills vectors."""
        return COLUMNS if self.along == 1 and self.source.row_stride == 1 else STEP


def copy_matrix(builder: Builder, copy: Copy, extent: IndexOrSize, step: int) -> None:
    """Copy so many columns of some rows, or rows of some columns."""
    main = whole_part(builder, extent, step)
    if main != 0:
        with each(builder, 0, main, step) as (inner, position):
            _copy_step(inner, copy, position, step)
    if isinstance(extent, int) and extent == main:
        return
    if copy.filled:
        _copy_last(builder, copy, (main, extent), step)
    elif isinstance(extent, int):
        _copy_step(builder, copy, main, extent % step)
    else:
        with each(builder, main, extent, 1) as (inner, position):
            _copy_step(inner, copy, position, 1)


def _copy_last(builder: Builder, copy: Copy, span: tuple[IndexOrSize, IndexOrSize], step: int) -> None:
    """Copy what is left, if anything is, as a whole step."""
    main, extent = span
    if isinstance(extent, int):
        _copy_step(builder, copy, main, step, True)
        return
    rest = builder.compare("lt", as_value(builder, main), extent)
    with builder.condition(rest) as inner:
        _copy_step(inner, copy, main, step, True)


def _copy_step(builder: Builder, copy: Copy, position: IndexOrSize, step: int, beyond: bool = False) -> None:
    """Copy some columns or rows; those beyond the end of the source are 0."""
    by_rows = copy.along == 1
    shape = (copy.count, step) if by_rows else (step, copy.count)
    place = (0, position) if by_rows else (position, 0)
    found = Coopmatrix(copy.source.type.element, *shape, "matrix_a")
    wanted = Coopmatrix(copy.target.type.element, *shape, "matrix_a")
    checked = CHECKED[(copy.checked, beyond) if by_rows else (beyond, copy.checked)]
    value = cast(builder, copy.source.load(builder, place, found, checked), found, wanted)
    row, column = (as_value(builder, item) for item in place)
    builder.put(CoopStore(value, copy.target.value, row, column))


LANE = Scalar("i32")


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of one product."""

    product: GemmOperands
    plan: TilePlan
    subgroups: int | None
    """Subgroups of the work-group; None where nothing says how many."""
    buffers: Buffers

    def write(self, builder: Builder) -> None:
        """Write all loops."""
        scaling = start_scaling(builder, self.product)
        with self._region(builder, not self.buffers.are_filled) as inner:
            self._write_parts(inner, scaling)

    def _write_parts(self, builder: Builder, scaling: Scaling) -> None:
        k, block = self.product.k, self.plan.block
        if block is None:
            self._write_rows(builder, DepthBlock(0, k, scaling))
            return
        with builder.loop(builder.constant(0), as_value(builder, k), builder.constant(block)) as loop:
            inner, begin = loop.body, loop.variable
            depth = least(inner, block, subtract(inner, k, begin))
            self._write_rows(inner, DepthBlock(begin, depth, scale_block(inner, scaling, begin)))

    # --- rows and columns ---------------------------------------------------------------------------------------

    def _write_rows(self, builder: Builder, part: DepthBlock) -> None:
        m, size = self.product.m, self.plan.rows
        if self.product.whole_rows or (self.buffers.panels is not None and not isinstance(m, int)):
            self._write_strip(builder, part, Strip(0, m, size, not self.product.whole_rows))
            return
        full = whole_part(builder, m, size)
        if full != 0:
            self._write_strip(builder, part, Strip(0, full, size))
        if not isinstance(m, int):
            rest = builder.compare("lt", as_value(builder, full), m)
            with builder.condition(rest) as inner:
                self._write_strip(inner, part, Strip(full, m, size, True))
        elif isinstance(full, int) and full < m:
            self._write_strip(builder, part, Strip(full, m, m - full))

    def _write_strip(self, builder: Builder, part: DepthBlock, rows: Strip) -> None:
        if self.plan.panels == 0:
            self._write_columns(builder, part, rows)
            return
        height = rows.size * self.plan.panels
        with each(builder, rows.begin, rows.end, height) as (inner, begin):
            block = replace(rows, begin=begin, end=least(inner, add(inner, begin, height), rows.end))
            if self.plan.pack_a:
                self._pack_a(inner, part, block)
            self._write_columns(inner, part, block)

    def _write_columns(self, builder: Builder, part: DepthBlock, rows: Strip) -> None:
        n, size = self.product.n, self.plan.columns
        if isinstance(n, int):
            begin = 0
            for count, width in split(n, size):
                self._write_column_strip(builder, part, (rows, Strip(begin, begin + count * width, width)))
                begin += count * width
        elif self.buffers.b is not None or size == 1:
            self._write_column_strip(builder, part, (rows, Strip(0, n, size, size > 1)))
        else:
            full = whole_part(builder, n, size)
            self._write_column_strip(builder, part, (rows, Strip(0, full, size)))
            tail = Strip(full, n, min(size, TAIL_COLUMNS), True)
            self._write_column_strip(builder, part, (rows, tail))

    def _write_column_strip(self, builder: Builder, part: DepthBlock, strips: tuple[Strip, Strip]) -> None:
        rows, columns = strips
        with each(builder, columns.begin, columns.end, columns.size) as (inner, column):
            span = columns.span(inner, column)
            b = self._pack_b(inner, part, columns, span)
            with (
                self._region(inner, self.buffers.are_filled) as region,
                self._tiles(region, rows) as (body, row),
            ):
                self._write_tile(body, part, strips, (row, span, b))

    # --- copies -------------------------------------------------------------------------------------------------

    def _pack_a(self, builder: Builder, part: DepthBlock, rows: Strip) -> None:
        with builder.parallel() as region, self._tiles(region, rows) as (body, row):
            span = rows.span(body, row)
            source, panel = self.product.a.view(body, span, part.span), self._panel(body, rows, row, part)
            copy = Copy(source, panel, rows.size, 1, False, self.plan.pack > 1)
            step = copy.step if self.plan.pack == 1 else self.plan.depth
            if rows.ragged:
                with body.choice(rows.is_full(body, span)) as (then, otherwise):
                    copy_matrix(then, copy, part.depth, step)
                    copy_matrix(otherwise, replace(copy, checked=True), part.depth, step)
            else:
                copy_matrix(body, copy, part.depth, step)

    def _panel(self, builder: Builder, rows: Strip, row: IndexOrSize, part: DepthBlock) -> MatrixOperand:
        """The panel of the rows of A that begin at a row."""
        panels, type_, ready = self.buffers.panels, self.buffers.panel_type, self.buffers.ready
        if panels is None:
            return self.product.a.view(builder, rows.span(builder, row), part.span)
        first = row if ready else subtract(builder, row, rows.begin)
        number = quotient(builder, first, self.plan.rows if ready else rows.size)
        begin = quotient(builder, part.begin, self.plan.pack) if ready else 0
        reach = quotient(builder, self._reach(builder, part.depth), self.plan.pack)
        modes = [RowSpan(0, rows.size), RowSpan(begin, reach)]
        if self.plan.pack > 1:
            modes.insert(0, RowSpan(0, self.plan.pack))
        shape = tuple(item.size if isinstance(item.size, int) else None for item in modes)
        shown = Memref(type_.element, shape, type_.stride[:-1], type_.local)
        slices = [Slice(item.begin, item.size) for item in modes]
        return MatrixOperand(builder.subview(panels, [*slices, Slice(number)], shown), shown)

    def _pack_b(
        self, builder: Builder, part: DepthBlock, columns: Strip, span: RowSpan
    ) -> MatrixOperand | None:
        """The columns of B that a tile needs: a copy, or where they stand; None where the sum is empty."""
        if part.depth == 0:
            return None
        place = self.product.b.view(builder, part.span, span)
        if self.buffers.b is None:
            return place
        reach = self._reach(builder, part.depth)
        target = self.buffers.b.view(builder, RowSpan(0, reach), RowSpan(0, columns.size))
        fill = self.plan.pack > 1
        copy = Copy(place, target, columns.size, 0, columns.ragged, fill)
        if target.transposed:
            copy = Copy(_flip(place), _flip(target), columns.size, 1, columns.ragged, fill)
        step = copy.step if self.plan.pack == 1 else self.plan.depth
        with builder.parallel() as region, self._first_subgroup(region) as body:
            copy_matrix(body, copy, part.depth, step)
        return target

    # --- subgroups ----------------------------------------------------------------------------------------------

    @contextmanager
    def _region(self, builder: Builder, opens: bool) -> Iterator[Builder]:
        """A region that all subgroups run; there is one round all loops, or where copies are made, one for each."""
        if not opens:
            yield builder
            return
        with builder.parallel() as inner:
            yield inner

    @contextmanager
    def _tiles(self, builder: Builder, rows: Strip) -> Iterator[tuple[Builder, IndexOrSize]]:
        """The tiles of a column that this subgroup computes, each by its first row."""
        if self.subgroups == 1:
            with each(builder, rows.begin, rows.end, rows.size) as found:
                yield found
            return
        own = multiply(builder, builder.cast(builder.builtin("subgroup_id", LANE), INDEX), rows.size)
        count = builder.cast(builder.builtin("num_subgroups", LANE), INDEX)
        step = multiply(builder, count, rows.size)
        with each(builder, add(builder, rows.begin, own), rows.end, step) as found:
            yield found

    @contextmanager
    def _first_subgroup(self, builder: Builder) -> Iterator[Builder]:
        """What one subgroup does for all."""
        if self.subgroups == 1:
            yield builder
            return
        number = builder.builtin("subgroup_id", LANE)
        with builder.condition(builder.compare("eq", number, builder.constant(0, LANE))) as inner:
            yield inner

    # --- a tile -------------------------------------------------------------------------------------------------

    def _write_tile(
        self,
        builder: Builder,
        part: DepthBlock,
        strips: tuple[Strip, Strip],
        place: tuple[IndexOrSize, RowSpan, MatrixOperand | None],
    ) -> None:
        (rows, columns), (row, span, b) = strips, place
        own = rows.span(builder, row)
        pieces = cut_tile(self.product.wide, (rows.size, columns.size), self.plan.unit)
        totals = start_sums(builder, pieces) if b is None else []
        # what is read in place has a strip of its own for the last tile, which is never full
        partial = (
            rows.ragged and self.buffers.panels is None,
            columns.ragged and self.buffers.b is None,
        )
        if b is not None:
            tile = Tile(self._panel(builder, rows, row, part), b, pieces, self.plan.depth, partial)
            totals = tile.sum(builder, self._reach(builder, part.depth), self._is_whole)
        sums = Sums(part.scaling, pieces, tuple(totals))
        store = Storing(self.product.c.view(builder, own, span), CHECKED[rows.ragged, columns.ragged])
        full = [
            strip.is_full(builder, item) for strip, item in ((rows, own), (columns, span)) if strip.ragged
        ]
        if not full or any(partial):
            sums.finish(builder, store)
            return
        both = full[0] if len(full) == 1 else builder.arith("and", *full, type_=BOOL)
        with builder.choice(both) as (then, otherwise):
            sums.finish(then, replace(store, checked=""))
            sums.finish(otherwise, store)

    @property
    def _is_whole(self) -> bool:
        """Whether the inner loop is known to leave no columns of A behind."""
        k = self.product.k
        return self.plan.pack > 1 or (isinstance(k, int) and k % self.plan.depth == 0)

    def _reach(self, builder: Builder, depth: IndexOrSize) -> IndexOrSize:
        """How far the inner loop goes: packed copies are filled up with zeros."""
        if self.plan.pack == 1:
            return depth
        step = self.plan.depth
        return whole_part(builder, add(builder, depth, step - 1), step)


def lower_product(builder: Builder, product: GemmOperands, plan: TilePlan, subgroups: int | None) -> None:
    """Write a product as loops; one without elements is nothing."""
    if 0 in (product.m, product.n):
        return
    empty_plan = TilePlan(plan.rows, 1, 1, None)
    if isinstance(product.k, int):
        _write_nest(builder, product, plan if product.k else empty_plan, subgroups)
        return
    # a view must not be empty, so a sum that may be is asked first
    empty = builder.compare("eq", product.k, builder.constant(0))
    with builder.choice(empty) as (then, otherwise):
        _write_nest(then, replace(product, k=0), empty_plan, subgroups)
        _write_nest(otherwise, product, plan, subgroups)


def write_panels(builder: Builder, product: GemmOperands, plan: TilePlan, first: IndexOrSize) -> None:
    """Write a product whose A is given in panels, those from the first one on."""
    type_ = product.a.type
    count = quotient(builder, add(builder, product.m, plan.rows - 1), plan.rows)
    sizes: list[IndexOrSize] = [*(size or 0 for size in type_.shape[:-1]), count]
    begins: list[IndexOrSize] = [*(0 for _ in type_.shape[:-1]), first]
    shape = tuple(size if isinstance(size, int) else None for size in sizes)
    shown = Memref(type_.element, shape, type_.stride)
    slices = [Slice(begin, size) for begin, size in zip(begins, sizes, strict=True)]
    columns = (
        make_columns(builder, product, plan, plan.block or _depth(product, plan)) if plan.pack_b else None
    )
    buffers = Buffers(builder.subview(product.a.value, slices, shown), shown, columns, True)
    Nest(product, plan, 1, buffers).write(builder)
    if columns is not None:
        builder.put(LifetimeStop(columns.value))


def _depth(product: GemmOperands, plan: TilePlan) -> int:
    """The columns of A in a copy that holds all of them."""
    if not isinstance(product.k, int):
        raise ValueError("a copy of unknown size")
    return -(-product.k // plan.depth) * plan.depth if plan.pack > 1 else product.k


def _write_nest(builder: Builder, product: GemmOperands, plan: TilePlan, subgroups: int | None) -> None:
    buffers = make_buffers(builder, product, plan)
    Nest(product, plan, subgroups, buffers).write(builder)
    for buffer in (buffers.panels, buffers.b.value if buffers.b is not None else None):
        if buffer is not None:
            builder.put(LifetimeStop(buffer))


def _flip(operand: MatrixOperand) -> MatrixOperand:
    return MatrixOperand(operand.value, operand.type, not operand.transposed)
