"""Transposes through shared memory: pointwise maps on a GPU that read across the order in which they write.

Loads and stores are coalesced along different dimensions. So a work-group has a tile: its work-items load it along the
input, meet at a barrier, and go over it along the output. Rows of a tile are padded to an odd number of elements, so
that neither direction has bank conflicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import prod

from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.flat import FlatKernel, FlatStage, place_of
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.register_transpose import LEAST_STEPS, TileTerms, form_value
from lamella.bridge.graph_to_kernels.terms import TensorView, stored_type
from lamella.kernels.build import Builder
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Barrier, Memref, Scalar, Value
from lamella.lang.tensor.nodes.types import INDEX, make_memref
from lamella.ops.formula import Element

WARP = 32
ITEMS = 8 * WARP
"""Work-items of a work-group."""
LONGEST, SIDE, AREA = 64, 32, 1 << 10
"""Steps up to which a loop is one side of a tile, those of a side otherwise, and what a tile should have."""
MOST_LOCAL = 40 << 10
"""Bytes of local memory that tiles may take."""
LANE = Scalar("i32")
Key = tuple[str, Form]


@dataclass(frozen=True, slots=True)
class TiledLoop:
    """A loop in tiles: its extent, and how many of its steps a tile has."""

    loop: str
    extent: int
    size: int

    @property
    def count(self) -> int:
        """Tiles along the loop."""
        return -(-self.extent // self.size)

    @property
    def is_whole(self) -> bool:
        """Whether no tile goes beyond the end."""
        return self.extent % self.size == 0


@dataclass(frozen=True, slots=True)
class SharedTransposePlan:
    """Maps over tiles: the loop along the outputs, the one along the inputs, and the others."""

    kernel: FlatKernel
    along: TiledLoop
    across: TiledLoop
    others: tuple[str, ...]
    transposed: tuple[Key, ...]
    """The accesses that go through tiles."""

    @property
    def groups(self) -> int:
        """The number of work-groups."""
        return self.along.count * self.across.count * prod(self.kernel.extents[name] for name in self.others)


def plan_shared_transpose(
    kernel: FlatKernel, tensors: Mapping[str, GroupTensor]
) -> SharedTransposePlan | None:
    """The tiles of maps that read across their order; None where they do not, or have loops of their own."""
    first, extents = kernel.stages[0], kernel.extents
    steps = [extents[name] for name in first.loops]
    if len(steps) < 2 or any(map(is_open, steps)) or prod(steps) < LEAST_STEPS:
        return None
    if any(item.is_reduction or set(item.loops) != set(first.loops) for item in kernel.stages):
        return None
    along = next((name for name in first.loops if first.place.coefficient(name) == 1), None)
    reads = _reads(kernel)
    if along is None or reads is None or any(item.place.coefficient(along) != 1 for item in kernel.stages):
        return None
    far = {
        key: name
        for key in reads
        if abs(key[1].coefficient(along)) > 1 and (name := _closest(key[1], extents))
    }
    if not far:
        return None
    across = Counter(far.values()).most_common(1)[0][0]
    sides = _sides((along, extents[along]), (across, extents[across]))
    others = tuple(name for name in first.loops if name not in (along, across))
    transposed = tuple(_fitting([key for key, name in far.items() if name == across], sides, tensors))
    return SharedTransposePlan(kernel, *sides, others, transposed) if transposed else None


def _reads(kernel: FlatKernel) -> list[Key] | None:
    """What maps read of memory; None where one reads what another makes at another place."""
    made: dict[str, Form] = {}
    found: dict[Key, None] = {}
    for stage in kernel.stages:
        for item in stage.reads():
            place = place_of(item, kernel.table)
            if made.get(item.tensor, place) != place:
                return None
            if item.tensor not in made:
                found[item.tensor, place] = None
        made[stage.tensor] = stage.place
    return None if any(tensor in made for tensor, _ in found) else list(found)


def _closest(form: Form, extents: Mapping[str, int]) -> str | None:
    """The longest loop along which places are contiguous."""
    names = [name for name, factor in form.terms if abs(factor) == 1 and extents[name] > 1]
    return max(names, key=lambda name: extents[name], default=None)


def _sides(along: tuple[str, int], across: tuple[str, int]) -> tuple[TiledLoop, TiledLoop]:
    """The sides of a tile: a short one leaves more to the other."""
    first, second = (extent if extent <= LONGEST else SIDE for _, extent in (along, across))
    if first * second < AREA:
        first, second = _wider(along[1], first, second), _wider(across[1], second, first)
    return TiledLoop(*along, first), TiledLoop(*across, second)


def _wider(extent: int, size: int, other: int) -> int:
    """A side as long as the other one allows, in whole subgroups where it does not end."""
    return min(extent, ITEMS, max(size, AREA // other // WARP * WARP))


def _fitting(
    keys: list[Key], sides: tuple[TiledLoop, TiledLoop], tensors: Mapping[str, GroupTensor]
) -> Iterator[Key]:
    """As many elements as local memory holds."""
    room, used = prod(_room(*sides)), 0
    for key in keys:
        used += room * BYTES[stored_type(tensors[key[0]].element)]
        if used > MOST_LOCAL:
            return
        yield key


def _room(along: TiledLoop, across: TiledLoop) -> tuple[int, int]:
    """The modes of a tile in local memory; what work-items load at once may be more than the tile has."""
    return _passes(across.size, along.size) * _rows(across.size) | 1, across.size


def _rows(size: int) -> int:
    """Rows of so many elements that work-items take at once."""
    return ITEMS // size


def _passes(size: int, rows: int) -> int:
    """How often they do that, for so many rows."""
    return -(-rows // _rows(size))


class SharedTransposeWriter:
    """Writes the body of a kernel over tiles."""

    def __init__(
        self,
        plan: SharedTransposePlan,
        held: Mapping[str, GroupTensor],
        outputs: frozenset[str],
        builder: Builder,
        real: Scalar,
    ) -> None:
        self.plan = plan
        self.held = held
        self.outputs = outputs
        self.builder = builder
        self.real = real
        self.places: dict[str, Value] = {}
        """Where the work-group's tile begins."""

    def write(self, views: Mapping[tuple[str, int | None], TensorView]) -> None:
        """Write everything."""
        plan, here = self.plan, self.builder
        tiles = {key: here.alloca(self._memref(key)) for key in plan.transposed}
        self._find_tile_origin()
        with here.parallel() as body:
            first = body.arith(
                "mul", body.builtin("subgroup_id", LANE), body.constant(WARP, LANE), type_=LANE
            )
            thread = body.arith("add", first, body.builtin("subgroup_local_id", LANE), type_=LANE)
            with self._shared(body, thread, plan.across.size) as (inner, across, row):
                self._stage_tile(inner, (across, row), views, tiles)
            body.put(Barrier(on_local=True))
            with self._shared(body, thread, plan.along.size) as (inner, along, row):
                for step in range(_passes(plan.along.size, plan.across.size)):
                    self._store(inner, (along, self._moved(inner, row, step, plan.along)), views, tiles)

    def _memref(self, key: Key) -> Memref:
        element = stored_type(self.held[key[0]].element)
        return make_memref(element, _room(self.plan.along, self.plan.across), local=True)

    def _find_tile_origin(self) -> None:
        """The tile of a work-group; neighbours go on along the output."""
        plan, here = self.plan, self.builder
        sides = plan.across, plan.along
        counts = {**plan.kernel.extents, **{side.loop: side.count for side in sides}}
        self.places = delinearize_group(here, [*plan.others, *(side.loop for side in sides)], counts)
        for side in sides:
            if side.count > 1:
                first = here.arith("mul", self.places[side.loop], here.constant(side.size))
                self.places[side.loop] = first

    @contextmanager
    def _shared(self, body: Builder, thread: Value, size: int) -> Iterator[tuple[Builder, Value, Value]]:
        """Work-items side by side along a side of the tile: the place there, and the row across it."""
        used = _rows(size) * size
        tests = [] if used == ITEMS else [body.compare("lt", thread, body.constant(used, LANE))]
        with _where(body, tests) as inner:
            length = inner.constant(size, LANE)
            column, row = (inner.arith(word, thread, length, type_=LANE) for word in ("rem", "div"))
            if tests:  # which says the same, but where nobody looks who asks for the largest row
                row = inner.arith("min", row, inner.constant(_rows(size) - 1, LANE), type_=LANE)
            yield inner, inner.cast(column, INDEX), inner.cast(row, INDEX)

    def _moved(self, builder: Builder, row: Value, step: int, side: TiledLoop) -> Value:
        """The row of a work-item in a later step."""
        return builder.arith("add", row, builder.constant(step * _rows(side.size))) if step else row

    def _stage_tile(
        self,
        builder: Builder,
        place: tuple[Value, Value],
        views: Mapping[tuple[str, int | None], TensorView],
        tiles: Mapping[Key, Value],
    ) -> None:
        """Load a tile along the input into local memory: all loads of a work-item are in flight first."""
        plan = self.plan
        count = _passes(plan.across.size, plan.along.size)
        rows = [self._moved(builder, place[1], step, plan.across) for step in range(count)]
        reaches = count * _rows(plan.across.size)
        corner = self.places[plan.along.loop]
        index = builder.arith("add", self.places[plan.across.loop], place[0])
        across = self._inside(builder, plan.across, index, plan.across.size)
        along = [
            self._inside(builder, plan.along, builder.arith("add", corner, row), reaches) for row in rows
        ]
        for key, tile in tiles.items():
            view = views[key[0], None]
            found = []
            for value in along:
                values = {**self.places, plan.across.loop: across, plan.along.loop: value}
                at = form_value(builder, key[1], values)
                found.append(builder.load(view.memref, [at], Scalar(stored_type(view.element))))
            for row, value in zip(rows, found, strict=True):
                builder.store(value, tile, [row, place[0]])

    @staticmethod
    def _inside(builder: Builder, side: TiledLoop, index: Value, reach: int) -> Value:
        """An index, the last one for those beyond the end; work-items reach so far in a tile."""
        if side.is_whole and reach <= side.size:
            return index
        return builder.arith("min", index, builder.constant(side.extent - 1))

    def _store(
        self,
        builder: Builder,
        place: tuple[Value, Value],
        views: Mapping[tuple[str, int | None], TensorView],
        tiles: Mapping[Key, Value],
    ) -> None:
        """Write an element of each output."""
        plan = self.plan
        at, tests = dict(self.places), list[Value]()
        reaches = plan.along.size, _passes(plan.along.size, plan.across.size) * _rows(plan.along.size)
        for side, value, reach in zip((plan.along, plan.across), place, reaches, strict=True):
            index = builder.arith("add", self.places[side.loop], value)
            at[side.loop] = self._inside(builder, side, index, reach)
            if reach > side.size:
                tests.append(builder.compare("lt", value, builder.constant(side.size)))
            if not side.is_whole:
                tests.append(builder.compare("lt", index, builder.constant(side.extent)))
        with _where(builder, tests) as inner:
            terms = TileTerms(
                self.real, views, plan.kernel.extents, [inner], forms=self._form, tiles=tiles, local=place
            )
            for name, value in at.items():
                terms.open_index(name, value)
            for stage in self.plan.kernel.stages:
                self._assign(terms, stage)

    def _assign(self, terms: TileTerms, stage: FlatStage) -> None:
        if terms.is_risky(stage.value):
            raise Unsupported("a step may have no value")
        element = self.held[stage.tensor].element
        target = Element(stage.tensor, (self.plan.kernel.table.affine(stage.place),), stage.type)
        value = terms.saturated(stage.value, element)
        if stage.tensor in self.outputs:
            terms.store(value, target)
        terms.passing[stage.tensor] = terms.rounded(value, element, terms.kind(target))

    def _form(self, element: Element) -> Form:
        return place_of(element, self.plan.kernel.table)


@contextmanager
def _where(builder: Builder, tests: Sequence[Value]) -> Iterator[Builder]:
    """Code for where all tests hold."""
    with ExitStack() as opened:
        inner = builder
        for test in tests:
            inner = opened.enter_context(inner.condition(test))
        yield inner
