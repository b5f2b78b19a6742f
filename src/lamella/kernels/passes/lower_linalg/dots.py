"""`gemv.t` as dot products: the columns of A lie in one piece, and the lanes of a subgroup run along them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value, whole_part
from lamella.kernels.passes.lower_linalg.operands import Known
from lamella.kernels.passes.lower_linalg.updates import (
    Lanes,
    Update,
    find_lanes,
    shared_extent,
    write_updates,
)
from lamella.lang.tensor.nodes import Blas, If, IndexOrSize, SubgroupOperation, Value

COLUMNS = 8
"""Columns that are multiplied at once, so that each element of b is loaded once for all of them."""
SHORTEST = 16
"""Rows that are worth the sum over lanes."""

Sums: TypeAlias = list[Value]


def are_dots(blas: Blas, known: Known) -> bool:
    """Whether an instruction is one of dot products of vectors that lie in one piece and are not short."""
    if blas.function != "gemv" or not blas.transposes[0]:
        return False
    matrix = known.memref(blas.operands[1])
    length = matrix.shape[0]
    return matrix.stride[0] == 1 and (length is None or length >= SHORTEST)


def write_dots(builder: Builder, blas: Blas, known: Known) -> None:
    """Write dot products of the columns of A and b."""
    write_updates(builder, blas, known, _write)


def _write(builder: Builder, update: Update) -> None:
    matrix, vector = update.sources
    length = shared_extent(builder, (matrix, 0), (vector, 0))
    count = shared_extent(builder, (matrix, 1), (update.target, 0))
    full = whole_part(builder, count, COLUMNS)
    with builder.parallel() as region:
        lanes = find_lanes(region)
        if full != 0:
            _write_columns(region, update, (lanes, length), (0, full, COLUMNS))
        if full != count:
            _write_columns(region, update, (lanes, length), (full, count, 1))


def _write_columns(
    builder: Builder,
    update: Update,
    inside: tuple[Lanes, IndexOrSize],
    strip: tuple[IndexOrSize, IndexOrSize, int],
) -> None:
    """Some columns at a time; subgroups take them in turn."""
    (lanes, length), (begin, end, width) = inside, strip
    size = builder.constant(width)
    own = builder.arith("mul", lanes.subgroup, size)
    first = builder.arith("add", as_value(builder, begin), own)
    step = builder.arith("mul", lanes.subgroups, size)
    with builder.loop(first, as_value(builder, end), step) as loop:
        body = loop.body
        numbers = [body.constant(number) for number in range(width)]
        columns = [body.arith("add", loop.variable, number) for number in numbers]
        sums = _sum(body, update, lanes, (as_value(body, length), columns))
        mine = body.compare("eq", lanes.lane, body.constant(0))
        totals = [body.value(SubgroupOperation("add", "reduce", item, update.wide)) for item in sums]
        with body.condition(mine) as inner:
            for total, column in zip(totals, columns, strict=True):
                update.finish(inner, total, [column])


def _sum(builder: Builder, update: Update, lanes: Lanes, inside: tuple[Value, Sequence[Value]]) -> Sums:
    """What one lane adds up of each column: all steps in which every lane has a row, and one more."""
    length, columns = inside
    left = builder.arith("rem", length, lanes.size)
    main = builder.arith("sub", length, left)
    start = [(update.zero(builder), update.wide)] * len(columns)
    with builder.loop(builder.constant(0), main, lanes.size, start) as loop:
        row = loop.body.arith("add", loop.variable, lanes.lane)
        loop.body.give(*_add(loop.body, update, (row, columns), loop.carried))
    inside_last = builder.compare("lt", lanes.lane, left)

    def add_last(inner: Builder) -> Sums:
        return _add(inner, update, (inner.arith("add", main, lanes.lane), columns), loop.results)

    return _choose(builder, update, inside_last, add_last, loop.results)


def _add(builder: Builder, update: Update, place: tuple[Value, Sequence[Value]], before: Sums) -> Sums:
    row, columns = place
    factor = update.load(builder, 1, [row])
    sums = []
    for column, value in zip(columns, before, strict=True):
        product = builder.arith("mul", update.load(builder, 0, [row, column]), factor, type_=update.wide)
        sums.append(update.add(builder, value, product))
    return sums


def _choose(
    builder: Builder, update: Update, condition: Value, then: Callable[[Builder], Sums], otherwise: Sums
) -> Sums:
    """Values that are computed only where a condition holds."""
    first, second = builder.inner(), builder.inner()
    first.give(*then(first))
    second.give(*otherwise)
    results = [builder.names.new() for _ in otherwise]
    node = If(condition, first.region(), second.region(), (update.wide,) * len(otherwise))
    builder.put(node, results)
    return results
