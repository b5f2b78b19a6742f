"""Depthwise convolutions: sums of products whose factors both lie along the output, with their epilogue.

The contiguous loop goes over the lanes. A tile is some steps of the next loop of the output; windows that overlap share
what they load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis
from lamella.bridge.graph_to_kernels.accumulator_init import bias_as_initial_sum
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.thread_tiles import LANE, MOST_TAPS, ThreadTiles, TileElements, load_real
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tile_widths import tile_width
from lamella.bridge.graph_to_kernels.tiled import (
    Epilogue,
    Key,
    PreparedProduct,
    ProductGroup,
    Tensors,
    prepare_product,
)
from lamella.kernels.build import Builder
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Cast, Scalar, Value
from lamella.lang.tensor.nodes.types import FLOATS, INDEX

LANES = 16
"""Work-items of a subgroup."""
WIDEST = 8
"""Steps of the output in a tile."""
MOST_UNROLLED = 80
"""The most products of a tile that are unrolled."""
GROUPS = 16
"""Work-groups that there should be, so that threads can share them; each has all blocks of lanes where there are."""
NEAR_BYTES = 1 << 20
"""The bytes of an image whose channels threads share."""
PART, BAND = "part", "band"
"""Some of the blocks; some of the rows."""


@dataclass(frozen=True, slots=True)
class DepthwiseProduct:
    """A depthwise product cut into tiles."""

    found: PreparedProduct
    real: Scalar
    lane: str
    columns: tuple[str, ...]
    """The other loops of the output, the closest last."""
    sums: tuple[str, ...]
    """Sums that are loops."""
    unrolled: tuple[str, ...]
    """Unrolled sums."""
    width: int
    packed: int | None
    """Which factor is packed so that it lies along the lanes."""
    rows: str = ""
    """The loop of the output along which windows overlap, one behind the closest: each takes rows of the one before."""

    @property
    def extents(self) -> Mapping[str, int]:
        """The extents of all loops."""
        return self.found.extents


def find_depthwise(
    group: ProductGroup, tensors: Tensors, real: Scalar, constant: frozenset[Key], narrow: bool = False
) -> DepthwiseProduct:
    """The tiles of a depthwise product, perhaps of `narrow` reals; Unsupported says why there are none."""
    found = prepare_product(group, tensors, real)
    elements = FLOATS if narrow else (real.name,)
    if found.scales or any(item.element not in elements for item in found.factors):
        raise Unsupported("a factor is decoded")
    output = found.outputs[0]
    ordered = sorted(
        (name for name in found.extents if output.stride(name)), key=lambda name: -output.stride(name)
    )
    if not ordered or any(item.stride(ordered[-1]) != 1 for item in found.outputs):
        raise Unsupported("no loop lies closest in its output")
    lane = ordered[-1]
    if found.extents[lane] < LANES // 2:
        raise Unsupported("it has few lanes")
    sums = tuple(name for name in found.extents if name not in ordered)
    strides = [access.stride(lane) for access in found.factors]
    wrong = [place for place, stride in enumerate(strides) if stride not in (0, 1)]
    if not sums or len(wrong) > 1 or any(found.keys[place] not in constant for place in wrong):
        raise Unsupported("a factor does not lie along the lanes")
    if any(set(ordered[:-1]) & found.factors[place].loops() for place in wrong):
        raise Unsupported("a factor does not lie along the lanes")
    column = ordered[-2] if len(ordered) > 1 else ""
    width = tile_width(found.extents[column], WIDEST) if column else 1
    unrolled = _unrolled(found, sums, column, width)
    kept = tuple(name for name in sums if name not in unrolled)
    rows = ordered[-3] if len(ordered) > 2 and _overlaps(found, ordered[-3], sums) else ""
    return DepthwiseProduct(
        found, real, lane, tuple(ordered[:-1]), kept, unrolled, width, wrong[0] if wrong else None, rows
    )


def _overlaps(found: PreparedProduct, name: str, sums: Sequence[str]) -> bool:
    """Whether windows along a loop overlap: steps of it read what others read too."""
    axes = [axis for access in found.factors if (axis := access.axis(name)) is not None]
    return any(axis.index.coefficient(item) for axis in axes for item in sums)


def _unrolled(found: PreparedProduct, sums: Sequence[str], column: str, width: int) -> tuple[str, ...]:
    """The sums that are unrolled: first that along a mode which the columns of a tile count too, as windows do."""
    shared = [
        name
        for name in sums
        if any(
            (axis := access.axis(name)) is not None and axis.index.coefficient(column)
            for access in found.factors
        )
    ]
    chosen: list[str] = []
    if not shared:
        return ()
    for name in (shared[0], *(item for item in sums if item != shared[0])):
        count = prod(found.extents[item] for item in (*chosen, name))
        if count * width > MOST_UNROLLED:
            break
        chosen.append(name)
    return tuple(chosen)


# --- kernels --------------------------------------------------------------------------------------------------


def write_depthwise(plan: DepthwiseProduct, tensors: Tensors, target: Target) -> list[TileKernel]:
    """The kernels of a depthwise product, in the order in which they run."""
    if target.has_threads:
        plan = _with_windows(plan)
    packed = [] if plan.packed is None else [write_depthwise_pack(plan, PACKED)]
    if not target.has_threads:
        return [*packed, DepthwiseWriter(plan, tensors).write()]
    taps = {name: plan.extents[name] for name in plan.unrolled}
    tiles = ThreadTiles(plan.extents, plan.lane, plan.columns).fit(taps, plan.found.factors, target)
    return [*packed, _ThreadWriter(plan, tensors, tiles=tiles).write()]


def _packed_access(plan: DepthwiseProduct, place: int) -> Access:
    """The packed weights: lanes contiguous, then the sums."""
    loops = [plan.lane, *reversed((*plan.sums, *plan.unrolled))]
    used = plan.found.factors[place].loops()
    axes, stride = [], 1
    for name in loops:
        if name in used:
            axes.append(Axis(plan.extents[name], stride, Affine(0, ((name, 1),))))
            stride *= plan.extents[name]
    return Access(Value("packed"), plan.real.name, tuple(reversed(axes)))


def write_depthwise_pack(plan: DepthwiseProduct, key: Key) -> TileKernel:
    """A kernel that packs the weights, so that they lie along the lanes."""
    parameters, place = Parameters(), plan.packed or 0
    target = parameters.add(key, _packed_access(plan, place))
    source = parameters.add(plan.found.keys[place], plan.found.factors[place])
    builder = parameters.builder()
    loops = [name for name in (*plan.sums, *plan.unrolled) if name in source.loops()]
    ends = [builder.constant(plan.extents[name]) for name in (plan.lane, *loops)]
    with builder.foreach(ends) as (inner, variables):
        values = dict(zip((plan.lane, *loops), variables, strict=True))
        value = load_real(inner, source, source.places(inner, values), plan.real)
        inner.store(value, target.memref, target.places(inner, values))
    return parameters.close(builder, 1)


def _known(extents: Iterable[int]) -> int:
    """The product of extents that every call has: how work is shared must not depend on the others."""
    return prod(extent for extent in extents if not is_open(extent))


@dataclass(slots=True)
class DepthwiseWriter:
    """Writes the kernel of a depthwise product."""

    plan: DepthwiseProduct
    tensors: Tensors
    parameters: Parameters = field(default_factory=Parameters)
    own: frozenset[Key] = frozenset()
    """Tensors in local memory, which are no parameters."""
    packed: Key = PACKED
    """The packed factor."""
    accesses: dict[int, Access] = field(default_factory=dict)
    factors: list[Access] = field(default_factory=list)
    epilogues: tuple[Epilogue, ...] = ()
    start: Epilogue | None = None
    """The initial value of the sums, where it is not 0."""
    band: int = 1
    """Rows of a work-group."""
    span: tuple[Value, Value] | None = None
    """The first row and the one behind the last, where those of a work-group are not meant."""

    @property
    def tiled(self) -> tuple[str, ...]:
        """The loops of the output along which a tile has several steps."""
        return self.plan.columns[-1:]

    def bind(self) -> None:
        """Make parameters of all tensors that are none of the kernel's own memory."""
        plan, found = self.plan, self.plan.found
        target = found.group.product.targets[0].tensor
        self.epilogues, self.start = bias_as_initial_sum(found.epilogues, target, found.accesses, self.tiled)
        for end in found.epilogues:
            for key in end.accesses:
                self.accesses[key] = self._parameter(end.keys[key], found.accesses[key])
        for place, access in enumerate(found.factors):
            packed = plan.packed == place
            source = self.packed if packed else found.keys[place]
            self.factors.append(self._parameter(source, _packed_access(plan, place) if packed else access))

    def _parameter(self, key: Key, access: Access) -> Access:
        return access if key in self.own else self.parameters.add(key, access)

    def write_rows(self, builder: Builder, first: Value, last: Value) -> None:
        """All lanes of some rows."""
        self.span = first, last
        self._walk_blocks(builder, {}, -(-self.plan.extents[self.plan.lane] // LANES), 1)

    def write(self) -> TileKernel:
        """Write it."""
        self.bind()
        plan, builder = self.plan, self.parameters.builder()
        outer = list(plan.columns[: -2 if plan.rows else -1])
        blocks = -(-plan.extents[plan.lane] // LANES)
        parts = min(blocks, -(-GROUPS // _known(plan.extents[name] for name in outer)))
        share = -(-blocks // parts)
        sizes = {**plan.extents, PART: -(-blocks // share)}
        sizes[BAND] = 1
        if plan.rows:
            groups = _known(sizes[name] for name in (*outer, PART))
            self.band = -(-sizes[plan.rows] // max(1, -(-GROUPS // groups)))
            sizes[BAND] = -(-sizes[plan.rows] // self.band)
        # Of a small image each thread takes the channels that it made before, of a large one the rows.
        shared = [*outer, PART, BAND] if self._is_near() else [*outer, BAND, PART]
        values = delinearize_group(builder, shared, sizes)
        with builder.parallel() as region:
            self._walk_blocks(region, values, share, sizes[PART])
        return self.parameters.close(builder, prod(sizes[name] for name in shared))

    def _is_near(self) -> bool:
        """Whether the input is so small that the product before wrote it channel by channel, not row by row."""
        sizes = (_known(axis.size for axis in access.axes) for access in self.factors)
        return BYTES[self.plan.real.name] * max(sizes) <= NEAR_BYTES

    def _walk_blocks(self, builder: Builder, values: Mapping[str, Value], share: int, parts: int) -> None:
        """The blocks of lanes of a work-group, each a subgroup wide; the last one of all may have fewer."""
        full, rest = divmod(self.plan.extents[self.plan.lane], LANES)
        first, last = builder.constant(0), builder.constant(full)
        if parts > 1:
            step = builder.constant(share)
            first = builder.arith("mul", values[PART], step)
            last = builder.arith("min", builder.arith("add", first, step), last)
        if full:
            with builder.loop(first, last) as loop:
                self._walk_rows(loop.body, self._with_lane(loop.body, values, loop.variable))
        if not rest:
            return
        if parts == 1:
            self._walk_rest(builder, self._with_lane(builder, values, builder.constant(full)))
            return
        final = builder.compare("eq", values[PART], builder.constant(parts - 1))
        with builder.condition(final) as inner:
            self._walk_rest(inner, self._with_lane(inner, values, inner.constant(full)))

    def _with_lane(self, builder: Builder, values: Mapping[str, Value], block: Value) -> dict[str, Value]:
        lane = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        begin = builder.arith("mul", block, builder.constant(LANES))
        return {**values, self.plan.lane: builder.arith("add", begin, lane)}

    def _walk_rest(self, builder: Builder, values: Mapping[str, Value]) -> None:
        """The last lanes: those beyond the end do nothing."""
        end = builder.constant(self.plan.extents[self.plan.lane])
        with builder.condition(builder.compare("lt", values[self.plan.lane], end)) as inner:
            self._walk_rows(inner, values)

    def _walk_rows(self, builder: Builder, values: Mapping[str, Value]) -> None:
        """The rows of a work-group one after the other: windows of the next one read what those of this one did."""
        name = self.plan.rows
        if not name:
            self._walk(builder, values)
            return
        first, last = self.span or self._band(builder, values)
        with builder.loop(first, last) as loop:
            self._walk(loop.body, {**values, name: loop.variable})

    def _band(self, builder: Builder, values: Mapping[str, Value]) -> tuple[Value, Value]:
        size = builder.constant(self.band)
        first = builder.arith("mul", values[BAND], size)
        extent = builder.constant(self.plan.extents[self.plan.rows])
        return first, builder.arith("min", builder.arith("add", first, size), extent)

    def _walk(self, builder: Builder, values: Mapping[str, Value]) -> None:
        """The tiles along the closest column loop."""
        plan = self.plan
        if not plan.columns:
            self.write_tile(builder, dict(values), 1)
            return
        name = plan.columns[-1]
        full, rest = divmod(plan.extents[name], plan.width)
        if full == 1 and not is_open(full):
            self.write_tile(builder, {**values, name: builder.constant(0)}, plan.width)
        elif full or is_open(full):
            with builder.loop(builder.constant(0), builder.constant(full)) as loop:
                place = loop.variable
                if plan.width > 1:
                    place = loop.body.arith("mul", place, loop.body.constant(plan.width))
                self.write_tile(loop.body, {**values, name: place}, plan.width)
        if is_open(rest):
            begin, end = builder.constant(full * plan.width), builder.constant(plan.extents[name])
            with builder.loop(begin, end) as loop:
                self.write_tile(loop.body, {**values, name: loop.variable}, 1)
        elif rest:
            self.write_tile(builder, {**values, name: builder.constant(full * plan.width)}, rest)

    def write_tile(self, builder: Builder, values: dict[str, Value], width: int) -> None:
        """A tile of so many sums, and what the outputs are made of each."""
        start = builder.constant(0.0, self.plan.real)
        if self.start is not None:
            start = self._epilogue_value(builder, self.start, values, start)
        totals = self._sum(builder, values, [start] * width, self.plan.sums)
        for number, total in enumerate(totals):
            self._finish(builder, self._shifted(builder, values, number), total)

    def _shifted(self, builder: Builder, values: dict[str, Value], number: int) -> dict[str, Value]:
        if not number:
            return values
        name = self.plan.columns[-1]
        return {**values, name: builder.arith("add", values[name], builder.constant(number))}

    def _sum(
        self, builder: Builder, values: dict[str, Value], start: Sequence[Value], sums: Sequence[str]
    ) -> list[Value]:
        if not sums:
            return self._products(builder, values, start)
        end = builder.constant(self.plan.extents[sums[0]])
        carried = [(value, self.plan.real) for value in start]
        with builder.loop(builder.constant(0), end, carried=carried) as loop:
            inner = {**values, sums[0]: loop.variable}
            loop.body.give(*self._sum(loop.body, inner, loop.carried, sums[1:]))
        return loop.results

    def _products(self, builder: Builder, values: dict[str, Value], start: Sequence[Value]) -> list[Value]:
        """The products of a tile for one step of the loops; what several of them need is loaded once."""
        plan, found = self.plan, list(start)
        column = plan.columns[-1] if plan.columns else ""
        loaded: dict[tuple[int, int], Value] = {}
        for steps in product(*(range(plan.extents[name]) for name in reversed(plan.unrolled))):
            inside = dict(zip(reversed(plan.unrolled), steps, strict=True))
            for number in range(len(found)):
                pair = [
                    self._load(builder, place, values, {column: number, **inside}, loaded) for place in (0, 1)
                ]
                both = builder.arith("mul", *pair, type_=plan.real)
                found[number] = builder.arith("add", found[number], both, type_=plan.real)
        return found

    def _load(
        self,
        builder: Builder,
        place: int,
        values: dict[str, Value],
        steps: Mapping[str, int],
        loaded: dict[tuple[int, int], Value],
    ) -> Value:
        access = self.factors[place]
        shift = sum(access.stride(name) * step for name, step in steps.items() if name)
        if (place, shift) not in loaded:
            zero = {name: values.get(name) or builder.constant(0) for name in steps if name}
            here = {**values, **zero}
            indices = []
            for axis in reversed(access.axes):
                more = sum(axis.index.coefficient(name) * step for name, step in steps.items() if name)
                indices.append(axis.value(builder, here, more))
            loaded[place, shift] = builder.load(access.memref, indices, self.plan.real)
        return loaded[place, shift]

    def _epilogue_value(
        self, builder: Builder, end: Epilogue, values: dict[str, Value], total: Value
    ) -> Value:
        """What an output is, given the sum."""
        if end.formula.values[0] is end.formula.targets[0]:
            return total
        writing = EpilogueWriter(self.plan.real, self.tensors, end.extents, [builder])
        writing.accesses, writing.loops = self.accesses, values
        return writing.epilogue_value(end, self.plan.found.group.product.targets[0].tensor, total)

    def _finish(self, builder: Builder, values: dict[str, Value], total: Value) -> None:
        """Store what the outputs are made of."""
        real = self.plan.real
        for end in self.epilogues:
            formula = end.formula
            value = self._epilogue_value(builder, end, values, total)
            access = self.accesses[id(formula.targets[0])]
            if access.element not in FLOATS:
                raise Unsupported("its output is no real")
            if access.element != real.name:
                value = builder.value(Cast(value, Scalar(access.element)))
            builder.store(value, access.memref, access.places(builder, values))


# --- threads ---------------------------------------------------------------------------------------------------


def _with_windows(plan: DepthwiseProduct) -> DepthwiseProduct:
    """The plan with the sums written out that threads write: windows first, whose steps share what they load."""
    names, columns = (*plan.sums, *plan.unrolled), plan.columns[-2:]
    axes = [axis for access in plan.found.factors for name in columns if (axis := access.axis(name))]
    windows = [name for name in names if any(axis.index.coefficient(name) for axis in axes)]
    chosen: list[str] = []
    for name in (*reversed(windows), *(item for item in reversed(names) if item not in windows)):
        if prod(plan.extents[item] for item in (*chosen, name)) > MOST_TAPS:
            break
        chosen.append(name)
    kept = tuple(name for name in names if name not in chosen)
    return replace(plan, sums=kept, unrolled=tuple(chosen))


@dataclass(slots=True)
class _ThreadWriter(DepthwiseWriter):
    """The kernel for threads: each has a register tile of rows and columns of its own.

    Registers hold the window's weights, and what several sums of a tile read.
    """

    tiles: ThreadTiles = field(kw_only=True)

    @property
    def tiled(self) -> tuple[str, ...]:
        """The loops of the output along which a tile may have several steps."""
        return self.tiles.tiled

    def write(self) -> TileKernel:
        """Write it."""
        self.bind()
        builder = self.parameters.builder()
        with builder.parallel() as region:
            self.write_tile(region, self.tiles.begin(region), self.tiles.sums)
        kernel = self.parameters.close(builder, self.tiles.groups)
        return replace(kernel, attributes=group_sizes(1))

    def _shifted(self, builder: Builder, values: dict[str, Value], number: int) -> dict[str, Value]:
        return self.tiles.shifted(builder, values, number)

    def _products(self, builder: Builder, values: dict[str, Value], start: Sequence[Value]) -> list[Value]:
        """The products of a tile for one step of the loops; what several of them need is loaded once."""
        plan, found = self.plan, list(start)
        values = {**values, **{name: builder.constant(0) for name in plan.unrolled}}
        sides = [TileElements(builder, access, values, plan.real) for access in self.factors]
        for taps in product(*(range(plan.extents[name]) for name in plan.unrolled)):
            inside = dict(zip(plan.unrolled, taps, strict=True))
            for number, total in enumerate(found):
                steps = {**self.tiles.steps(number), **inside}
                both = builder.arith("mul", *(side.load(steps) for side in sides), type_=plan.real)
                found[number] = builder.arith("add", total, both, type_=plan.real)
        return found
