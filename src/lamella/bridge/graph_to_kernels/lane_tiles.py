"""Sums of products over lanes where work-items are threads: each of them has a tile of rows and columns of its own.

A thread hides what it waits for by the others, so there are as many tiles as a GPU has work for. Neighbouring threads
have neighbouring lanes, then the same lanes of the tile below, which reads most of what that one reads. Windows are
written out, so that all loads of a tile are under way at once and registers hold what several of its sums need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from math import prod

from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.lane_products import (
    LANE,
    LaneProduct,
    LaneWriter,
    load_real,
    write_lane_pack,
)
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED, split_number
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import Tensors
from lamella.kernels.build import Builder
from lamella.kernels.fragments import WARP
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Scalar, Value
from lamella.lang.tensor.nodes.types import INDEX

MOST_TAPS = 128
"""Products of a sum that are written without a loop."""
MOST_PRODUCTS = 400
"""The same of all sums of a tile."""
MOST_SUMS = 16
"""Sums of a tile."""
MOST_LOADED = 144
"""Elements that a tile loads: registers hold them."""
WARPS = 8
"""Subgroups that a multiprocessor should have, so that it always has one that waits for nothing."""
PRODUCTS_OF_A_LOAD, START, END = 4, 32, 8
"""Products that take as long as a load; the loads that finding a tile is worth, and what is made of one of its sums."""


@dataclass(frozen=True, slots=True)
class LaneTiles:
    """A sum of products over lanes, cut into tiles of work-items."""

    lanes: LaneProduct
    sizes: tuple[int, int]
    """Steps of a tile along the last two loops of the output beside the lanes; 1 where there is none."""

    @property
    def tile(self) -> dict[str, int]:
        """Steps of a tile along each loop of the output that has several."""
        return _tile(self.lanes, self.sizes)

    @property
    def counts(self) -> dict[str, int]:
        """How often tiles are begun along each loop of the output, the lanes last and the rows before."""
        columns = self.lanes.columns
        order = (*columns[:-2], *reversed(columns[-2:]), self.lanes.lane)
        return {name: -(-self.lanes.extents[name] // self.tile.get(name, 1)) for name in order}

    @property
    def items(self) -> int:
        """Work-items that have a tile."""
        return prod(self.counts.values())


def write_lane_tiles(plan: LaneProduct, tensors: Tensors, target: Target) -> list[TileKernel]:
    """The kernels of a sum over lanes for threads, in the order in which they run."""
    tiles = cut_lanes(plan, target)
    packed = [] if plan.packed is None else [write_lane_pack(tiles.lanes, PACKED)]
    return [*packed, LaneTileWriter(tiles.lanes, tensors, tiles=tiles).write()]


def cut_lanes(plan: LaneProduct, target: Target) -> LaneTiles:
    """The tiles with which a GPU is done first."""
    written = _written(plan)
    kept = tuple(name for name in (*plan.sums, *plan.unrolled) if name not in written)
    plan = replace(plan, sums=kept, unrolled=written)
    least = WARPS * max(1, target.multiprocessors)

    def cost(sizes: tuple[int, int]) -> int:
        return _work(plan, sizes) * max(-(-LaneTiles(plan, sizes).items // WARP), least)

    return LaneTiles(plan, min(_sizes(plan), key=cost))


def _tile(plan: LaneProduct, sizes: tuple[int, int]) -> dict[str, int]:
    # A product with one loop beside the lanes has columns and no rows.
    return dict(zip(reversed(plan.columns), reversed(sizes), strict=False))


def _written(plan: LaneProduct) -> tuple[str, ...]:
    """The sums that are written out: windows first, whose steps share what they load."""
    names, columns = (*plan.sums, *plan.unrolled), plan.columns[-2:]
    axes = [axis for access in plan.found.factors for name in columns if (axis := access.axis(name))]
    windows = [name for name in names if any(axis.index.coefficient(name) for axis in axes)]
    chosen: list[str] = []
    for name in (*reversed(windows), *(item for item in reversed(names) if item not in windows)):
        if _count(plan, (*chosen, name)) > MOST_TAPS:
            break
        chosen.append(name)
    return tuple(chosen)


def _count(plan: LaneProduct, names: Sequence[str]) -> int:
    return prod(plan.extents[name] for name in names)


def _sizes(plan: LaneProduct) -> Iterator[tuple[int, int]]:
    """The sizes that a tile may have, the smallest first."""
    extents = [1, 1, *(plan.extents[name] for name in plan.columns[-2:])][-2:]
    rows, columns = (range(1, 1 + min(item, MOST_SUMS)) for item in extents)
    for sizes in product(rows, columns):
        products = prod(sizes) * _count(plan, plan.unrolled)
        fits = products <= MOST_PRODUCTS and _loaded(plan, sizes) <= MOST_LOADED
        if sizes == (1, 1) or (fits and prod(sizes) <= MOST_SUMS):
            yield sizes


def _loaded(plan: LaneProduct, sizes: tuple[int, int]) -> int:
    """Elements of both factors that a tile loads."""
    inside = {**_tile(plan, sizes), **{name: plan.extents[name] for name in plan.unrolled}}
    return sum(access.reach(inside) for access in plan.found.factors)


def _work(plan: LaneProduct, sizes: tuple[int, int]) -> int:
    """What a tile takes, in loads."""
    products = prod(sizes) * _count(plan, plan.unrolled)
    return START + _loaded(plan, sizes) + products // PRODUCTS_OF_A_LOAD + END * prod(sizes)


@dataclass(slots=True)
class LaneTileWriter(LaneWriter):
    """The kernel of a sum over lanes for threads while it is written."""

    tiles: LaneTiles | None = None

    @property
    def tiled(self) -> tuple[str, ...]:
        """The loops of the output along which a tile may have several steps."""
        return self.plan.columns[-2:]

    def write(self) -> TileKernel:
        """Write it."""
        self.bind()
        builder, counts = self.parameters.builder(), self.cut.counts
        with builder.parallel() as region:
            values = split_number(region, list(counts), counts, lambda: self._item(region))
            for name, size in self.cut.tile.items():
                if size > 1:
                    values[name] = self._begin(region, name, size, values[name])
            self.write_tile(region, values, prod(self.cut.sizes))
        kernel = self.parameters.close(builder, -(-self.cut.items // WARP))
        return replace(kernel, attributes=group_sizes(1))

    @property
    def cut(self) -> LaneTiles:
        """The tiles."""
        return self.tiles or LaneTiles(self.plan, (1, 1))

    def _item(self, builder: Builder) -> Value:
        """The number of a work-item; those behind the last one do what that does."""
        first = builder.arith("mul", builder.builtin("group_id", INDEX), builder.constant(WARP))
        own = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        number, items = builder.arith("add", first, own), self.cut.items
        if items % WARP:
            number = builder.arith("min", number, builder.constant(items - 1))
        return number

    def _begin(self, builder: Builder, name: str, size: int, number: Value) -> Value:
        """The first step of a tile; the last one begins early enough to be whole, and computes some sums again."""
        first, extent = builder.arith("mul", number, builder.constant(size)), self.plan.extents[name]
        return builder.arith("min", first, builder.constant(extent - size)) if extent % size else first

    def _steps(self, number: int) -> dict[str, int]:
        """The steps from the beginning of a tile to one of its sums."""
        return _tile(self.plan, divmod(number, self.cut.sizes[1]))

    def _shifted(self, builder: Builder, values: dict[str, Value], number: int) -> dict[str, Value]:
        moved = {
            name: builder.arith("add", values[name], builder.constant(step))
            for name, step in self._steps(number).items()
            if step
        }
        return {**values, **moved}

    def _products(self, builder: Builder, values: dict[str, Value], start: Sequence[Value]) -> list[Value]:
        """The products of a tile for one step of the loops; what several of them need is loaded once."""
        plan, found = self.plan, list(start)
        values = {**values, **{name: builder.constant(0) for name in plan.unrolled}}
        sides = [_Loaded(builder, access, values, plan.real) for access in self.factors]
        for taps in product(*(range(plan.extents[name]) for name in plan.unrolled)):
            inside = dict(zip(plan.unrolled, taps, strict=True))
            for number, total in enumerate(found):
                steps = {**self._steps(number), **inside}
                both = builder.arith("mul", *(side.load(steps) for side in sides), type_=plan.real)
                found[number] = builder.arith("add", total, both, type_=plan.real)
        return found


@dataclass(slots=True)
class _Loaded:
    """The elements of a factor that a tile has loaded, and their indices, which many of them share."""

    builder: Builder
    access: Access
    values: Mapping[str, Value]
    """Where the loops stand at the first one."""
    real: Scalar
    elements: dict[tuple[int, ...], Value] = field(default_factory=dict)
    indices: dict[tuple[int, int], Value] = field(default_factory=dict)

    def load(self, steps: Mapping[str, int]) -> Value:
        """The element some steps behind the first one."""
        shifts = tuple(
            sum(axis.index.coefficient(name) * step for name, step in steps.items())
            for axis in reversed(self.access.axes)
        )
        if shifts not in self.elements:
            indices = [self._index(mode, shift) for mode, shift in enumerate(shifts)]
            self.elements[shifts] = load_real(self.builder, self.access, indices, self.real)
        return self.elements[shifts]

    def _index(self, mode: int, shift: int) -> Value:
        if (mode, shift) not in self.indices:
            axis = self.access.axes[-1 - mode]
            self.indices[mode, shift] = (
                self.builder.arith("add", self._index(mode, 0), self.builder.constant(shift))
                if shift
                else axis.value(self.builder, self.values)
            )
        return self.indices[mode, shift]
