"""The tile table of a grouped GEMM: one work-group cuts the rows of each expert into tiles of some rows.

Rows lie in the order of their experts. A tile has an expert, a first row and an end, where the rows of the expert end.
Behind the last tile stand tiles without rows.
"""

from __future__ import annotations

from lamella.base.affine import Affine
from lamella.bridge.graph_to_kernels.accesses import Access, Axis
from lamella.bridge.graph_to_kernels.terms import TensorView, stored_type
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import FAULT, Parameters, TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import Key
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import Scalar, Value
from lamella.lang.tensor.nodes.types import BOOL, INDEX, make_memref

TABLE: Key = (f"{PACKED[0]}_tiles", None)
"""The temporary that holds the table."""
EXPERT, FIRST, END = FIELDS = ("expert", "first", "end")
"""What the table tells of a tile."""
NUMBER = Scalar("i32")
SUBGROUPS = 32
"""Subgroups that look at the experts."""


def most_tiles(rows: int, size: int, experts: int) -> int:
    """An upper bound of the tiles of a size: each expert may leave one that is not full."""
    return rows // size + min(rows, experts)


def table_access(tiles: int) -> Access:
    """A table of so many tiles, the fields of each together."""
    axes = Axis(tiles, len(FIELDS), Affine(0)), Axis(len(FIELDS), 1, Affine(0))
    return Access(Value(""), NUMBER.name, axes)


def experts_access(held: TensorView, loop: str) -> Access:
    """The expert of each row."""
    axis = Axis(held.shape[0], held.lies.strides[0], Affine(0, ((loop, 1),)))
    return Access(Value(""), stored_type(held.element), (axis,))


def load_expert(builder: Builder, experts: Access, row: Value, count: int) -> Value:
    """The expert of a row, clamped; one that does not exist is a fault."""
    found = builder.cast(builder.load(experts.memref, [row], Scalar(experts.element)), INDEX)
    inside = builder.arith(
        "max", builder.constant(0), builder.arith("min", found, builder.constant(count - 1))
    )
    tell_fault(builder, builder.compare("ne", inside, found))
    return inside


def tell_fault(builder: Builder, condition: Value) -> None:
    """Set the fault flag on a condition."""
    with builder.condition(condition) as inner:
        inner.store(inner.constant(1, NUMBER), FAULT.value, [inner.constant(0)])


def write_table(experts: TensorView, key: Key, size: int, count: int, tiles: int) -> TileKernel:
    """The kernel that writes a table of so many tiles of a size, for `count` experts."""
    parameters, loop = Parameters(), "row"
    table = parameters.add(TABLE, table_access(tiles))
    named = parameters.add(key, experts_access(experts, loop))
    builder = parameters.builder()
    starts = builder.alloca(make_memref(NUMBER.name, (count + 1,), local=True))
    with builder.foreach([builder.constant(count + 1)]) as (region, (place,)):
        region.store(region.constant(0, NUMBER), starts, [place])
    with builder.foreach([builder.constant(experts.shape[0] + 1)]) as (region, (row,)):
        _store_starts(region, row, named, starts, (experts.shape[0], count))
    with builder.foreach([builder.constant(tiles)]) as (region, (tile,)):
        _store_tile(region, tile, starts, table.memref, (size, count))
    made = parameters.close(builder, 1)
    return TileKernel(made.parameters, made.keys, made.body, 1, group_sizes(SUBGROUPS), faults=True)


def _store_starts(
    builder: Builder, row: Value, experts: Access, starts: Value, counts: tuple[int, int]
) -> None:
    """Store the first row of each expert: those behind that of the row before, up to that of this row, begin here."""
    rows, count = counts
    first, last, zero = builder.constant(-1), builder.constant(count), builder.constant(0)
    places = (
        builder.arith("max", builder.arith("sub", row, builder.constant(1)), zero),
        builder.arith("min", row, builder.constant(rows - 1)),
    )
    loaded = [
        builder.cast(builder.load(experts.memref, [place], Scalar(experts.element)), INDEX)
        for place in places
    ]
    is_first = builder.compare("eq", row, zero)
    is_last = builder.compare("eq", row, builder.constant(rows))
    before = builder.arith("select", is_first, first, loaded[0])
    here = builder.arith("select", is_last, last, loaded[1])
    falls = builder.compare("lt", here, before)
    outside = builder.arith(
        "or",
        builder.compare("lt", loaded[1], zero),
        builder.compare("ge", loaded[1], last),
        type_=BOOL,
    )
    tell_fault(builder, builder.arith("or", falls, outside, type_=BOOL))
    begin, end = (
        builder.arith("min", builder.arith("max", _next(builder, item), zero), _next(builder, last))
        for item in (before, here)
    )
    with builder.loop(begin, end) as each:
        each.body.store(each.body.cast(row, NUMBER), starts, [each.variable])


def _next(builder: Builder, value: Value) -> Value:
    return builder.arith("add", value, builder.constant(1))


def _store_tile(builder: Builder, tile: Value, starts: Value, table: Value, counts: tuple[int, int]) -> None:
    """Find the expert of a tile: the first one where the running count of tiles is more than the tile's number."""
    size, count = counts
    zero = builder.constant(0)
    carried = [(zero, INDEX)] * (1 + len(FIELDS))
    with builder.loop(zero, builder.constant(count), carried=carried) as each:
        body, (base, *fields) = each.body, each.carried
        begin, end = (
            body.cast(body.load(starts, [place], NUMBER), INDEX)
            for place in (each.variable, _next(body, each.variable))
        )
        rest = body.arith("add", body.arith("sub", end, begin), body.constant(size - 1))
        after = body.arith("add", base, body.arith("div", rest, body.constant(size)))
        own = body.arith("and", body.compare("le", base, tile), body.compare("lt", tile, after), type_=BOOL)
        moved = body.arith("mul", body.arith("sub", tile, base), body.constant(size))
        found = (each.variable, body.arith("add", begin, moved), end)
        body.give(
            after,
            *(body.arith("select", own, new, old) for new, old in zip(found, fields, strict=True)),
        )
    for number, value in enumerate(each.results[1:]):
        builder.store(builder.cast(value, NUMBER), table, [builder.constant(number), tile])
