"""Linear algebra on single elements: axpby, cumsum, ger, hadamard and sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import MappingProxyType

from lamella.base.records import dataclass
from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value, whole_part
from lamella.kernels.passes.lower_linalg.operands import (
    I32,
    Lanes,
    MemrefOperand,
    RegionValues,
    Update,
    cast,
    choose,
    each_line,
    find_lanes,
    shared_extent,
    write_updates,
)
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    INDEX,
    Blas,
    CoopLoad,
    Coopmatrix,
    CoopScale,
    CoopStore,
    Fuse,
    IndexOrSize,
    Memref,
    Number,
    SubgroupBroadcast,
    SubgroupOperation,
    Type,
    Value,
)

# --- sums along a mode: the lanes of a subgroup run along memory, across the sums or along them -------------


CHAINS = 4
"""Sums that a work-item keeps at once, so that none waits for the one before."""
ROWS = 8
"""Sums of neighbouring rows that a work-item keeps at once, so that more of each column is read in one go."""
USUAL_LANES = 16


def write_sum(builder: Builder, update: Update, target: Target) -> None:
    """Each element of the result is the sum of a row of op(A)."""
    source, transposed = update.sources[0], any(update.blas.transposes)
    if source.type.order == 1:
        _sum_along(builder, update, source.extent(builder, 0), [])
        return
    mode = 1 if transposed else 0
    count = shared_extent(builder, (source, mode), (update.target, 0))
    length = source.extent(builder, 1 - mode)
    if transposed and not _is_short(length, target):
        _sum_along(builder, update, length, [count])
    else:
        _sum_across(builder, update, count, length)


def _is_short(length: IndexOrSize, target: Target) -> bool:
    """Whether a mode leaves most lanes of a subgroup without work."""
    return isinstance(length, int) and 2 * length <= (target.default_subgroup_size or USUAL_LANES)


def _sum_across(builder: Builder, update: Update, count: IndexOrSize, length: IndexOrSize) -> None:
    """A sum for each work-item, or several of them where the rows of A lie side by side and are many."""
    transposed, end, last = any(update.blas.transposes), as_value(builder, length), as_value(builder, count)
    begin = builder.constant(0)
    if not transposed and not (isinstance(count, int) and count < ROWS * USUAL_LANES):
        begin = _sum_blocks(builder, update, last, end)
    with builder.foreach([last], [begin]) as (inner, (row,)):
        zero = update.zero(inner)
        with inner.loop(inner.constant(0), end, carried=[(zero, update.wide)]) as loop:
            place = (loop.variable, row) if transposed else (row, loop.variable)
            value = update.load(loop.body, 0, place)
            loop.body.give(update.add(loop.body, loop.carried[0], value))
        update.finish(inner, loop.results[0], [row])


def _sum_blocks(builder: Builder, update: Update, count: Value, end: Value) -> Value:
    """The sums of all rows that come in whole blocks; where the others begin is given back."""
    blocks = _cut_rows(builder, count)
    with builder.parallel() as whole, _each_block(whole, blocks) as (inner, rows):
        _sum_block(inner, update, rows, end)
    return blocks.full


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Rows in blocks: how many lie side by side in a subgroup, how many in a block, and in all whole blocks."""

    size: Value
    block: Value
    full: Value


def _cut_rows(builder: Builder, count: Value) -> _Blocks:
    size = builder.cast(builder.builtin("subgroup_size", I32), INDEX)
    block = builder.arith("mul", size, builder.constant(ROWS))
    return _Blocks(size, block, _whole(builder, count, block))


@contextmanager
def _each_block(builder: Builder, blocks: _Blocks) -> Iterator[tuple[Builder, list[Value]]]:
    """Blocks of rows, shared among the subgroups, and the rows of each that fall to a work-item."""
    lanes = find_lanes(builder)
    start = builder.arith("mul", lanes.subgroup, blocks.block)
    step = builder.arith("mul", lanes.subgroups, blocks.block)
    with builder.loop(start, blocks.full, step) as outer:
        first = outer.body.arith("add", outer.variable, lanes.lane)
        yield outer.body, _rows(outer.body, first, blocks.size)


def _rows(builder: Builder, first: Value, distance: Value) -> list[Value]:
    """The rows that a work-item sums up in a block."""
    found = [first]
    while len(found) < ROWS:
        found.append(builder.arith("add", found[-1], distance))
    return found


def _sum_block(builder: Builder, update: Update, rows: Sequence[Value], end: Value) -> None:
    zeros = [(update.zero(builder), update.wide)] * len(rows)
    with builder.loop(builder.constant(0), end, carried=zeros) as loop:
        pairs = zip(loop.carried, rows, strict=True)
        sums = [
            update.add(loop.body, total, update.load(loop.body, 0, (row, loop.variable)))
            for total, row in pairs
        ]
        loop.body.give(*sums)
    for total, row in zip(loop.results, rows, strict=True):
        update.finish(builder, total, [row])


def _sum_along(builder: Builder, update: Update, length: IndexOrSize, lines: Sequence[IndexOrSize]) -> None:
    """A sum for each subgroup: its work-items share the elements."""
    ends = [as_value(builder, item) for item in lines]
    end = as_value(builder, length)
    with builder.parallel() as whole:
        lanes = find_lanes(whole)
        with each_line(whole, ends, lanes) as (inner, indices):
            value = _add_up(inner, _Line(update, lanes, indices), end)
            total = inner.value(SubgroupOperation("add", "reduce", value, update.wide))
            with inner.condition(inner.compare("eq", lanes.lane, inner.constant(0))) as first:
                update.finish(first, total, indices)


@dataclass(frozen=True, slots=True)
class _Line:
    """The elements with one index in each mode but the first."""

    update: Update
    lanes: Lanes
    indices: Sequence[Value]

    def load(self, builder: Builder, begin: Value) -> Value:
        """The element that belongs to the work-item where those of the subgroup begin at a position."""
        place = builder.arith("add", begin, self.lanes.lane)
        return self.update.load(builder, 0, [place, *self.indices])


def _add_up(builder: Builder, line: _Line, end: Value) -> Value:
    """The sum of the elements that fall to a work-item."""
    update, size = line.update, line.lanes.size
    several = builder.arith("mul", size, builder.constant(CHAINS))
    middle = _whole(builder, end, several)
    zeros = [(update.zero(builder), update.wide)] * CHAINS
    with builder.loop(builder.constant(0), middle, several, zeros) as loop:
        begin, sums = loop.variable, []
        for carried in loop.carried:
            sums.append(update.add(loop.body, carried, line.load(loop.body, begin)))
            begin = loop.body.arith("add", begin, size)
        loop.body.give(*sums)
    left, right = (update.add(builder, *loop.results[k : k + 2]) for k in (0, 2))
    return _add_rest(builder, line, (middle, end), update.add(builder, left, right))


def _add_rest(builder: Builder, line: _Line, bounds: tuple[Value, Value], start: Value) -> Value:
    """The same for elements that are fewer: whole subgroups first, then those of a part of one."""
    update, (middle, end) = line.update, bounds
    full = _whole(builder, end, line.lanes.size)
    with builder.loop(middle, full, line.lanes.size, [(start, update.wide)]) as loop:
        loop.body.give(update.add(loop.body, loop.carried[0], line.load(loop.body, loop.variable)))
    found = loop.results[0]
    inside = builder.compare("lt", line.lanes.lane, builder.arith("sub", end, full))
    return choose(
        builder, inside, update.wide, lambda inner: update.add(inner, found, line.load(inner, full)), found
    )


def _whole(builder: Builder, end: Value, step: Value) -> Value:
    """The greatest multiple of a step that is not past an end."""
    return builder.arith("sub", end, builder.arith("rem", end, step))


# --- sums of all elements before ----------------------------------------------------------------------------


def write_cumsum(builder: Builder, update: Update, target: Target) -> None:
    """Each element of the result is the sum of those up to it along a mode."""
    source, mode = update.sources[0], update.blas.mode or 0
    extents = [shared_extent(builder, (update.target, k), (source, k)) for k in range(source.type.order)]
    ends = [as_value(builder, item) for item in extents]
    others = ends[:mode] + ends[mode + 1 :]
    if mode == 0 and not (others and _is_short(extents[0], target)):
        _scan_along(builder, update, ends)
        return
    begins = [builder.constant(0)] * len(others)
    if mode > 0 and not (isinstance(extents[0], int) and extents[0] < ROWS * USUAL_LANES):
        begins[0] = _scan_blocks(builder, update, others, ends[mode])
    with builder.foreach(others, begins) as (inner, variables):
        _scan_across(inner, update, [variables[0]], variables[1:], ends[mode])


def _scan_blocks(builder: Builder, update: Update, others: Sequence[Value], end: Value) -> Value:
    """The scans of all rows that come in whole blocks; where the others begin is given back."""
    blocks = _cut_rows(builder, others[0])
    with builder.parallel() as whole, ExitStack() as loops:
        inner = whole
        variables: list[Value] = []
        for other in reversed(others[1:]):
            loop = loops.enter_context(inner.loop(inner.constant(0), other))
            inner = loop.body
            variables.insert(0, loop.variable)
        inner, rows = loops.enter_context(_each_block(inner, blocks))
        _scan_across(inner, update, rows, variables, end)
    return blocks.full


def _scan_across(
    builder: Builder, update: Update, rows: Sequence[Value], others: Sequence[Value], end: Value
) -> None:
    """Scans of some rows, side by side."""
    mode = update.blas.mode or 0
    zeros = [(update.zero(builder), update.wide)] * len(rows)
    with builder.loop(builder.constant(0), end, carried=zeros) as loop:
        totals = []
        for row, before in zip(rows, loop.carried, strict=True):
            free = [row, *others]
            place = [*free[:mode], loop.variable, *free[mode:]]
            totals.append(update.add(loop.body, before, update.load(loop.body, 0, place)))
            update.finish(loop.body, totals[-1], place)
        loop.body.give(*totals)


def _scan_along(builder: Builder, update: Update, ends: Sequence[Value]) -> None:
    """The lanes of a subgroup run along the mode; what was summed before is carried from one step to the next."""
    with builder.parallel() as whole:
        lanes = find_lanes(whole)
        last = whole.arith("sub", whole.builtin("subgroup_size", I32), whole.constant(1, I32), type_=I32)
        with each_line(whole, ends[1:], lanes) as (inner, indices):
            line, full = _Line(update, lanes, indices), _whole(inner, ends[0], lanes.size)
            zero = update.zero(inner)
            with inner.loop(inner.constant(0), full, lanes.size, [(zero, update.wide)]) as loop:
                found = _scan(loop.body, line, loop.carried[0], line.load(loop.body, loop.variable))
                _finish(loop.body, line, loop.variable, found)
                loop.body.give(loop.body.value(SubgroupBroadcast(found, last, update.wide)))
            inside = inner.compare("lt", lanes.lane, inner.arith("sub", ends[0], full))
            value = choose(inner, inside, update.wide, lambda part: line.load(part, full), zero)
            found = _scan(inner, line, loop.results[0], value)
            with inner.condition(inside) as part:
                _finish(part, line, full, found)


def _scan(builder: Builder, line: _Line, before: Value, value: Value) -> Value:
    kind = line.update.wide
    found = builder.value(SubgroupOperation("add", "inclusive_scan", value, kind))
    return line.update.add(builder, before, found)


def _finish(builder: Builder, line: _Line, begin: Value, value: Value) -> None:
    place = builder.arith("add", begin, line.lanes.lane)
    line.update.finish(builder, value, [place, *line.indices])


# --- transposed copies: square tiles go through cooperative matrices, so that both sides run along ----------


SMALLEST = 16
"""Rows and columns from which on tiles pay."""


def is_tiled(update: Update) -> bool:
    """Whether an axpby transposes a matrix that is worth tiles."""
    if not any(update.blas.transposes) or update.target.type.order != 2:
        return False
    return all(size is None or size >= SMALLEST for size in update.target.type.shape)


def write_transpose(builder: Builder, update: Update, target: Target) -> None:
    """axpby.t: whole tiles, then those that stick out on the right and below, whose accesses are tested."""
    source, result = update.sources[0], update.target
    rows = shared_extent(builder, (result, 0), (source, 1))
    columns = shared_extent(builder, (result, 1), (source, 0))
    size = min(16, max(4, target.vector_bytes // BYTES[update.wide.name]))
    full = [whole_part(builder, extent, size) for extent in (rows, columns)]
    bounds = [as_value(builder, item) for item in (*full, rows, columns)]
    with builder.parallel() as whole:
        tile = _Tile(update, find_lanes(whole), size)
        below, right = bounds[0], bounds[1]
        zero = whole.constant(0)
        _write_tiles(whole, tile, (zero, below), (zero, right))
        if full[1] != columns:
            _write_tiles(whole, replace(tile, checked="both"), (zero, below), (right, bounds[3]))
        if full[0] != rows:
            _write_tiles(whole, replace(tile, checked="both"), (below, bounds[2]), (zero, bounds[3]))


@dataclass(frozen=True, slots=True)
class _Tile:
    """What is done to each tile."""

    update: Update
    lanes: Lanes
    size: int
    checked: str = ""

    def type(self, element: str) -> Coopmatrix:
        """The type of a tile."""
        return Coopmatrix(element, self.size, self.size, "matrix_acc")

    def load(
        self, builder: Builder, array: MemrefOperand, place: tuple[Value, Value], transposed: bool
    ) -> Value:
        """A tile in the type in which is computed."""
        stored, wide = self.type(array.type.element), self.type(self.update.wide.name)
        found = builder.value(CoopLoad(array.value, *place, stored, transposed, self.checked))
        return cast(builder, found, stored, wide)


def _write_tiles(
    builder: Builder, tile: _Tile, rows: tuple[Value, Value], columns: tuple[Value, Value]
) -> None:
    """The tiles between two rows and two columns of C; subgroups share the columns."""
    lanes, size = tile.lanes, builder.constant(tile.size)
    start = builder.arith("add", columns[0], builder.arith("mul", lanes.subgroup, size))
    step = builder.arith("mul", lanes.subgroups, size)
    with builder.loop(start, columns[1], step) as outer, outer.body.loop(*rows, size) as inner:
        _write_tile(inner.body, tile, inner.variable, outer.variable)


def _write_tile(builder: Builder, tile: _Tile, row: Value, column: Value) -> None:
    update, wide = tile.update, tile.type(tile.update.wide.name)
    value = tile.load(builder, update.sources[0], (column, row), True)
    if update.alpha is not None:
        value = builder.value(CoopScale(update.alpha, value, wide))
    flag = ""
    if update.blas.atomic:
        flag = "atomic" if update.overwrite else "atomic_add"
    elif not update.overwrite:
        before = tile.load(builder, update.target, (row, column), False)
        if update.beta is not None:
            before = builder.value(CoopScale(update.beta, before, wide))
        value = builder.arith("add", value, before, type_=wide)
    rounded = cast(builder, value, wide, tile.type(update.target.type.element))
    builder.put(CoopStore(rounded, update.target.value, row, column, tile.checked, flag))


# --- linear algebra on single elements: axpby, hadamard, ger and products for each of C; sum ----------------


NOTHING: Mapping[str, Number] = MappingProxyType({})


def lower_elements(
    builder: Builder,
    blas: Blas,
    types: Mapping[str, Type],
    target: Target,
    constants: Mapping[str, Number] = NOTHING,
) -> None:
    """Write axpby, cumsum, ger, hadamard or sum as loops; `types` and `constants` tell what is known of values."""
    known = RegionValues(types, constants)
    write_updates(builder, blas, known, lambda inner, update: _write(inner, update, target))


def _write(builder: Builder, update: Update, target: Target) -> None:
    match update.blas.function:
        case "sum":
            write_sum(builder, update, target)
        case "cumsum":
            write_cumsum(builder, update, target)
        case "gemm" | "gemv":
            _write_product(builder, update)
        case "axpby" if is_tiled(update) and not target.has_threads:
            write_transpose(builder, update, target)
        case "ger":
            _write_ger(builder, update)
        case _:
            _write_each(builder, _flatten(builder, update))


def _write_product(builder: Builder, update: Update) -> None:
    """An element of C for each work-item, which goes along a row of op(A) and a column of op(B)."""
    left = update.sources[0]
    transposed = (*update.blas.transposes, False)
    inner_mode = 0 if transposed[0] else 1
    rows = shared_extent(builder, (update.target, 0), (left, 1 - inner_mode))
    length = as_value(builder, left.extent(builder, inner_mode))
    ends = [as_value(builder, rows)]
    if update.target.type.order == 2:
        ends.append(as_value(builder, update.target.extent(builder, 1)))
    with builder.foreach(ends) as (inner, indices):
        zero = update.zero(inner)
        with inner.loop(inner.constant(0), length, carried=[(zero, update.wide)]) as loop:
            body, k = loop.body, loop.variable
            first = update.load(body, 0, (k, indices[0]) if transposed[0] else (indices[0], k))
            place = (k, *indices[1:])
            second = update.load(body, 1, place[::-1] if transposed[1] and len(place) == 2 else place)
            body.give(update.add(body, loop.carried[0], body.arith("mul", first, second, type_=update.wide)))
        update.finish(inner, loop.results[0], indices)


# --- one element at a time ----------------------------------------------------------------------------------


def _is_transposed(update: Update) -> bool:
    return any(update.blas.transposes) and update.target.type.order == 2


def _write_each(builder: Builder, update: Update) -> None:
    """Axpby and hadamard: C has as many elements as each operand, at the same place or at the transposed one."""
    order, flip = update.target.type.order, _is_transposed(update)
    ends = [
        shared_extent(builder, *_modes(update, mode, flip)) if order else 1 for mode in range(max(1, order))
    ]
    with builder.foreach([as_value(builder, end) for end in ends]) as (inner, variables):
        indices = variables[:order]
        places = indices[::-1] if flip else indices
        value = update.load(inner, 0, places)
        for other in range(1, len(update.sources)):
            value = inner.arith("mul", value, update.load(inner, other, indices), type_=update.wide)
        update.finish(inner, value, indices)


def _modes(update: Update, mode: int, flip: bool) -> list[tuple[MemrefOperand, int]]:
    """The modes that one variable runs over."""
    source = 1 - mode if flip else mode
    return [(update.target, mode), *((item, source) for item in update.sources)]


def _write_ger(builder: Builder, update: Update) -> None:
    left, right = update.sources
    rows = shared_extent(builder, (update.target, 0), (left, 0))
    columns = shared_extent(builder, (update.target, 1), (right, 0))
    with builder.foreach([as_value(builder, item) for item in (rows, columns)]) as (inner, (i, j)):
        product = inner.arith(
            "mul", update.load(inner, 0, [i]), update.load(inner, 1, [j]), type_=update.wide
        )
        update.finish(inner, product, [i, j])


# --- matrices that lie in one piece -------------------------------------------------------------------------


def _flatten(builder: Builder, update: Update) -> Update:
    """Matrices without gaps as vectors, so that short columns fill vectors too."""
    arrays = (*update.sources, update.target)
    if _is_transposed(update) or not all(_is_dense(item.type) for item in arrays):
        return update
    *sources, target = (_fuse(builder, item) for item in arrays)
    return Update(
        update.blas,
        tuple(sources),
        target,
        update.wide,
        update.alpha,
        update.beta,
        update.overwrite,
    )


def _is_dense(type_: Memref) -> bool:
    if type_.order != 2 or None in type_.shape:
        return False
    (rows, _), (step, column) = type_.shape, type_.stride
    return rows is not None and step is not None and column == rows * step


def _fuse(builder: Builder, array: MemrefOperand) -> MemrefOperand:
    sizes: Sequence[int] = [size for size in array.type.shape if size is not None]
    type_ = Memref(array.type.element, (sizes[0] * sizes[1],), array.type.stride[:1], array.type.local)
    value: Value = builder.value(Fuse(array.value, 0, 1, type_))
    return MemrefOperand(value, type_)


__all__ = ["lower_elements"]
