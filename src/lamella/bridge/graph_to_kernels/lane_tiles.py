"""Sums of products over lanes where work-items are threads: each has a tile of rows and columns of its own.

Registers hold the window's weights, and what several sums of a tile read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.item_tiles import MOST_TAPS, ItemTiles, TileElements
from lamella.bridge.graph_to_kernels.lane_products import LaneProduct, LaneWriter, write_lane_pack
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import Tensors
from lamella.kernels.build import Builder
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Value


def write_lane_tiles(plan: LaneProduct, tensors: Tensors, target: Target) -> list[TileKernel]:
    """The kernels of a sum over lanes for threads, in the order in which they run."""
    written = _written(plan)
    kept = tuple(name for name in (*plan.sums, *plan.unrolled) if name not in written)
    plan = replace(plan, sums=kept, unrolled=written)
    taps = {name: plan.extents[name] for name in written}
    tiles = ItemTiles(plan.extents, plan.lane, plan.columns).fit(taps, plan.found.factors, target)
    packed = [] if plan.packed is None else [write_lane_pack(plan, PACKED)]
    return [*packed, LaneTileWriter(plan, tensors, tiles=tiles).write()]


def _written(plan: LaneProduct) -> tuple[str, ...]:
    """The sums that are written out: windows first, whose steps share what they load."""
    names, columns = (*plan.sums, *plan.unrolled), plan.columns[-2:]
    axes = [axis for access in plan.found.factors for name in columns if (axis := access.axis(name))]
    windows = [name for name in names if any(axis.index.coefficient(name) for axis in axes)]
    chosen: list[str] = []
    for name in (*reversed(windows), *(item for item in reversed(names) if item not in windows)):
        if prod(plan.extents[item] for item in (*chosen, name)) > MOST_TAPS:
            break
        chosen.append(name)
    return tuple(chosen)


@dataclass(slots=True)
class LaneTileWriter(LaneWriter):
    """The kernel of a sum over lanes for threads while it is written."""

    tiles: ItemTiles | None = None

    @property
    def cut(self) -> ItemTiles:
        """The tiles."""
        return self.tiles or ItemTiles(self.plan.extents, self.plan.lane, self.plan.columns)

    @property
    def tiled(self) -> tuple[str, ...]:
        """The loops of the output along which a tile may have several steps."""
        return self.cut.tiled

    def write(self) -> TileKernel:
        """Write it."""
        self.bind()
        builder = self.parameters.builder()
        with builder.parallel() as region:
            self.write_tile(region, self.cut.begin(region), self.cut.sums)
        kernel = self.parameters.close(builder, self.cut.groups)
        return replace(kernel, attributes=group_sizes(1))

    def _shifted(self, builder: Builder, values: dict[str, Value], number: int) -> dict[str, Value]:
        return self.cut.shifted(builder, values, number)

    def _products(self, builder: Builder, values: dict[str, Value], start: Sequence[Value]) -> list[Value]:
        """The products of a tile for one step of the loops; what several of them need is loaded once."""
        plan, found = self.plan, list(start)
        values = {**values, **{name: builder.constant(0) for name in plan.unrolled}}
        sides = [TileElements(builder, access, values, plan.real) for access in self.factors]
        for taps in product(*(range(plan.extents[name]) for name in plan.unrolled)):
            inside = dict(zip(plan.unrolled, taps, strict=True))
            for number, total in enumerate(found):
                steps = {**self.cut.steps(number), **inside}
                both = builder.arith("mul", *(side.load(steps) for side in sides), type_=plan.real)
                found[number] = builder.arith("add", total, both, type_=plan.real)
        return found
