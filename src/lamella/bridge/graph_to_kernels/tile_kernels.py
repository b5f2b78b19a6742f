"""The kernels of a tiled contraction: one that packs the row operand where it must be, and the product itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from lamella.base.codes import LOWEST_CODE
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.bridge.graph_to_kernels.accesses import (
    Access,
    Matrix,
    matrix_view,
)
from lamella.bridge.graph_to_kernels.accumulator_init import bias_as_initial_sum
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.terms import TensorView
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel
from lamella.bridge.graph_to_kernels.tiled import (
    PAIR,
    PANEL,
    PART_PANELS,
    Epilogue,
    Key,
    Scale,
    TiledProduct,
)
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import (
    Cast,
    CoopApply,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopStore,
    If,
    Memref,
    Scalar,
    Slice,
    Value,
)
from lamella.lang.tensor.nodes.types import FLOATS, INDEX

PACKED: Key = (".packed", None)
"""The temporary of the packed operand."""
SCALE = ".scale"
"""How the names of temporaries of scales begin."""
COPIED, COPIED_ONCE = 16, 4
"""Columns that packing copies at a time, in every run and once: the shorter code is compiled in half the time, and no
slower where weights come from memory."""
NARROWER = 4
"""Columns of the tiles behind the whole ones, where the number of columns is open."""
STRAIGHT = 4
"""Steps of the inner sum that are unrolled without a loop."""
DEPTHS = (2, 1)
"""Unrolling factors of the inner sum, whichever divides it first."""
THREAD_DEPTHS = (8, 4, 2, 1)
"""The same on GPUs, where all loads of a trip are in flight at once."""
QUAD = 4
QUAD_DEPTHS = (16, 8, QUAD)
"""The same where four products are added at a time."""
LANE = Scalar("i32")


def write_tiles(tiled: TiledProduct, tensors: Mapping[Key, TensorView]) -> list[TileKernel]:
    """The kernels of a tiled contraction, in the order in which they run."""
    found = [write_pack(tiled, PACKED)] if tiled.packed else []
    scales = []
    for number, scale in enumerate(tiled.scales):
        along = scale.access.loops().intersection(tiled.roles.sums)
        if scale.fixed and along and scale.access.stride(tiled.roles.row) > 1:
            # Lanes are rows: scales that lie along the sum would be gathered.
            key, side = (f"{SCALE}{number}", None), tiled.side(scale)
            found.append(write_pack(side, key))
            scale = Scale(key, side.packed_access(Value("scale")), packed=True)
        scales.append(scale)
    tiled, start = replace(tiled, scales=tuple(scales)), None
    if not scales:
        target = tiled.group.product.targets[0].tensor
        epilogues, start = bias_as_initial_sum(tiled.epilogues, target, tiled.accesses, tiled.roles.columns)
        tiled = replace(tiled, epilogues=epilogues)
    return [*found, ProductWriter(tiled, tensors, start=start).write()]


# --- packing --------------------------------------------------------------------------------------------------


def write_pack(tiled: TiledProduct, key: Key) -> TileKernel:
    """A kernel that packs the row operand into panels; a work-group packs one panel."""
    parameters, roles = Parameters(), tiled.roles
    packed = parameters.add(key, tiled.packed_access(Value("packed")))
    sources = [parameters.add(tiled.row_key, item) for item in tiled.steps(tiled.row_factor)]
    builder = parameters.builder()
    batch = [name for name in roles.batch if tiled.row_factor.stride(name)]
    sizes = {**tiled.extents, PANEL: tiled.panels}
    values = delinearize_group(builder, [*batch, PANEL], sizes)
    _begin_rows(builder, tiled, values)
    groups = 1
    for name in (*batch, PANEL):
        groups *= sizes[name]

    def copy(inner: Builder, height: int) -> None:
        _copy_sums(inner, tiled, (sources, packed), dict(values), height, roles.sums)

    with builder.parallel() as region:
        each_height(region, tiled, values, copy)
    return parameters.close(builder, groups)


def _copy_sums(
    builder: Builder,
    tiled: TiledProduct,
    sides: tuple[Sequence[Access], Access],
    values: dict[str, Value],
    height: int,
    sums: Sequence[str],
) -> None:
    name, extent = sums[0], tiled.extents[sums[0]]
    if len(sums) > 1:
        with builder.loop(builder.constant(0), builder.constant(extent)) as loop:
            _copy_sums(loop.body, tiled, sides, {**values, name: loop.variable}, height, sums[1:])
        return
    extent //= len(sides[0])
    copied = COPIED_ONCE if tiled.fixed else COPIED
    full = extent // copied * copied
    if full or is_open(full):
        step = builder.constant(copied)
        with builder.loop(builder.constant(0), builder.constant(full), step) as loop:
            _copy_block(loop.body, tiled, sides, {**values, name: loop.variable}, (height, copied))
    if is_open(extent):
        with builder.loop(builder.constant(full), builder.constant(extent)) as loop:
            _copy_block(loop.body, tiled, sides, {**values, name: loop.variable}, (height, 1))
    elif full < extent:
        rest = {**values, name: builder.constant(full)}
        _copy_block(builder, tiled, sides, rest, (height, extent - full))


def _copy_block(
    builder: Builder,
    tiled: TiledProduct,
    sides: tuple[Sequence[Access], Access],
    values: Mapping[str, Value],
    shape: tuple[int, int],
) -> None:
    full, inner = tiled.whole(shape[0]), tiled.roles.sums[-1]
    spans = [(tiled.roles.row, shape[0]), (inner, shape[1])]
    target = panel_view(builder, tiled, sides[1], values, full)
    zero = builder.constant(0)
    type_ = Coopmatrix(tiled.row_factor.element, full, shape[1], "matrix_a")
    loaded = [
        _load(builder, matrix_view(builder, item, spans, values), (0, 0), type_, shape[0])
        for item in sides[0]
    ]
    value = _join_nibbles(builder, (loaded[0], loaded[1]), type_) if tiled.nibbles else loaded[0]
    builder.put(CoopStore(value, target, zero, values[inner]))


WORD = "i32"
"""The type in which codes of 4 bits are taken apart."""


def _join_nibbles(builder: Builder, codes: tuple[Value, Value], type_: Coopmatrix) -> Value:
    """Two 4-bit codes in a byte: 16 high + (low mod 16)."""
    wide = replace(type_, element=WORD)
    first, second = (builder.cast(item, wide) for item in codes)
    sign = builder.arith("shr", first, builder.constant(3, wide), type_=wide)
    above = builder.arith("sub", second, sign, type_=wide)
    sixteen = builder.constant(16, wide)
    whole = builder.arith("add", first, builder.arith("mul", above, sixteen, type_=wide), type_=wide)
    return builder.cast(whole, type_)


def _split_nibbles(builder: Builder, value: Value, type_: Coopmatrix) -> list[Value]:
    """The 4-bit codes of bytes, the low ones and the high ones, as 32-bit integers."""
    wide = replace(type_, element=WORD)
    whole, top = builder.cast(value, wide), builder.constant(28, wide)
    low = builder.arith("shr", builder.arith("shl", whole, top, type_=wide), top, type_=wide)
    return [low, builder.arith("shr", whole, builder.constant(4, wide), type_=wide)]


def _look_up(builder: Builder, codes: Value, type_: Coopmatrix, numbers: Sequence[float]) -> Value:
    """Dequantise codes by a lookup table."""
    row, column, code = (builder.names.new() for _ in range(3))
    inner, real = builder.inner(), Scalar(type_.element)
    found = inner.constant(numbers[-1], real)
    for place, number in reversed(list(enumerate(numbers[:-1]))):
        equal = inner.compare("eq", code, inner.constant(float(LOWEST_CODE + place), real))
        found = inner.arith("select", equal, inner.constant(number, real), found, type_=real)
    inner.give(found)
    return builder.value(CoopApply(row, column, code, codes, type_, inner.region()))


def panel_view(
    builder: Builder, tiled: TiledProduct, access: Access, values: Mapping[str, Value], rows: int
) -> Value:
    """The rows of a packed panel, all steps of the inner sum; pairs are a mode of their own."""
    counts = {PAIR: tiled.pack, tiled.roles.row: rows}
    counts[tiled.roles.sums[-1]] = tiled.extents[tiled.roles.sums[-1]] // tiled.folded
    slices, kept = [], []
    for axis in reversed(access.axes):
        name = next(iter(axis.index.symbols))
        slices.append(Slice(0, counts[name]) if name in counts else Slice(values[name]))
        kept += [(counts[name], axis.stride)] if name in counts else []
    sizes, strides = zip(*kept, strict=True)
    return builder.subview(access.memref, slices, Memref(access.element, sizes, strides))


# --- the product ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tile:
    """A register tile of sums, the loop of its columns, and how many of its rows there are."""

    column: str
    type: Coopmatrix
    height: int

    @property
    def checked(self) -> str:
        """The bounds check that a store of it needs."""
        return "" if self.height == self.type.rows and not is_open(self.height) else "rows"


@dataclass(slots=True)
class ProductWriter:
    """Writes the kernel of a product."""

    tiled: TiledProduct
    tensors: Mapping[Key, TensorView]
    parameters: Parameters = field(default_factory=Parameters)
    own: frozenset[Key] = frozenset()
    """Tensors in local memory, which are no parameters."""
    packed: Key = PACKED
    """The packed factor."""
    accesses: dict[int, Access] = field(default_factory=dict)
    rows: Access = field(init=False)
    columns: list[Access] = field(init=False)
    """The column factor, for each step of the inner sum that a step of the packed factor holds."""
    scales: list[Scale] = field(default_factory=list)
    start: Epilogue | None = None
    """The initial value of the sums, where it is not 0."""
    tiles: tuple[Value, Value] | None = None
    """The first tile of columns, and the one behind the last, where not all of them are computed."""
    steps: tuple[Value, Value, int] | None = None
    """The first group of steps of the inner sum, the one behind the last, and how many steps a group has, likewise."""
    resumed: bool = False
    """Whether sums accumulate into what the output holds."""

    def write(self) -> TileKernel:
        """Write it."""
        tiled = self.tiled
        self.bind(tiled.packed_access(Value("packed")) if tiled.packed else None)
        builder = self.parameters.builder()
        block = [] if tiled.blocks == 1 and not is_open(tiled.blocks) else ["block"]
        sizes = {**tiled.extents, "block": tiled.blocks, PANEL: tiled.panel_groups}
        values = delinearize_group(builder, [*tiled.shared, *block, PANEL], sizes)
        with builder.parallel() as region:
            if tiled.part:
                self._write_parts(region, values)
            else:
                self.write_panel(region, values)
        return self.parameters.close(builder, tiled.groups)

    def bind(self, packed: Access | None) -> None:
        """Make parameters of all tensors that are none of the kernel's own memory."""
        tiled = self.tiled
        for item in tiled.epilogues:
            for key in item.accesses:
                self.accesses[key] = self._parameter(item.keys[key], tiled.accesses[key])
        if packed is None:
            self.rows = self._parameter(tiled.row_key, tiled.row_factor)
        else:
            self.rows = self._parameter(self.packed, packed)
        self.columns = [self._parameter(tiled.column_key, item) for item in tiled.steps(tiled.column_factor)]
        self.scales = [replace(item, access=self._parameter(item.key, item.access)) for item in tiled.scales]

    def _parameter(self, key: Key, access: Access) -> Access:
        return access if key in self.own else self.parameters.add(key, access)

    def write_panels(self, builder: Builder, values: Mapping[str, Value]) -> None:
        """All panels, one after the other."""
        if self.tiled.panels == 1:
            self.write_panel(builder, {**values, PANEL: builder.constant(0)})
            return
        with builder.loop(builder.constant(0), builder.constant(self.tiled.panels)) as loop:
            self.write_panel(loop.body, {**values, PANEL: loop.variable})

    def _write_parts(self, builder: Builder, values: Mapping[str, Value]) -> None:
        """Some panels of a long sum, blocked along K: one part after the other, which accumulates in memory."""
        size, steps = self.tiled.part, self.tiled.extents[self.tiled.roles.sums[-1]]
        self.steps = builder.constant(0), builder.constant(1), size
        self._write_some_panels(builder, values)
        self.resumed = True
        with builder.loop(builder.constant(1), builder.constant(-(-steps // size))) as loop:
            behind = loop.body.arith("add", loop.variable, loop.body.constant(1))
            self.steps = loop.variable, behind, size
            self._write_some_panels(loop.body, values)

    def _write_some_panels(self, builder: Builder, values: Mapping[str, Value]) -> None:
        """The panels of a work-group that goes over several."""
        count = builder.constant(PART_PANELS)
        first = builder.arith("mul", values[PANEL], count)
        last = builder.arith("min", builder.arith("add", first, count), builder.constant(self.tiled.panels))
        with builder.loop(first, last) as loop:
            self.write_panel(loop.body, {**values, PANEL: loop.variable})

    def write_panel(self, builder: Builder, values: Mapping[str, Value]) -> None:
        """The columns of a work-group in one panel of rows."""
        places = dict(values)
        _begin_rows(builder, self.tiled, places)
        each_height(
            builder, self.tiled, places, lambda inner, height: self._walk(inner, dict(places), {}, height)
        )

    # --- columns ------------------------------------------------------------------------------------------------

    def _walk(self, builder: Builder, values: dict[str, Value], counts: dict[str, int], height: int) -> None:
        """The loops over the columns of a work-group, whole tiles first."""
        tiled = self.tiled
        place = tiled.blocked + len(counts)
        if place >= len(tiled.roles.columns):
            self._write_tile(builder, values, counts, height)
            return
        name, width = tiled.roles.columns[place], tiled.widths[place]
        if is_open(tiled.extents[name]):
            self._walk_open(builder, values, counts, height)
            return
        full, rest = divmod(tiled.extents[name], width)
        first, last = builder.constant(0), builder.constant(full)
        blocked = "block" in values and not counts
        if self.tiles is not None:
            first, last = self.tiles[0], builder.arith("min", self.tiles[1], last)
        if blocked:
            # Counted in tiles, so that it can be proved that the last one ends where the tensor does.
            tiles = builder.constant(tiled.block // width)
            first = builder.arith("mul", values["block"], tiles)
            last = builder.arith("min", builder.arith("add", first, tiles), last)
        if full == 1 and not blocked and self.tiles is None:
            self._walk(builder, {**values, name: first}, {**counts, name: width}, height)
        elif full:
            with builder.loop(first, last) as loop:
                position = loop.variable
                if width > 1:
                    position = loop.body.arith("mul", position, loop.body.constant(width))
                self._walk(loop.body, {**values, name: position}, {**counts, name: width}, height)
        if rest:
            with self._last_block(builder, values["block"] if blocked else None, full) as inner:
                behind = {**values, name: inner.constant(full * width)}
                self._walk(inner, behind, {**counts, name: rest}, height)

    def _walk_open(
        self, builder: Builder, values: dict[str, Value], counts: dict[str, int], height: int
    ) -> None:
        """A loop of columns whose number may be another: tiles of three widths, as many of each as there are."""
        tiled = self.tiled
        name = tiled.roles.columns[tiled.blocked + len(counts)]
        most, behind = tiled.widths[tiled.blocked + len(counts)], 0
        blocked = "block" in values and not counts
        for width in dict.fromkeys((most, min(NARROWER, most), 1)):
            count = (tiled.extents[name] - behind) // width
            first, last = builder.constant(0), builder.constant(count)
            start = builder.constant(behind)
            if blocked and width == most:
                tiles = builder.constant(tiled.block // width)
                first = builder.arith("mul", values["block"], tiles)
                last = builder.arith("min", builder.arith("add", first, tiles), last)
            with (
                self._last_block(builder, values["block"] if blocked and width < most else None) as inner,
                inner.loop(first, last) as loop,
            ):
                body = loop.body
                position = (
                    body.arith("mul", loop.variable, body.constant(width)) if width > 1 else loop.variable
                )
                position = body.arith("add", start, position)
                self._walk(body, {**values, name: position}, {**counts, name: width}, height)
            behind += count * width

    @contextmanager
    def _last_block(self, builder: Builder, block: Value | None, full: int = 0) -> Iterator[Builder]:
        """Where the tile behind the whole ones is written: in the last block only, and where it is wanted."""
        if self.tiles is not None:
            with builder.condition(builder.compare("lt", builder.constant(full), self.tiles[1])) as inner:
                yield inner
            return
        if block is None:
            yield builder
            return
        last = builder.constant(self.tiled.blocks - 1)
        with builder.condition(builder.compare("eq", block, last)) as inner:
            yield inner

    # --- a tile ---------------------------------------------------------------------------------------------------

    def _write_tile(
        self, builder: Builder, values: dict[str, Value], counts: Mapping[str, int], height: int
    ) -> None:
        column, width, pieces = self._pieces(builder, values, counts)
        tile = _Tile(
            column, Coopmatrix(self.tiled.real.name, self.tiled.whole(height), width, "matrix_acc"), height
        )
        start = builder.constant(0.0, tile.type)
        if self.start is not None:
            start = self._apply(builder, self.start, values, tile, start)
        starts = [self._held(builder, item, tile) if self.resumed else start for item in pieces]
        sums = self._sum(builder, pieces, tile, starts, self.tiled.roles.sums)
        for piece, total in zip(pieces, sums, strict=True):
            for end in self.tiled.epilogues:
                self._finish(builder, end, piece, tile, total)

    def _held(self, builder: Builder, values: Mapping[str, Value], tile: _Tile) -> Value:
        """What the output holds of a tile."""
        spans = (self.tiled.roles.row, tile.height), (tile.column, tile.type.columns)
        access = self.accesses[id(self.tiled.epilogues[0].formula.targets[0])]
        return _load(builder, matrix_view(builder, access, spans, values), (0, 0), tile.type, tile.height)

    def _pieces(
        self, builder: Builder, values: dict[str, Value], counts: Mapping[str, int]
    ) -> tuple[str, int, list[dict[str, Value]]]:
        """The matrices of a tile: the column loop of each, its width, and where each begins."""
        names = list(counts)
        if not names:
            return "", 1, [values]
        column = names[-1]
        second = names[-2] if len(names) > 1 else ""
        pieces = []
        for number in range(counts.get(second, 1)):
            place = dict(values)
            if number:
                place[second] = builder.arith("add", values[second], builder.constant(number))
            pieces.append(place)
        return column, counts[column], pieces

    def _sum(
        self,
        builder: Builder,
        pieces: Sequence[Mapping[str, Value]],
        tile: _Tile,
        start: Sequence[Value],
        sums: Sequence[str],
    ) -> list[Value]:
        """The sums of all register tiles: nested loops that carry them; scaled where no scale changes inside."""
        changing = {name for item in self.scales for name in item.access.loops()}
        outer = sum(name in changing for name in self.tiled.roles.sums)
        if not self.scales or len(sums) != len(self.tiled.roles.sums) - outer:
            return self._sum_loops(builder, pieces, tile, start, sums)
        whole = self._unscaled(builder, pieces, tile, sums)
        found = [self._scaled(builder, *pair, tile) for pair in zip(whole, pieces, strict=True)]
        if not outer:
            return found
        return [builder.arith("add", *pair, type_=tile.type) for pair in zip(start, found, strict=True)]

    def _unscaled(
        self, builder: Builder, pieces: Sequence[Mapping[str, Value]], tile: _Tile, sums: Sequence[str]
    ) -> list[Value]:
        """Sums from nothing on, of integers where both factors are."""
        if not self.tiled.is_integer:
            return self._sum_loops(
                builder, pieces, tile, [builder.constant(0.0, tile.type)] * len(pieces), sums
            )
        whole = replace(tile, type=replace(tile.type, element=WORD))
        zero = builder.constant(0, whole.type)
        found = self._sum_loops(builder, pieces, whole, [zero] * len(pieces), sums)
        return [builder.cast(item, tile.type) for item in found]

    def _scaled(self, builder: Builder, total: Value, values: Mapping[str, Value], tile: _Tile) -> Value:
        """Sums times the scales of their rows and columns."""
        row, place, value = (builder.names.new() for _ in range(3))
        inner, real = builder.inner(), self.tiled.real
        here = self._here(inner, values, tile, (row, place))
        found = value
        for scale in self.scales:
            inside = {**here, self.tiled.roles.row: inner.cast(row, INDEX)} if scale.packed else here
            factor = self._scale(inner, scale, inside, tile)
            found = inner.arith("mul", found, factor, type_=real)
        inner.give(found)
        return builder.value(CoopApply(row, place, value, total, tile.type, inner.region()))

    def _scale(self, builder: Builder, scale: Scale, values: Mapping[str, Value], tile: _Tile) -> Value:
        """A scale; rows that are not there have none, and touch no memory."""
        real, row, access = self.tiled.real, self.tiled.roles.row, scale.access
        if scale.packed or not tile.checked or row not in access.loops():
            return builder.load(access.memref, access.places(builder, values), real)
        inside = builder.compare("lt", values[row], builder.constant(self.tiled.extents[row]))
        then, otherwise, found = builder.inner(), builder.inner(), builder.names.new()
        then.give(then.load(access.memref, access.places(then, values), real))
        otherwise.give(otherwise.constant(0.0, real))
        builder.put(If(inside, then.region(), otherwise.region(), (real,)), (found,))
        return found

    def _here(
        self, builder: Builder, values: Mapping[str, Value], tile: _Tile, place: tuple[Value, Value]
    ) -> dict[str, Value]:
        """Where a component of a tile lies, by its row and column."""
        here, (row, column) = dict(values), place
        here[self.tiled.roles.row] = builder.arith(
            "add", values[self.tiled.roles.row], builder.cast(row, INDEX)
        )
        if tile.column:
            here[tile.column] = builder.arith("add", values[tile.column], builder.cast(column, INDEX))
        return here

    def _sum_loops(
        self,
        builder: Builder,
        pieces: Sequence[Mapping[str, Value]],
        tile: _Tile,
        start: Sequence[Value],
        sums: Sequence[str],
    ) -> list[Value]:
        name, extent = sums[0], self.tiled.extents[sums[0]]
        carried = [(value, tile.type) for value in start]
        if len(sums) == 1:
            return self._inner_sum(builder, pieces, tile, start)
        with builder.loop(builder.constant(0), builder.constant(extent), carried=carried) as loop:
            places = [{**piece, name: loop.variable} for piece in pieces]
            loop.body.give(*self._sum(loop.body, places, tile, loop.carried, sums[1:]))
        return loop.results

    def _inner_sum(
        self,
        builder: Builder,
        pieces: Sequence[Mapping[str, Value]],
        tile: _Tile,
        start: Sequence[Value],
    ) -> list[Value]:
        name = self.tiled.roles.sums[-1]
        extent = self.tiled.extents[name]
        zero = builder.constant(0)
        extent //= len(self.columns)
        spans = (name, extent), (tile.column, tile.type.columns)
        left = self._row_view(builder, {**pieces[0], name: zero}, tile)
        right = [
            [matrix_view(builder, access, spans, {**item, name: zero}) for access in self.columns]
            for item in pieces
        ]
        depths = QUAD_DEPTHS if self.tiled.pack == QUAD else THREAD_DEPTHS if self.tiled.threads else DEPTHS
        step = extent if extent <= STRAIGHT else next(item for item in depths if extent % item == 0)
        if is_open(extent):
            step = 1
        elif step == extent:
            return self._add_steps(builder, (left, right), (zero, step), tile, start)
        carried = [(value, tile.type) for value in start]
        if self.steps is not None:
            return self._some_steps(builder, (left, right), (extent // step, step), tile, start)
        with builder.loop(zero, builder.constant(extent), builder.constant(step), carried) as loop:
            sums = self._add_steps(loop.body, (left, right), (loop.variable, step), tile, loop.carried)
            loop.body.give(*sums)
        return loop.results

    def _add_steps(
        self,
        builder: Builder,
        views: tuple[Matrix, Sequence[Sequence[Matrix]]],
        steps: tuple[Value, int],
        tile: _Tile,
        start: Sequence[Value],
    ) -> list[Value]:
        """Some steps of the inner sum; one by one where tiles would keep the rows of all of them in registers."""
        (position, count), sums = steps, list(start)
        if len(start) == 1 or self.tiled.pack > 1:
            return self._add(builder, views, steps, tile, sums)
        for step in range(count):
            place = builder.arith("add", position, builder.constant(step)) if step else position
            sums = self._add(builder, views, (place, 1), tile, sums)
        return sums

    def _some_steps(
        self,
        builder: Builder,
        views: tuple[Matrix, Sequence[Sequence[Matrix]]],
        steps: tuple[int, int],
        tile: _Tile,
        start: Sequence[Value],
    ) -> list[Value]:
        """The inner sum over some of its steps, counted so that it is proved that the last one ends where it must."""
        if self.steps is None:
            raise Unsupported("all steps are wanted")
        (most, step), (first, last, size) = steps, self.steps
        if size % step:
            raise Unsupported("groups of steps are cut")
        turns = builder.constant(size // step)
        begin = builder.arith("mul", first, turns)
        end = builder.arith("min", builder.arith("mul", last, turns), builder.constant(most))
        carried = [(value, tile.type) for value in start]
        with builder.loop(begin, end, carried=carried) as loop:
            position = loop.body.arith("mul", loop.variable, loop.body.constant(step))
            loop.body.give(*self._add_steps(loop.body, views, (position, step), tile, loop.carried))
        return loop.results

    def _row_view(self, builder: Builder, values: Mapping[str, Value], tile: _Tile) -> Matrix:
        roles, height = self.tiled.roles, tile.height
        if self.tiled.packed:
            return Matrix(panel_view(builder, self.tiled, self.rows, values, tile.type.rows), False)
        spans = (roles.row, height), (roles.sums[-1], self.tiled.extents[roles.sums[-1]])
        return matrix_view(builder, self.rows, spans, values)

    def _add(
        self,
        builder: Builder,
        views: tuple[Matrix, Sequence[Sequence[Matrix]]],
        steps: tuple[Value, int],
        tile: _Tile,
        start: Sequence[Value],
    ) -> list[Value]:
        """Some steps of the inner sum, for all pieces."""
        (left, right), (position, step), type_ = views, steps, tile.type
        height = type_.rows if self.tiled.packed else tile.height
        left_type = Coopmatrix(self.rows.element, type_.rows, step, "matrix_a")
        right_type = Coopmatrix(self.columns[0].element, step, type_.columns, "matrix_b")
        loaded = _load(builder, left, (0, position), left_type, height)
        rows = _split_nibbles(builder, loaded, left_type) if self.tiled.nibbles else [loaded]
        rows = [self._widened(builder, item, left_type) for item in rows]
        if self.tiled.numbers:
            wide = replace(left_type, element=self.tiled.real.name)
            rows = [_look_up(builder, item, wide, self.tiled.numbers) for item in rows]
        found = []
        for items, total in zip(right, start, strict=True):
            for a, item in zip(rows, items, strict=True):
                b = self._widened(builder, _load(builder, item, (position, 0), right_type, step), right_type)
                total = builder.value(CoopMulAdd(a, b, total, type_))
            found.append(total)
        return found

    def _widened(self, builder: Builder, value: Value, type_: Coopmatrix) -> Value:
        """A factor in the type of the sums, where products of two such factors have no instructions of their own."""
        narrow = self.rows.element == self.columns[0].element == "bf16" or self.tiled.is_integer
        if type_.element == self.tiled.real.name or narrow:
            return value
        return builder.value(Cast(value, replace(type_, element=self.tiled.real.name)))

    # --- outputs --------------------------------------------------------------------------------------------------

    def _finish(
        self,
        builder: Builder,
        end: Epilogue,
        values: Mapping[str, Value],
        tile: _Tile,
        total: Value,
    ) -> None:
        """The epilogue: compute an output element by element of a tile, and store it."""
        type_ = tile.type
        spans = (self.tiled.roles.row, tile.height), (tile.column, type_.columns)
        if end.formula.values[0] is not end.formula.targets[0]:
            total = self._apply(builder, end, values, tile, total)
        access = self.accesses[id(end.formula.targets[0])]
        if access.element not in FLOATS:
            raise Unsupported("its output is no real")
        if access.element != type_.element:
            total = builder.value(Cast(total, replace(type_, element=access.element)))
        view = matrix_view(builder, access, spans, values)
        zero = builder.constant(0)
        builder.put(CoopStore(total, view.value, zero, zero, tile.checked))

    def _apply(
        self,
        builder: Builder,
        end: Epilogue,
        values: Mapping[str, Value],
        tile: _Tile,
        total: Value,
    ) -> Value:
        row, place, value = (builder.names.new() for _ in range(3))
        inner = builder.inner()
        here = self._here(inner, values, tile, (row, place))
        rows = (self.tiled.roles.row, self.tiled.extents[self.tiled.roles.row]) if tile.checked else ("", 0)
        writing = EpilogueWriter(self.tiled.real, self.tensors, end.extents, [inner])
        writing.accesses, writing.loops, (writing.row, writing.end) = self.accesses, here, rows
        inner.give(writing.epilogue_value(end, self.tiled.group.product.targets[0].tensor, value))
        return builder.value(CoopApply(row, place, value, total, tile.type, inner.region()))


# --- loops --------------------------------------------------------------------------------------------------------


def _begin_rows(builder: Builder, tiled: TiledProduct, values: dict[str, Value]) -> None:
    """The first row of a panel."""
    values[tiled.roles.row] = builder.arith("mul", values[PANEL], builder.constant(tiled.rows))


def each_height(
    builder: Builder, tiled: TiledProduct, values: Mapping[str, Value], write: Callable[[Builder, int], None]
) -> None:
    """Write for whole panels, and once more for the last one where it has fewer rows."""
    full, rest = divmod(tiled.extents[tiled.roles.row], tiled.rows)
    if is_open(rest):
        # Where there is no such panel, its height means nothing; a view of no rows would be another kernel.
        rest = rest if rest else rest + 1
    elif not full or not rest:
        write(builder, tiled.rows if full else rest)
        return
    whole = builder.compare("lt", values[PANEL], builder.constant(full))
    with builder.choice(whole) as (then, otherwise):
        write(then, tiled.rows)
        write(otherwise, rest)


def _load(
    builder: Builder, view: Matrix, place: tuple[Value | int, Value | int], type_: Coopmatrix, rows: int
) -> Value:
    """A matrix of a view; rows that the view has not are 0."""
    checked = "" if rows == type_.rows and not is_open(rows) else "rows"
    row, column = (builder.constant(item) if isinstance(item, int) else item for item in place)
    if view.transposed:
        row, column = column, row
    return builder.value(CoopLoad(view.value, row, column, type_, view.transposed, checked))
