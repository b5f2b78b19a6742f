"""Transposed copies: square tiles go through cooperative matrices, so that both sides run along memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value, whole_part
from lamella.kernels.passes.lower_linalg.scaling import cast
from lamella.kernels.passes.lower_linalg.updates import Array, Lanes, Update, find_lanes, shared_extent
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import CoopLoad, Coopmatrix, CoopScale, CoopStore, Value

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

    def load(self, builder: Builder, array: Array, place: tuple[Value, Value], transposed: bool) -> Value:
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
