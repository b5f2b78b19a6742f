"""Depth-first fusion of convolution chains (cascading): strips of rows with a rolling buffer between the layers.

    e = f(a * x)            a product: a 1x1 convolution that makes many channels, or any other
    d = g(b * window(e))    a depthwise convolution of it
    y = h(c * d)            a product again, where there is one

A work-group takes a band of the output's rows, strip by strip. It holds the rows of `e` that the windows of a strip
reach in a ring buffer: the next strip computes only the rows behind them. So only the halo between two bands is
computed twice, and what lies between the layers stays in the second-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from lamella.base.dtype import F32
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.accumulator_init import bias_as_initial_sum
from lamella.bridge.graph_to_kernels.affine import find_form
from lamella.bridge.graph_to_kernels.contraction import ASSIGNMENTS
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.depthwise import (
    DepthwiseProduct,
    DepthwiseWriter,
    find_depthwise,
    write_depthwise_pack,
)
from lamella.bridge.graph_to_kernels.factors import find_factors, is_contraction
from lamella.bridge.graph_to_kernels.terms import TensorView
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED, ProductWriter, write_pack
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel
from lamella.bridge.graph_to_kernels.tiled import (
    Key,
    ProductGroup,
    Tensors,
    TiledProduct,
    extents_of,
    find_tiles,
    walk_terms,
)
from lamella.kernels.build import Builder
from lamella.kernels.launches import dense_layout
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Alloca, Scalar, Value
from lamella.lang.tensor.nodes.types import make_memref
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index

REAL = Scalar("f32")
BYTES = 4
STRIP_BYTES = 512 << 10
"""The most bytes of the rows of a strip, so that they stay in the second-level cache."""
TALLEST = 8
"""Rows of a strip that lanes walk along before they go on to the next channels."""
BANDS = 8
"""Work-groups that there should be, so that threads can share them."""
MOST_TWICE = 6
"""The most rows of a band that are recomputed for the next band, one in so many."""
MOST_SIDES = 32
"""Places of zeros round a row, each of which is written by code of its own."""
BAND = "band"


# --- chains ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chain:
    """Products each of which reads what the one before it makes, and the tensors between them."""

    products: tuple[ProductGroup, ...]
    between: tuple[str, ...]


def find_chain(stages: Sequence[Contraction], outputs: Sequence[str]) -> Chain:
    """The chain of two or three products that stages are; Unsupported where they are none."""
    starts = [number for number, stage in enumerate(stages) if is_contraction(stage)]
    if len(starts) not in (2, 3) or starts[0] != 0:
        raise Unsupported("it is no chain of products")
    parts = [stages[first:last] for first, last in zip(starts, [*starts[1:], len(stages)], strict=True)]
    if any(stage.sign not in ASSIGNMENTS for part in parts for stage in part[1:]):
        raise Unsupported("it is no chain of products")
    between = tuple(part[-1].targets[0].tensor for part in parts[:-1])
    for number, name in enumerate(between):
        made = {item.tensor for stage in parts[number] for item in stage.targets}
        others = [*parts[number + 1][1:], *(stage for part in parts[number + 2 :] for stage in part)]
        factors = find_factors(parts[number + 1][0]) or ()
        used = [item.element for item in factors if item.element.tensor == name]
        windows = any(isinstance(index, Guard | Apply) for item in used for index in item.indices)
        if len(used) != 1 or windows != (number == 0) or made & (_read(others) | set(outputs)):
            raise Unsupported("its products are no chain")
    return Chain(tuple(ProductGroup(part[0], tuple(part[1:])) for part in parts), between)


def _read(stages: Sequence[Contraction]) -> set[str]:
    return {item.tensor for stage in stages for item in walk_terms(stage) if isinstance(item, Element)}


# --- the plan -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The roles of the dimensions in a chain: rows, places of a row, and elements of a place."""

    rows: int
    across: int
    lane: int
    rank: int

    @property
    def order(self) -> tuple[int, ...]:
        """The dimensions from outside to inside."""
        inner = self.rows, self.across, self.lane
        return (*(item for item in range(self.rank) if item not in inner), *inner)


@dataclass(frozen=True, slots=True)
class StripWindow:
    """The rows of a window over its halo: output row `o` reads `step * o` to `step * o + last`."""

    step: int
    last: int
    low: int
    """Rows of zeros before the tensor."""
    height: int
    """Rows of the tensor."""

    @property
    def kept(self) -> int:
        """Rows that the next output row reads again."""
        return self.last + 1 - self.step

    def reached(self, rows: int) -> int:
        """The rows that some output rows read."""
        return self.step * (rows - 1) + self.last + 1


@dataclass(frozen=True, slots=True)
class Inside:
    """A tensor between two products: a rolling buffer of its rows with their halo."""

    name: str
    lanes: int
    places: int
    low: int
    """Places of zeros before a row."""
    width: int
    """Places of the tensor."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return BYTES * self.lanes * self.places

    def ring(self, access: Access, memory: Value, rows: int) -> Access:
        """An access as one to the rolling buffer, in local memory."""
        along = self.lanes * self.places
        axes = [
            replace(axis, size=rows, ring=True) if axis.stride == along else axis
            for axis in access.axes
            if axis.size > 1
        ]
        if [axis.stride for axis in axes] != [along, self.lanes, 1]:
            raise Unsupported(f"'{self.name}' does not lie in rows")
        return Access(memory, access.element, tuple(axes), True)


@dataclass(frozen=True, slots=True)
class StripPlan:
    """A chain cut into bands of strips."""

    first: TiledProduct
    middle: DepthwiseProduct
    last: TiledProduct | None
    inside: tuple[Inside, ...]
    window: StripWindow
    rows: int
    """Of the output."""
    band: int
    strip: int

    @property
    def bands(self) -> int:
        """Work-groups."""
        return -(-self.rows // self.band)

    @property
    def strips(self) -> int:
        """Strips of a band."""
        return -(-self.band // self.strip)

    @property
    def heights(self) -> tuple[int, ...]:
        """Rows of each tensor between that are held."""
        return self.window.reached(self.strip), self.strip


def _plan_strips(
    chain: Chain, tensors: Tensors, real: Scalar, target: Target, fixed: frozenset[Key]
) -> StripPlan:
    """The strips of a chain; Unsupported says why there are none."""
    if real != REAL or target.has_threads or target.local_bytes < STRIP_BYTES:
        raise Unsupported("its numbers are not of 32 bits, or a work-group has little memory")
    dimensions, views = _lay_out(chain, tensors)
    first = _in_rows(find_tiles(chain.products[0], views, real, target, fixed))
    middle = find_depthwise(chain.products[1], views, real, fixed)
    ends = [_in_rows(find_tiles(item, views, real, target, fixed)) for item in chain.products[2:]]
    held = views[chain.between[0], None]
    window = _window(
        middle, chain.between[0], held.lies.halo[dimensions.rows][0], held.shape[dimensions.rows]
    )
    if first.extents[first.roles.columns[0]] != window.height:
        raise Unsupported("its rows are counted by several loops")
    rows = middle.extents[middle.rows]
    if any(item.extents[item.roles.columns[0]] != rows for item in ends):
        raise Unsupported("its rows are counted by several loops")
    inside = tuple(_inside(name, views, dimensions) for name in chain.between)
    band, strip = _cut_rows(window, inside, rows)
    return StripPlan(first, middle, ends[0] if ends else None, inside, window, rows, band, strip)


def _lay_out(chain: Chain, tensors: Tensors) -> tuple[Dimensions, Tensors]:
    """What dimensions are, and the tensors with those between in rows, with a halo for the windows."""
    product, name = chain.products[1].product, chain.between[0]
    factors = find_factors(product) or ()
    source = next(item.element for item in factors if item.element.tensor == name)
    target, extents, shape = product.targets[0], extents_of(product), tensors[name, None].shape
    windows, lanes, halo = [], [], [(0, 0)] * len(shape)
    for place, (index, counted) in enumerate(zip(source.indices, target.indices, strict=True)):
        if shape[place] == 1:
            continue
        if isinstance(index, Index) and index == counted:
            lanes.append(place)
            continue
        form = find_form(index.index if isinstance(index, Guard) else index, extents)
        if form is None or not isinstance(counted, Index) or not form.coefficient(counted.name):
            raise Unsupported("its windows are of another form")
        low, high = form.bounds({item: (0, extents[item] - 1) for item in form.symbols})
        halo[place] = max(0, -low), max(0, high - shape[place] + 1)
        windows.append(place)
    if len(windows) != 2 or len(lanes) != 1:
        raise Unsupported("it has not windows of two dimensions")
    found = Dimensions(windows[0], windows[1], lanes[0], len(shape))
    views = {**tensors, (name, None): _laid(tensors, name, found, halo)}
    for other in chain.between[1:]:
        # A place behind each row keeps rows apart, which would be one loop with their places otherwise.
        behind = [(0, int(place == found.across)) for place in range(len(shape))]
        views[other, None] = _laid(tensors, other, found, behind)
    return found, views


def _laid(tensors: Tensors, name: str, dimensions: Dimensions, halo: Sequence[tuple[int, int]]) -> TensorView:
    held = tensors[name, None]
    ones = (size for place, size in enumerate(held.shape) if place in dimensions.order[:-3])
    if len(held.shape) != dimensions.rank or any(size > 1 for size in ones) or held.element != F32:
        raise Unsupported("the tensors between are no images")
    return replace(held, layout=dense_layout(held.shape, dimensions.order, halo))


def _in_rows(tiled: TiledProduct) -> TiledProduct:
    """A product whose rows of places are computed one by one."""
    roles = tiled.roles
    if roles.batch or len(roles.columns) != 2 or tiled.scales or not tiled.packed or not tiled.fixed:
        raise Unsupported("it is no product of weights with rows of places")
    if any(is_open(size) for size in tiled.extents.values()):
        raise Unsupported("an extent is open")
    return replace(tiled, blocked=1, block=tiled.extents[roles.columns[1]])


def _window(middle: DepthwiseProduct, name: str, low: int, height: int) -> StripWindow:
    found = middle.found
    place = next((item for item in (0, 1) if found.keys[item][0] == name), 0)
    axis = found.factors[place].axis(middle.rows) if middle.rows else None
    if axis is None or len(middle.columns) != 2 or middle.columns[0] != middle.rows or axis.index.constant:
        raise Unsupported("its windows do not go over rows")
    if any(is_open(size) for size in middle.extents.values()):
        raise Unsupported("an extent is open")
    last = sum(
        factor * (middle.extents[item] - 1) for item, factor in axis.index.terms if item != middle.rows
    )
    window = StripWindow(axis.index.coefficient(middle.rows), last, low, height)
    if window.kept < low or any(factor < 1 for _, factor in axis.index.terms):
        raise Unsupported("its windows are far apart")
    return window


def _inside(name: str, views: Tensors, dimensions: Dimensions) -> Inside:
    held = views[name, None]
    low, high = held.lies.halo[dimensions.across]
    width = held.shape[dimensions.across]
    if low + high > MOST_SIDES:
        raise Unsupported("its rows have wide halos")
    return Inside(name, held.shape[dimensions.lane], low + width + high, low, width)


def _cut_rows(window: StripWindow, inside: Sequence[Inside], rows: int) -> tuple[int, int]:
    """The rows of a band and those of a strip."""
    kept = max(1, window.kept)
    bands = max(1, min(BANDS, rows * window.step // (kept * MOST_TWICE)))
    band = -(-rows // (bands - bands % 2 or 1))

    def size(strip: int) -> int:
        heights = window.reached(strip), strip
        return sum(item.row_bytes * height for item, height in zip(inside, heights, strict=False))

    tallest = max((item for item in range(1, min(TALLEST, band) + 1) if size(item) <= STRIP_BYTES), default=0)
    if not tallest:
        raise Unsupported("its rows do not stay in the cache")
    return band, -(-band // -(-band // tallest))


# --- the kernel -----------------------------------------------------------------------------------------------


def write_strips(
    chain: Chain, tensors: Tensors, real: Scalar, target: Target, fixed: frozenset[Key]
) -> list[TileKernel]:
    """The kernels of a chain: those that pack its operands, and its own; Unsupported says why there are none."""
    plan = _plan_strips(chain, tensors, real, target, fixed)
    keys = [(f"{PACKED[0]}{number}", None) for number in range(3)]
    packed = [write_pack(plan.first, keys[0])]
    packed += [] if plan.middle.packed is None else [write_depthwise_pack(plan.middle, keys[1])]
    packed += [] if plan.last is None else [write_pack(plan.last, keys[2])]
    return [*packed, _StripWriter(plan, tensors, keys).write()]


@dataclass(slots=True)
class _StripWriter:
    """The kernel of a chain while it is written."""

    plan: StripPlan
    tensors: Tensors
    keys: Sequence[Key]
    parameters: Parameters = field(default_factory=Parameters)
    memory: list[Value] = field(default_factory=list)

    def write(self) -> TileKernel:
        """Write it."""
        plan, window = self.plan, self.plan.window
        self.memory = [Value(f"inside{number}") for number, _ in enumerate(plan.inside)]
        first, middle, last = self._product(plan.first, 0), self._lanes(), None
        if plan.last is not None:
            last = self._product(plan.last, 2)
        builder = self.parameters.builder()
        for item, memory, height in zip(plan.inside, self.memory, plan.heights, strict=False):
            builder.put(
                Alloca(make_memref(REAL.name, (item.lanes, item.places, height), local=True)), [memory]
            )
        band = delinearize_group(builder, [BAND], {BAND: plan.bands})[BAND]
        begin = builder.arith("mul", band, builder.constant(plan.band))
        end = builder.arith("add", begin, builder.constant(plan.band))
        end = builder.arith("min", end, builder.constant(plan.rows))
        self._clear_sides(builder)
        with builder.loop(builder.constant(0), builder.constant(plan.strips)) as loop:
            body, size = loop.body, loop.body.constant(plan.strip)
            step, kept = body.constant(window.step), body.constant(window.kept)
            top = body.arith("add", begin, body.arith("mul", loop.variable, size))
            bottom = body.arith("min", body.arith("add", top, size), end)
            # The first strip computes the rows that others find there, too.
            found = body.arith("mul", body.arith("min", loop.variable, body.constant(1)), kept)
            first_row = body.arith("add", body.arith("mul", top, step), found)
            last_row = body.arith("add", body.arith("mul", bottom, step), kept)
            self._fill(body, first, first_row, last_row)
            with body.parallel() as region:
                middle.write_rows(region, top, bottom)
            if last is not None:
                self._each_row(body, last, top, bottom)
        return self.parameters.close(builder, plan.bands)

    # --- products -------------------------------------------------------------------------------------------------

    def _ring(self, key: Key, access: Access) -> Access:
        """An access to a tensor, where it is one of those between."""
        for item, memory, height in zip(self.plan.inside, self.memory, self.plan.heights, strict=False):
            if key == (item.name, None):
                return item.ring(access, memory, height)
        return access

    @property
    def _own(self) -> frozenset[Key]:
        return frozenset((item.name, None) for item in self.plan.inside)

    def _product(self, tiled: TiledProduct, number: int) -> ProductWriter:
        keys = {place: key for end in tiled.epilogues for place, key in end.keys.items()}
        accesses = {place: self._ring(keys[place], item) for place, item in tiled.accesses.items()}
        column = self._ring(tiled.column_key, tiled.column_factor)
        target = tiled.group.product.targets[0].tensor
        epilogues, start = bias_as_initial_sum(tiled.epilogues, target, accesses, tiled.roles.columns)
        tiled = replace(tiled, epilogues=epilogues, accesses=accesses, column_factor=column)
        writer = ProductWriter(
            tiled, self.tensors, self.parameters, self._own, self.keys[number], start=start
        )
        writer.bind(tiled.packed_access(Value("packed")))
        return writer

    def _lanes(self) -> DepthwiseWriter:
        found = self.plan.middle.found
        keys = {place: key for end in found.epilogues for place, key in end.keys.items()}
        accesses = {place: self._ring(keys[place], item) for place, item in found.accesses.items()}
        one, other = (self._ring(*pair) for pair in zip(found.keys, found.factors, strict=True))
        plan = replace(self.plan.middle, found=replace(found, accesses=accesses, factors=(one, other)))
        writer = DepthwiseWriter(plan, self.tensors, self.parameters, self._own, self.keys[1])
        writer.bind()
        return writer

    def _each_row(self, builder: Builder, writer: ProductWriter, first: Value, last: Value) -> None:
        """A product for some rows."""
        name = writer.tiled.roles.columns[0]
        with builder.loop(first, last) as loop, loop.body.parallel() as region:
            writer.write_panels(region, {name: loop.variable})

    # --- the rows of the first tensor -------------------------------------------------------------------------

    def _fill(self, builder: Builder, writer: ProductWriter, first: Value, last: Value) -> None:
        """Compute rows, counted with their halo; those outside of the tensor are zeros."""
        window = self.plan.window
        low, end = builder.constant(window.low), builder.constant(window.low + window.height)
        if window.low:
            self._clear_rows(builder, first, builder.arith("min", last, low))
        inner = builder.arith("max", first, low), builder.arith("min", last, end)
        rows = [builder.arith("sub", item, low) if window.low else item for item in inner]
        self._each_row(builder, writer, rows[0], rows[1])
        if window.reached(self.plan.rows) > window.low + window.height:
            self._clear_rows(builder, builder.arith("max", first, end), last)

    def _clear_rows(self, builder: Builder, first: Value, last: Value) -> None:
        item = self.plan.inside[0]
        with builder.loop(first, last) as loop:
            body = loop.body
            row = body.arith("rem", loop.variable, body.constant(self.plan.heights[0]))
            with body.foreach([body.constant(item.lanes), body.constant(item.places)]) as (inner, places):
                inner.store(inner.constant(0.0, REAL), self.memory[0], [*places, row])

    def _clear_sides(self, builder: Builder) -> None:
        """Zeros before and behind each row."""
        item = self.plan.inside[0]
        for place in (*range(item.low), *range(item.low + item.width, item.places)):
            ends = [builder.constant(item.lanes), builder.constant(self.plan.heights[0])]
            with builder.foreach(ends) as (inner, (lane, row)):
                inner.store(inner.constant(0.0, REAL), self.memory[0], [lane, inner.constant(place), row])
