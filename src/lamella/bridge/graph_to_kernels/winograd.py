"""Winograd convolution F(2x2, 3x3): 16 products for 4 outputs of a 3x3 window, where a direct sum has 36.

    U = G w Gᵀ      once, when the model is loaded       V = Bᵀ x B       of each 4x4 tile of the input, tiles 2 apart
    M[k] = U[k] V[k], 16 products over the channels      y = Aᵀ M A       and the epilogue

G halves, and A and B only add, so that the error stays that of sums of a few times as many terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import prod

from lamella.base.affine import Affine
from lamella.base.dtype import F32
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis, form_value
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.terms import TensorView
from lamella.bridge.graph_to_kernels.tile_kernels import write_tiles
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel
from lamella.bridge.graph_to_kernels.tiled import Key, PreparedProduct, ProductGroup, Tensors, find_tiles
from lamella.kernels.build import Builder
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Scalar, Value
from lamella.lang.tensor.nodes.types import INDEX
from lamella.ops.formula import Apply, Contraction, Element, Index, Loop

WINOGRAD = ".winograd"
"""How the names of its temporaries begin."""
WEIGHTS, TILES, SUMS = (f"{WINOGRAD}.{word}" for word in ("weights", "tiles", "sums"))
LANES = 16
"""Work-items of a subgroup."""
LANE = Scalar("i32")
BYTES = 4
REAL = Scalar("f32")
STEP, SIDE, WINDOW = 2, 4, 3
POINTS = SIDE * SIDE
FEWEST_CHANNELS = 16
"""C O / (C + O) for C channels in and O out, from which on the products that are saved outweigh what is moved more."""
FEWEST_TILES = 36
"""Tiles for which it is worth reading 16 numbers for each weight where there were 9."""
STRIP_BYTES = 2 << 20
"""Bytes of tiles and sums that still lie near; rows of tiles that take more are several strips, one after the other."""
POINT = "point"


@dataclass(frozen=True, slots=True)
class WinogradProduct:
    """A convolution by tiles of 4x4 numbers."""

    found: PreparedProduct
    weight: int
    """Which factor is the weight."""
    row: str
    """The channels of the output."""
    channel: str
    batch: tuple[str, ...]
    columns: tuple[str, str]
    windows: tuple[str, str]

    @property
    def strips(self) -> int:
        """The number of strips of rows of tiles, all of the same height."""
        rows, across = (self.found.extents[name] // STEP for name in self.columns)
        channels = self.found.extents[self.row], self.found.extents[self.channel]
        row = across * prod(self.found.extents[name] for name in self.batch) * sum(channels)
        # Each strip reads all weights again.
        near = max(STRIP_BYTES, 2 * BYTES * POINTS * prod(channels))
        fits = (count for count in range(1, rows) if rows % count == 0)
        return next((count for count in fits if BYTES * POINTS * row * rows <= near * count), rows)

    @property
    def extents(self) -> dict[str, int]:
        """The extents of all loops, those of the columns counted in tiles of a strip."""
        halves = {name: self.found.extents[name] // STEP for name in self.columns}
        halves[self.columns[0]] //= self.strips
        return {**self.found.extents, **halves, POINT: POINTS}

    def in_strip(self, access: Access) -> Access:
        """An access as the first strip has it: a shorter view."""
        name = self.columns[0]
        less = self.found.extents[name] - STEP * self.extents[name]
        return replace(
            access,
            axes=tuple(
                replace(axis, size=axis.size - less * axis.index.coefficient(name)) for axis in access.axes
            ),
        )

    def move(self, access: Access) -> int:
        """The offset from one strip to the next, in elements."""
        return access.stride(self.columns[0]) * STEP * self.extents[self.columns[0]]

    def access(self, *names: str) -> Access:
        """A temporary whose dimensions are these loops, the last one the closest."""
        axes, stride = [], 1
        for name in reversed(names):
            axes.append(Axis(self.extents[name], stride, Affine(0, ((name, 1),))))
            stride *= self.extents[name]
        return Access(Value("t"), REAL.name, tuple(reversed(axes)))

    @property
    def weights(self) -> Access:
        """The transformed weight."""
        return self.access(POINT, self.row, self.channel)

    @property
    def tiles(self) -> Access:
        """The transformed input."""
        return self.access(POINT, *self.batch, *self.columns, self.channel)

    @property
    def sums(self) -> Access:
        """The products, before they are transformed back."""
        return self.access(POINT, *self.batch, *self.columns, self.row)


def _find_winograd(found: PreparedProduct, real: Scalar, constant: frozenset[Key]) -> WinogradProduct:
    """The plan of a convolution; Unsupported where it is none of windows of 3x3, or would not gain by it."""
    elements = {item.element for item in (*found.factors, *found.outputs)}
    weight = next((place for place in (0, 1) if found.keys[place] in constant), 2)
    if found.scales or real != REAL or elements != {REAL.name} or weight == 2:
        raise Unsupported("its numbers are not of 32 bits, or its weight changes")
    factor, other, output = found.factors[weight], found.factors[1 - weight], found.outputs[0]
    ordered = sorted(
        (name for name in found.extents if output.stride(name)), key=lambda name: -output.stride(name)
    )
    sums = [name for name in found.extents if name not in ordered]
    windows = [name for name in sums if found.extents[name] == WINDOW and _partner(other, name)]
    channel = [name for name in sums if name not in windows]
    if len(ordered) < 3 or len(windows) != 2 or len(channel) != 1:
        raise Unsupported("it is no convolution of two dimensions")
    if _partner(other, windows[0]) != ordered[-3]:
        windows.reverse()
    columns, batch, row = (ordered[-3], ordered[-2]), tuple(ordered[:-3]), ordered[-1]
    if tuple(_partner(other, name) for name in windows) != columns:
        raise Unsupported("its loops are not those of a convolution")
    plan = WinogradProduct(found, weight, row, channel[0], batch, columns, (windows[0], windows[1]))
    _verify(plan, factor, other)
    return plan


def _partner(access: Access, window: str) -> str:
    """The loop that counts, step by step, the same mode as a window does, and nothing else; empty where none is."""
    axis = access.axis(window)
    if axis is None or len(axis.index.terms) != 2 or any(factor != 1 for _, factor in axis.index.terms):
        return ""
    partner = next(name for name in axis.index.symbols if name != window)
    return partner if access.axis(partner) is axis else ""


def _verify(plan: WinogradProduct, factor: Access, other: Access) -> None:
    extents = plan.found.extents
    if any(item.stride(plan.row) != 1 for item in plan.found.outputs) or other.stride(plan.channel) != 1:
        raise Unsupported("its channels do not lie closest")
    if other.loops() != {plan.channel, *plan.batch, *plan.columns, *plan.windows}:
        raise Unsupported("its loops are not those of a convolution")
    if factor.loops() != {plan.channel, plan.row, *plan.windows}:
        raise Unsupported("its loops are not those of a convolution")
    channels = extents[plan.row], extents[plan.channel]
    if any(count % LANES for count in channels) or prod(channels) < FEWEST_CHANNELS * sum(channels):
        raise Unsupported("it has few channels")
    tiles = prod(extents[name] for name in (*plan.batch, *plan.columns)) // STEP**2
    if any(extents[name] % STEP for name in plan.columns) or tiles < FEWEST_TILES:
        raise Unsupported("its tiles are few, or not whole")


# --- kernels --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StripKernel:
    """A kernel of a strip, and how far each of its parameters moves from strip to strip."""

    kernel: TileKernel
    moves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WinogradKernels:
    """The kernels of a convolution: those of its weight, and those that each strip needs, in order."""

    weights: tuple[TileKernel, ...]
    strip: tuple[StripKernel, ...]
    strips: int


def write_winograd(
    found: PreparedProduct, tensors: Tensors, real: Scalar, target: Target, constant: frozenset[Key]
) -> WinogradKernels:
    """The kernels of a convolution; Unsupported where it is none of windows of 3x3, or would not gain by it."""
    plan = _find_winograd(found, real, constant)
    *packed, product = _write_products(plan, target)
    fixed = StripKernel(product, (0,) * len(product.parameters))
    strip = _write_input(plan), fixed, _OutputWriter(plan, tensors).write()
    return WinogradKernels((_write_weights(plan), *packed), strip, plan.strips)


@dataclass(slots=True)
class _StripParameters:
    """The parameters of a kernel of a strip while it is written."""

    plan: WinogradProduct
    found: Parameters = field(default_factory=Parameters)
    moves: dict[Value, int] = field(default_factory=dict)

    def add(self, key: Key, access: Access) -> Access:
        """A tensor of the graph, as a strip sees it."""
        found = self.found.add(key, self.plan.in_strip(access))
        self.moves[found.memref] = self.plan.move(access)
        return found

    def close(self, builder: Builder, groups: int) -> StripKernel:
        """The kernel of what was written."""
        kernel = self.found.close(builder, groups)
        return StripKernel(kernel, tuple(self.moves.get(item.value, 0) for item in kernel.parameters))


def _indices(
    builder: Builder, access: Access, values: Mapping[str, Value], shift: Mapping[str, int]
) -> list[Value]:
    """The indices of an access some steps on."""
    found = []
    for axis in reversed(access.axes):
        more = sum(axis.index.coefficient(name) * step for name, step in shift.items())
        kept = tuple(item for item in axis.index.terms if item[0] in values)
        found.append(form_value(builder, Affine(axis.index.constant + more, kept), values))
    return found


def _transform(builder: Builder, matrix: Sequence[Sequence[Value]], rows: str) -> list[list[Value]]:
    """`T m Tᵀ`, first the columns, then the rows; `rows` names T."""
    across = [TRANSFORMS[rows](builder, list(column)) for column in zip(*matrix, strict=True)]
    return [TRANSFORMS[rows](builder, list(row)) for row in zip(*across, strict=True)]


def _add(builder: Builder, *pair: Value) -> Value:
    return builder.arith("add", *pair, type_=REAL)


def _sub(builder: Builder, *pair: Value) -> Value:
    return builder.arith("sub", *pair, type_=REAL)


def _of_weights(builder: Builder, w: list[Value]) -> list[Value]:
    """G: w0, (w0 + w1 + w2) / 2, (w0 - w1 + w2) / 2, w2."""
    half = builder.constant(0.5, REAL)
    outer = _add(builder, w[0], w[2])
    both = [_add(builder, outer, w[1]), _sub(builder, outer, w[1])]
    return [w[0], *(builder.arith("mul", item, half, type_=REAL) for item in both), w[2]]


def _of_input(builder: Builder, x: list[Value]) -> list[Value]:
    """Bᵀ: x0 - x2, x1 + x2, x2 - x1, x1 - x3."""
    return [
        _sub(builder, x[0], x[2]),
        _add(builder, x[1], x[2]),
        _sub(builder, x[2], x[1]),
        _sub(builder, x[1], x[3]),
    ]


def _of_output(builder: Builder, m: list[Value]) -> list[Value]:
    """Aᵀ: m0 + m1 + m2, m1 - m2 - m3."""
    first = _add(builder, m[0], _add(builder, m[1], m[2]))
    return [first, _sub(builder, _sub(builder, m[1], m[2]), m[3])]


TRANSFORMS = {"G": _of_weights, "B": _of_input, "A": _of_output}


def _write_weights(plan: WinogradProduct) -> TileKernel:
    parameters, found = Parameters(), plan.found
    target = parameters.add((WEIGHTS, None), plan.weights)
    source = parameters.add(found.keys[plan.weight], found.factors[plan.weight])
    builder = parameters.builder()
    values = delinearize_group(builder, [plan.row], plan.extents)
    with builder.foreach([builder.constant(plan.extents[plan.channel])]) as (inner, (channel,)):
        here = {plan.row: values[plan.row], plan.channel: channel}
        window = [
            [
                inner.load(
                    source.memref,
                    _indices(inner, source, here, dict(zip(plan.windows, (i, j), strict=True))),
                    REAL,
                )
                for j in range(WINDOW)
            ]
            for i in range(WINDOW)
        ]
        _store_points(inner, target, here, _transform(inner, window, "G"))
    return parameters.close(builder, plan.extents[plan.row])


def _store_points(
    builder: Builder, target: Access, values: Mapping[str, Value], found: Sequence[Sequence[Value]]
) -> None:
    for number, value in enumerate(item for row in found for item in row):
        builder.store(value, target.memref, _indices(builder, target, values, {POINT: number}))


def _write_input(plan: WinogradProduct) -> StripKernel:
    parameters, found = _StripParameters(plan), plan.found
    target = parameters.found.add((TILES, None), plan.tiles)
    source = parameters.add(found.keys[1 - plan.weight], found.factors[1 - plan.weight])
    builder = parameters.found.builder()

    def write(inner: Builder, here: dict[str, Value]) -> None:
        first = _first(inner, plan, here)
        tile = [
            [
                inner.load(
                    source.memref,
                    _indices(inner, source, first, dict(zip(plan.windows, (i, j), strict=True))),
                    REAL,
                )
                for j in range(SIDE)
            ]
            for i in range(SIDE)
        ]
        _store_points(inner, target, here, _transform(inner, tile, "B"))

    return parameters.close(builder, _each_tile(builder, plan, plan.channel, write))


def _first(builder: Builder, plan: WinogradProduct, values: Mapping[str, Value]) -> dict[str, Value]:
    """Where the first element of a tile is: columns counted in elements."""
    step = builder.constant(STEP)
    return {**values, **{name: builder.arith("mul", values[name], step) for name in plan.columns}}


def _each_tile(
    builder: Builder, plan: WinogradProduct, lane: str, write: Callable[[Builder, dict[str, Value]], None]
) -> int:
    """Write for each tile and block of lanes, a row of tiles in a work-group; gives the number of those."""
    outer, extents = [*plan.batch, plan.columns[0]], plan.extents
    values = delinearize_group(builder, outer, extents)
    with builder.parallel() as region:
        zero, blocks = region.constant(0), region.constant(extents[lane] // LANES)
        item = region.cast(region.builtin("subgroup_local_id", LANE), INDEX)
        with region.loop(zero, blocks) as block:
            begin = block.body.arith("mul", block.variable, block.body.constant(LANES))
            place = block.body.arith("add", begin, item)
            with block.body.loop(zero, block.body.constant(extents[plan.columns[1]])) as loop:
                write(loop.body, {**values, lane: place, plan.columns[1]: loop.variable})
    return prod(extents[name] for name in outer)


def _write_products(plan: WinogradProduct, target: Target) -> list[TileKernel]:
    """The 16 products, as one of batches."""
    loops = (POINT, *plan.batch, *plan.columns, plan.row, plan.channel)
    points = [POINT, *plan.batch, *plan.columns]

    def element(tensor: str, *given: str) -> Element:
        return Element(tensor, tuple(Index(name) for name in given), "real")

    pair = element(WEIGHTS, POINT, plan.row, plan.channel), element(TILES, *points, plan.channel)
    product = Contraction(
        (element(SUMS, *points, plan.row),),
        "+=",
        (Apply("*", pair, "real"),),
        tuple(Loop(name, plan.extents[name]) for name in loops),
    )
    tensors: dict[Key, TensorView] = {
        (name, None): TensorView(Value(name), F32, tuple(axis.size for axis in access.axes))
        for name, access in ((WEIGHTS, plan.weights), (TILES, plan.tiles), (SUMS, plan.sums))
    }
    tiled = find_tiles(ProductGroup(product), tensors, REAL, target, frozenset([(WEIGHTS, None)]))
    return write_tiles(tiled, tensors)


@dataclass(slots=True)
class _OutputWriter:
    """The kernel that transforms products back, and makes the outputs of them."""

    plan: WinogradProduct
    tensors: Tensors
    accesses: dict[int, Access] = field(default_factory=dict)
    sums: Access = field(init=False)

    def write(self) -> StripKernel:
        """Write it."""
        found, parameters = self.plan.found, _StripParameters(self.plan)
        for end in found.epilogues:
            for key in end.accesses:
                self.accesses[key] = parameters.add(end.keys[key], found.accesses[key])
        self.sums = parameters.found.add((SUMS, None), self.plan.sums)
        builder = parameters.found.builder()
        return parameters.close(builder, _each_tile(builder, self.plan, self.plan.row, self._tile))

    def _tile(self, builder: Builder, values: dict[str, Value]) -> None:
        loaded = [
            [
                builder.load(
                    self.sums.memref, _indices(builder, self.sums, values, {POINT: SIDE * i + j}), REAL
                )
                for j in range(SIDE)
            ]
            for i in range(SIDE)
        ]
        first = _first(builder, self.plan, values)
        for i, row in enumerate(_transform(builder, loaded, "A")):
            for j, total in enumerate(row):
                moved = {
                    name: builder.arith("add", first[name], builder.constant(step)) if step else first[name]
                    for name, step in zip(self.plan.columns, (i, j), strict=True)
                }
                self._finish(builder, {**first, **moved}, total)

    def _finish(self, builder: Builder, values: dict[str, Value], total: Value) -> None:
        target = self.plan.found.group.product.targets[0].tensor
        for end in self.plan.found.epilogues:
            formula, value = end.formula, total
            if formula.values[0] is not formula.targets[0]:
                writing = EpilogueWriter(REAL, self.tensors, end.extents, [builder])
                writing.accesses, writing.loops = self.accesses, values
                value = writing.epilogue_value(end, target, total)
            access = self.accesses[id(formula.targets[0])]
            builder.store(value, access.memref, access.places(builder, values))
