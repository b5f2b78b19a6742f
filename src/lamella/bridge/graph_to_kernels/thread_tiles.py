"""Register tiles of threads (thread coarsening): each thread of a GPU computes some neighbouring outputs.

Latency is hidden by other threads, so there are as many tiles as a GPU has work for. Neighbouring threads have
neighbouring lanes, then the same lanes of the tile below, which reads most of what that one reads. What a tile reads is
loaded once, and its loops are unrolled, so that all loads are in flight at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import product
from math import prod

from lamella.base.affine import Affine
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.delinearize import delinearize
from lamella.kernels.build import Builder
from lamella.kernels.fragments import WARP
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Scalar, Value
from lamella.lang.tensor.nodes.types import BOOL, INDEX

MOST_TAPS = 128
"""The most steps of a sum that are unrolled."""
MOST_STEPS = 400
"""The same of all sums of a tile."""
MOST_SUMS = 16
"""Sums of a tile."""
MOST_LOADED = 144
"""Elements that a tile loads: registers hold them."""
WARPS = 16
"""Occupancy: warps that a multiprocessor should have, so that one of them can always issue."""
STEPS_OF_A_LOAD, START, END = 4, 32, 8
"""Steps that take as long as a load; the loads that finding a tile is worth, and what is made of one of its sums."""
LANE = Scalar("i32")


@dataclass(frozen=True, slots=True)
class ThreadTiles:
    """An output cut into register tiles of threads."""

    extents: Mapping[str, int]
    lane: str
    """The loop that lies closest."""
    columns: tuple[str, ...]
    """The other loops of the output, the closest last."""
    sizes: tuple[int, int] = (1, 1)
    """Steps of a tile along the last two of them; 1 where there is none."""

    @property
    def tiled(self) -> tuple[str, ...]:
        """The loops along which a tile may have several steps."""
        return self.columns[-2:]

    @property
    def sums(self) -> int:
        """Elements of a tile."""
        return prod(self.sizes)

    @property
    def counts(self) -> dict[str, int]:
        """How often tiles are begun along each loop, the lanes last and the rows before."""
        sizes = self._along(self.sizes)
        order = (*self.columns[:-2], *reversed(self.tiled), self.lane)
        return {name: -(-self.extents[name] // sizes.get(name, 1)) for name in order}

    @property
    def items(self) -> int:
        """Work-items that have a tile."""
        return prod(self.counts.values())

    @property
    def groups(self) -> int:
        """Work-groups of one subgroup."""
        return -(-self.items // WARP)

    @property
    def beginnings(self) -> dict[str, int]:
        """The last step of each loop at which a tile begins."""
        sizes = self._along(self.sizes)
        return {name: self.extents[name] - sizes.get(name, 1) for name in (*self.columns, self.lane)}

    def steps(self, number: int) -> dict[str, int]:
        """The steps from the beginning of a tile to one of its elements."""
        return self._along(divmod(number, self.sizes[1]))

    def _along(self, pair: tuple[int, int]) -> dict[str, int]:
        # An output with one loop beside the lanes has columns and no rows.
        return dict(zip(reversed(self.tiled), reversed(pair), strict=False))

    def begin(self, builder: Builder) -> dict[str, Value]:
        """The loop indices of the first element of a thread's tile.

        The last tile along a loop begins early enough to be whole, and computes some elements again.
        """
        counts = self.counts
        values = delinearize(builder, list(counts), counts, lambda: self._item(builder))
        for name, size in self._along(self.sizes).items():
            if size > 1:
                first = builder.arith("mul", values[name], builder.constant(size))
                if self.extents[name] % size:
                    first = builder.arith("min", first, builder.constant(self.extents[name] - size))
                values[name] = first
        return values

    def _item(self, builder: Builder) -> Value:
        """The number of a work-item; those behind the last one do what that does."""
        first = builder.arith("mul", builder.builtin("group_id", INDEX), builder.constant(WARP))
        own = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        number = builder.arith("add", first, own)
        if self.items % WARP:
            number = builder.arith("min", number, builder.constant(self.items - 1))
        return number

    def shifted(self, builder: Builder, values: Mapping[str, Value], number: int) -> dict[str, Value]:
        """The loop indices of an element of a tile."""
        moved = {
            name: builder.arith("add", values[name], builder.constant(step))
            for name, step in self.steps(number).items()
            if step
        }
        return {**values, **moved}

    def fit(self, taps: Mapping[str, int], accesses: Sequence[Access], target: Target) -> ThreadTiles:
        """The tile size with which a GPU is done first, for sums of so many steps, which read by some accesses."""
        least = WARPS * max(1, target.multiprocessors)

        def loaded(tiles: ThreadTiles) -> int:
            inside = {**self._along(tiles.sizes), **taps}
            return sum(access.reach(inside) for access in accesses)

        def fits(tiles: ThreadTiles) -> bool:
            steps = tiles.sums * prod(taps.values())
            few = tiles.sums <= MOST_SUMS and steps <= MOST_STEPS and loaded(tiles) <= MOST_LOADED
            return few or tiles.sums == 1

        def cost(tiles: ThreadTiles) -> int:
            steps = tiles.sums * prod(taps.values()) // STEPS_OF_A_LOAD
            return (START + loaded(tiles) + steps + END * tiles.sums) * max(tiles.groups, least)

        return min(filter(fits, self._others()), key=cost)

    def _others(self) -> Iterator[ThreadTiles]:
        """The same output in other tiles, small ones first."""
        extents = [1, 1, *(self.extents[name] for name in self.tiled)][-2:]
        for rows, columns in product(*(range(1, 1 + min(item, MOST_SUMS)) for item in extents)):
            yield ThreadTiles(self.extents, self.lane, self.columns, (rows, columns))


@dataclass(frozen=True, slots=True)
class Border:
    """The range of a mode, to which indices are clamped, and where indices may be."""

    first: int
    last: int
    reach: Mapping[str, tuple[int, int]]
    """The least and the greatest number of each loop at the beginning of a tile."""


@dataclass(slots=True)
class TileElements:
    """The loaded elements of a tile, and their indices, which many of them share."""

    builder: Builder
    access: Access
    values: Mapping[str, Value]
    """Where the loops stand at the first one."""
    real: Scalar
    borders: Sequence[Border] = ()
    """One for each axis, where indices may leave the tensor."""
    outside: Value | None = None
    """What stands for an element outside."""
    elements: dict[tuple[int, ...], Value] = field(default_factory=dict)
    indices: dict[tuple[int, int], Value] = field(default_factory=dict)
    tests: dict[tuple[int, int], list[Value]] = field(default_factory=dict)

    def load(self, steps: Mapping[str, int]) -> Value:
        """The element some steps behind the first one."""
        shifts = tuple(
            sum(axis.index.coefficient(name) * step for name, step in steps.items())
            for axis in reversed(self.access.axes)
        )
        if shifts not in self.elements:
            places = list(enumerate(shifts))
            indices = [self._index(mode, shift) for mode, shift in places]
            found = load_real(self.builder, self.access, indices, self.real)
            tests = [test for place in places for test in self.tests.get(place, ())]
            self.elements[shifts] = self._inside(found, tests)
        return self.elements[shifts]

    def _inside(self, found: Value, tests: Sequence[Value]) -> Value:
        if not tests or self.outside is None:
            return found
        whole = tests[0]
        for test in tests[1:]:
            whole = self.builder.arith("and", whole, test, type_=BOOL)
        return self.builder.arith("select", whole, found, self.outside, type_=self.real)

    def _index(self, mode: int, shift: int) -> Value:
        if (mode, shift) not in self.indices:
            self.indices[mode, shift] = self._within(mode, shift, self._place(mode, shift))
        return self.indices[mode, shift]

    def _place(self, mode: int, shift: int) -> Value:
        """An index as it is, be it outside."""
        key = -1 - mode, shift
        if key not in self.indices:
            axis = self.access.axes[-1 - mode]
            self.indices[key] = (
                self.builder.arith("add", self._place(mode, 0), self.builder.constant(shift))
                if shift
                else axis.value(self.builder, self.values)
            )
        return self.indices[key]

    def _within(self, mode: int, shift: int, index: Value) -> Value:
        """An index, that of the border where it is beyond, with what tells that it is not."""
        if not self.borders:
            return index
        border, form = self.borders[-1 - mode], self.access.axes[-1 - mode].index + Affine(shift)
        low, high = form.bounds({name: border.reach[name] for name in form.symbols})
        tests, last = list[Value](), index
        if low < border.first:
            first = self.builder.constant(border.first)
            tests.append(self.builder.compare("ge", index, first))
            last = self.builder.arith("max", last, first)
        if high > border.last:
            end = self.builder.constant(border.last)
            tests.append(self.builder.compare("le", index, end))
            last = self.builder.arith("min", last, end)
        self.tests[mode, shift] = tests
        return last


def load_real(builder: Builder, access: Access, indices: Sequence[Value], real: Scalar) -> Value:
    """An element in the type of the sums."""
    value = builder.load(access.memref, indices, Scalar(access.element))
    return value if access.element == real.name else builder.cast(value, real)
