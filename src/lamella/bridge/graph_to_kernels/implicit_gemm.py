"""Implicit GEMM: convolutions on tensor cores that read the image in place, without im2col.

The image lies channels-last, padded with zeros as far as windows reach. Columns count all of its pixels in one row,
also those where no window begins. So a tap of the window is a shift of all columns by one number, and a tile of columns
is a tile of the matrix pixels x channels. What is computed for a pixel where no window begins is not stored: one column
in ten of an image of 14 x 14, three of four with a stride of two.
"""

from __future__ import annotations

from dataclasses import field, replace
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.k_major import GRAIN, write_k_major_pack
from lamella.bridge.graph_to_kernels.tensor_core_gemm import (
    PART,
    STEP,
    order_tiles,
    split_bounds,
    verify_output,
)
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes, promise_pairs
from lamella.bridge.graph_to_kernels.tiled import (
    Epilogue,
    Key,
    PreparedProduct,
    ProductGroup,
    Tensors,
    find_roles,
    prepare_product,
)
from lamella.kernels.build import Builder
from lamella.kernels.fragments import COLUMNS, DEPTH, FACTORS, SUMS
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import CoopApply, CoopLoad, Coopmatrix, CoopMulAdd, If, Scalar, Value
from lamella.lang.tensor.nodes.types import BOOL, INDEX

LANE = Scalar("i32")
MOST_WASTE = 6
"""The most columns that are computed for each that is stored."""
MOST_STEPS = 512
"""The most copies along the sum that are unrolled."""
ROW, COLUMN = "row tile", "column tile"


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """A spatial dimension: the loop of the output along it, that of the taps, and the stride."""

    loop: str
    tap: str
    """Empty where there is one tap."""
    stride: int
    size: int
    """Pixels, zeros round them included."""
    first: int
    """Where the first window begins."""


@dataclass(frozen=True, slots=True)
class ImplicitGemm:
    """A convolution cut into tiles for tensor cores."""

    found: PreparedProduct
    row: str
    channel: str
    axes: tuple[WindowAxis, ...]
    """From the outermost to the closest."""
    image: Access
    image_key: Key
    weight: Access
    weight_key: Key
    rows: int
    subgroups: int
    parts: int = 1
    """Split-K: parts of the sum that are work-groups of their own; the output then holds partial sums."""

    @property
    def packing(self) -> tuple[str, ...]:
        """The loops along which weights are packed K-major."""
        return (self.row, *(item.tap for item in self.axes if item.tap), self.channel)

    @property
    def depth(self) -> int:
        """K: the length of the sum over channels and taps."""
        return prod(self.found.extents[name] for name in self.packing[1:])

    @property
    def pixels(self) -> int:
        """Pixels of all images, padding included."""
        return prod(item.size for item in self.axes)

    @property
    def pitch(self) -> int:
        """Elements from pixel to pixel."""
        *_, pixels, _ = (axis for axis in self.image.axes if axis.size > 1 or axis.index.symbols)
        return pixels.stride

    @property
    def columns(self) -> int:
        """Pixels up to the last one where a window begins."""
        last, pitch = 0, 1
        for item in reversed(self.axes):
            last += (self.found.extents.get(item.loop, 1) - 1) * item.stride * pitch
            pitch *= item.size
        return last + 1

    @property
    def tiles(self) -> tuple[int, int]:
        """How many tiles there are along the rows and along the columns."""
        rows = self.found.extents[self.row]
        return -(-rows // self.rows), -(-self.columns // (self.subgroups * COLUMNS))


def find_implicit_gemm(
    group: ProductGroup, tensors: Tensors, real: Scalar, target: Target, constant: frozenset[Key]
) -> ImplicitGemm:
    """The tiles of a convolution as an implicit GEMM; Unsupported says why there are none."""
    if not target.has_warpgroups or real.name != SUMS:
        raise Unsupported("there are no warpgroups for it")
    found = prepare_product(group, tensors, real)
    elements = {item.element for item in found.factors}
    if len(elements) > 1 or not elements <= set(FACTORS) or found.scales:
        raise Unsupported("its factors are no halves")
    if any(map(is_open, found.extents.values())):
        raise Unsupported("its extents are open")
    roles, flipped = find_roles(found.outputs, *found.factors, found.extents, set())
    weight, image = found.factors[flipped], found.factors[not flipped]
    channel = roles.sums[-1]
    if roles.batch or found.keys[flipped] not in constant or found.extents.get(channel, 1) % STEP:
        raise Unsupported("it is no convolution of enough channels")
    axes = _window_axes(image, channel, set(roles.sums[:-1]))
    plan = ImplicitGemm(
        found, roles.row, channel, axes, image, found.keys[not flipped], weight, found.keys[flipped], 64, 4
    )
    loops = {item.loop for item in axes if item.loop}
    if loops != set(roles.columns) or {item.tap for item in axes if item.tap} != set(roles.sums[:-1]):
        raise Unsupported("its windows have other loops")
    useful = prod(found.extents[name] for name in roles.columns)
    if plan.columns > MOST_WASTE * useful or plan.depth > STEP * MOST_STEPS or plan.columns < COLUMNS:
        raise Unsupported("too little of what would be computed is wanted")
    rows, subgroups = order_tiles((found.extents[roles.row], plan.columns), 1, target)[0]
    return replace(plan, rows=rows, subgroups=subgroups)


def _window_axes(image: Access, channel: str, taps: set[str]) -> tuple[WindowAxis, ...]:
    """The spatial dimensions of an image that lies densely, channels contiguous."""
    *others, last = (axis for axis in image.axes if axis.size > 1 or axis.index.symbols)
    if last.stride != 1 or last.index != Affine(0, ((channel, 1),)) or not others:
        raise Unsupported("channels do not lie closest")
    found, stride = [], others[-1].stride
    for axis in reversed(others):
        here = [name for name in axis.index.symbols if name in taps]
        loops = [name for name in axis.index.symbols if name not in taps]
        unit = all(axis.index.coefficient(name) == 1 for name in here)
        if axis.stride != stride or axis.ring or len(here) > 1 or len(loops) > 1 or not unit:
            raise Unsupported("its windows are no shifts of pixels")
        step = axis.index.coefficient(loops[0]) if loops else 1
        loop, tap = (item[0] if item else "" for item in (loops, here))
        found.append(WindowAxis(loop, tap, step, axis.size, axis.index.constant))
        stride *= axis.size
    if prod(item.size for item in found) < COLUMNS or others[-1].stride % GRAIN:
        raise Unsupported("it is a small image")
    return tuple(reversed(found))


def write_implicit_gemm(plan: ImplicitGemm, tensors: Tensors) -> list[TileKernel]:
    """The kernels of a convolution, in the order in which they run."""
    packed = write_k_major_pack(plan.weight, (plan.weight_key, PACKED), plan.packing, plan.found.extents)
    return [packed, _ImplicitGemmWriter(plan, tensors).write()]


@dataclass(slots=True)
class _ImplicitGemmWriter:
    """Writes the kernel of a convolution."""

    plan: ImplicitGemm
    tensors: Tensors
    parameters: Parameters = field(default_factory=Parameters)
    accesses: dict[int, Access] = field(default_factory=dict)
    places: dict[str, Value] = field(default_factory=dict)
    """The part of the sum of a work-group, with split-K."""

    def write(self) -> TileKernel:
        """Write it."""
        plan, found = self.plan, self.plan.found
        for item in found.stored:
            for key in item.accesses:
                self.accesses[key] = self.parameters.add(item.keys[key], found.accesses[key])
        channels, rows = found.extents[plan.channel], found.extents[plan.row]
        weight = self._matrix(PACKED, plan.weight, (rows, plan.depth), plan.depth)
        image = self._matrix(plan.image_key, plan.image, (plan.pixels, channels), plan.pitch)
        builder = self.parameters.builder()
        row_tiles, column_tiles = plan.tiles
        with builder.parallel() as region:
            sizes = {PART: plan.parts, ROW: row_tiles, COLUMN: column_tiles}
            parts = [PART] if plan.parts > 1 else []
            values = delinearize_group(region, [*parts, ROW, COLUMN], sizes)
            row = region.arith("mul", values[ROW], region.constant(plan.rows))
            subgroup = region.cast(region.builtin("subgroup_id", LANE), INDEX)
            own = region.arith("mul", subgroup, region.constant(COLUMNS))
            start = region.arith("mul", values[COLUMN], region.constant(plan.subgroups * COLUMNS))
            column = region.arith("add", start, own)
            self.places = {name: values[name] for name in parts}
            total = self._sum(region, (weight, image), (row, column))
            for end in found.epilogues:
                self._finish(region, end, (row, column), total)
        outputs = [self.accesses[id(end.formula.targets[0])].memref for end in found.stored]
        groups = plan.parts * row_tiles * column_tiles
        kernel = promise_pairs(self.parameters.close(builder, groups), outputs)
        return replace(kernel, attributes=group_sizes(plan.subgroups))

    def _matrix(self, key: Key, access: Access, shape: tuple[int, int], stride: int) -> Value:
        """A tensor as a matrix, the second dimension closest."""
        rows, columns = shape
        axes = (Axis(rows, stride, Affine(0)), Axis(columns, 1, Affine(0)))
        return self.parameters.add(key, replace(access, axes=axes)).memref

    def _sum(self, builder: Builder, sides: tuple[Value, Value], start: tuple[Value, Value]) -> Value:
        """The loop over K, channels and taps: a tap shifts the pixels."""
        plan, element = self.plan, self.plan.weight.element
        channels = plan.found.extents[plan.channel]
        sums = Coopmatrix(SUMS, plan.rows, COLUMNS, "matrix_acc")
        zero = builder.constant(0.0, sums)
        bounds = split_bounds(builder, plan.depth, plan.parts, self.places)
        with builder.loop(*bounds, builder.constant(DEPTH), carried=[(zero, sums)]) as loop:
            body, k = loop.body, loop.variable
            channel, pixel = k, start[1]
            if plan.depth > channels:
                channel = body.arith("rem", k, body.constant(channels))
                pixel = self._shift(body, body.arith("div", k, body.constant(channels)), pixel)
            elif self._first:
                pixel = body.arith("add", pixel, body.constant(self._first))
            left = Coopmatrix(element, plan.rows, DEPTH, "matrix_a")
            right = Coopmatrix(element, DEPTH, COLUMNS, "matrix_b")
            a = body.value(CoopLoad(sides[0], k, start[0], left, True, "both"))
            b = body.value(CoopLoad(sides[1], channel, pixel, right, False, "both"))
            body.give(body.value(CoopMulAdd(a, b, loop.carried[0], sums)))
        return loop.results[0]

    @property
    def _first(self) -> int:
        """The pixel of the first window."""
        found, pitch = 0, 1
        for item in reversed(self.plan.axes):
            found, pitch = found + item.first * pitch, pitch * item.size
        return found

    def _shift(self, builder: Builder, tap: Value, pixel: Value) -> Value:
        """The shift of pixels of a tap, whose closest dimension counts first."""
        pitch = 1
        if self._first:
            pixel = builder.arith("add", pixel, builder.constant(self._first))
        for item in reversed(self.plan.axes):
            if item.tap:
                count = builder.constant(self.plan.found.extents[item.tap])
                step = builder.arith("rem", tap, count)
                tap = builder.arith("div", tap, count)
                moved = builder.arith("mul", step, builder.constant(pitch))
                pixel = builder.arith("add", pixel, moved)
            pitch *= item.size
        return pixel

    def _finish(self, builder: Builder, end: Epilogue, start: tuple[Value, Value], total: Value) -> None:
        """The epilogue: store an output in each of its types, where a window begins at the pixel of a column.

        All of it is computed before, so that no load waits for a store.
        """
        targets = [item.formula.targets[0] for item in (end, *self.plan.found.copies_of(end))]
        accesses = [self.accesses[id(target)] for target in targets]
        for access in accesses:
            verify_output(access)
        type_ = Coopmatrix(SUMS, self.plan.rows, COLUMNS, "matrix_acc")
        if end.formula.values[0] is not end.formula.targets[0]:
            inner, (row, place, value) = builder.inner(), [builder.names.new() for _ in range(3)]
            here, _ = self._places(inner, start, (row, place))
            writing = EpilogueWriter(Scalar(SUMS), self.tensors, end.extents, [inner])
            writing.accesses, writing.loops = self.accesses, here
            inner.give(writing.epilogue_value(end, self.plan.found.group.product.targets[0].tensor, value))
            total = builder.value(CoopApply(row, place, value, total, type_, inner.region()))
        inner, (row, place, value) = builder.inner(), [builder.names.new() for _ in range(3)]
        here, exists = self._places(inner, start, (row, place))
        then = inner.inner()
        for access in accesses:
            stored = value if access.element == SUMS else then.cast(value, Scalar(access.element))
            then.store(stored, access.memref, access.places(then, here))
        inner.put(If(exists, then.region()))
        inner.give(value)
        builder.value(CoopApply(row, place, value, total, type_, inner.region()))

    def _places(
        self, builder: Builder, start: tuple[Value, Value], place: tuple[Value, Value]
    ) -> tuple[dict[str, Value], Value]:
        """Where the loops stand at a component of a tile, and whether it is one of the output."""
        plan, rows = self.plan, self.plan.found.extents[self.plan.row]
        pixel = builder.arith("add", start[1], builder.cast(place[1], INDEX))
        here, exists = self._loops(builder, pixel)
        here |= self.places
        here[plan.row] = builder.arith("add", start[0], builder.cast(place[0], INDEX))
        if rows % plan.rows:
            exists.append(builder.compare("lt", here[plan.row], builder.constant(rows)))
            here[plan.row] = builder.arith("min", here[plan.row], builder.constant(rows - 1))
        whole = exists[0]
        for item in exists[1:]:
            whole = builder.arith("and", whole, item, type_=BOOL)
        return here, whole

    def _loops(self, builder: Builder, pixel: Value) -> tuple[dict[str, Value], list[Value]]:
        """The loops of the output at a pixel, never beyond their ends, and what holds where a window begins there."""
        here: dict[str, Value] = {}
        exists: list[Value] = []
        for number, item in enumerate(reversed(self.plan.axes)):
            place = pixel
            if number < len(self.plan.axes) - 1:
                size = builder.constant(item.size)
                place, pixel = builder.arith("rem", pixel, size), builder.arith("div", pixel, size)
            extent = self.plan.found.extents.get(item.loop, 1)
            if item.stride > 1:
                step = builder.constant(item.stride)
                rest = builder.arith("rem", place, step)
                exists.append(builder.compare("eq", rest, builder.constant(0)))
                place = builder.arith("div", place, step)
            exists.append(builder.compare("lt", place, builder.constant(extent)))
            if item.loop:
                last = builder.arith("min", place, builder.constant(extent - 1))
                here[item.loop] = builder.arith("max", last, builder.constant(0))
        return here, exists
