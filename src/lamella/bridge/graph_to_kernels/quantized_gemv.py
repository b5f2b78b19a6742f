"""GEMV with quantised weights: codes of 8 or 4 bits are interleaved once, so that all loads are coalesced.

The 16 bytes that a work-item loads at once hold codes that meet *units* of its vectors, 16 bytes each, and the units of
neighbouring work-items are neighbours. So both sides are read in whole cache lines. With the 32 work-items of a
subgroup, P codes in 16 bytes and U elements in a unit:

    code c of work-item l in block b stands for element   k = 32 P b + 32 U (c / U) + U l + c mod U

Of 4-bit codes a byte holds two, those of a unit of even number in the lower half. Scales of groups along the sum are
multiplied with the sum of a unit, others with the whole sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import gcd, prod

from lamella.base.affine import Affine
from lamella.base.dtype import I4
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.gemv import (
    MOST_COLUMNS,
    NEAR,
    PIECE,
    Gemv,
    count_rows,
    promise_vector_loads,
    share_rows_across_warps,
)
from lamella.bridge.graph_to_kernels.gemv_prologue import add_product, find_prologue
from lamella.bridge.graph_to_kernels.gemv_writer import LANE, GemvWriter
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import (
    Key,
    ProductGroup,
    Roles,
    Scale,
    Tensors,
    find_roles,
    prepare_product,
)
from lamella.kernels.build import Builder
from lamella.kernels.fragments import WARP
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Dictionary, DictionaryEntry, If, Scalar, Value
from lamella.lang.tensor.nodes.types import INDEX, STORED_FLOATS

CODES = ("i8", *STORED_FLOATS)
"""Types of codes, those of 4 bits among them."""
WORD = Scalar("i32")
INTERLEAVED = "interleaved"
"""The loop over the bytes of a row."""


@dataclass(frozen=True, slots=True)
class Interleave:
    """The interleaved layout of the codes of a row."""

    codes: int
    """Codes of a vectorised load."""
    unit: int
    """Elements of a vectorised load of the vectors."""
    length: int
    """Elements of the sum."""
    loops: tuple[str, ...]
    """The loops that the sum is made of: one, or those over groups and over the elements of a group."""
    group: int
    """Elements that share a scale; all where the sum is one loop."""

    @property
    def each(self) -> int:
        """Codes of a byte."""
        return self.codes // PIECE

    @property
    def units(self) -> int:
        """Units that a work-item reads for its codes."""
        return self.codes // self.unit

    @property
    def width(self) -> int:
        """Elements of a block."""
        return self.codes * WARP

    @property
    def blocks(self) -> int:
        """Blocks of a row; what the last one lacks are zeros."""
        return -(-self.length // self.width)

    def places(self, builder: Builder, position: Value) -> dict[str, Value]:
        """The loops of the sum at an element of it."""
        if len(self.loops) == 1:
            return {self.loops[0]: position}
        size = builder.constant(self.group)
        return {
            self.loops[0]: builder.arith("div", position, size),
            self.loops[1]: builder.arith("rem", position, size),
        }


@dataclass(frozen=True, slots=True)
class QuantizedGemv:
    """A product of a matrix of codes with a few vectors."""

    vector: Gemv
    source: Access
    """The codes as the graph has them."""
    interleave: Interleave
    along: tuple[Scale, ...]
    """Scales of groups along the sum."""


def find_quantized_gemv(
    group: ProductGroup,
    tensors: Tensors,
    real: Scalar,
    target: Target,
    constant: frozenset[Key],
    narrow: bool = False,
) -> QuantizedGemv:
    """The plan of a GEMV with constant codes; Unsupported says why there is none."""
    if not target.has_threads:
        raise Unsupported("work-items are lanes")
    found = prepare_product(group, tensors, real)
    if any(map(is_open, found.extents.values())):
        raise Unsupported("its extents are open")
    scaled = {name for item in found.scales for name in item.access.loops()}
    roles, flipped = find_roles(found.outputs, *found.factors, found.extents, scaled)
    columns = prod(found.extents[name] for name in roles.columns)
    source, key = found.factors[flipped], found.keys[flipped]
    if source.element not in CODES or key not in constant or columns > MOST_COLUMNS:
        raise Unsupported("it has no codes that never change, or many columns")
    vectors = _along_sum(found.factors[not flipped], roles, found.extents)
    prologue = find_prologue(found, roles.sums, narrow)
    if prologue is not None:
        prologue = prologue.along(lambda item: _counting_whole(item, roles, found.extents))
    read = [vectors] if prologue is None else prologue.along_sum(INTERLEAVED)
    interleave = _find_interleave(read, roles, found.extents, tensors[key].element == I4)
    along = tuple(item for item in found.scales if item.access.loops() & set(roles.sums))
    rows = count_rows(group, roles, found.extents, target)
    row_extents = {**found.extents, roles.row: found.extents[roles.row] * group.parts}
    interleaved = _interleaved_access(source, (*roles.batch, roles.row), row_extents, interleave)
    rest = tuple(item for item in found.scales if item not in along)
    plan = Gemv(
        replace(found, scales=rest), real, roles.row, roles.columns, roles.batch, roles.sums[-1], interleaved, key,
        vectors, found.keys[not flipped], PIECE, rows, True, prologue,
    )  # fmt: skip
    if sum(BYTES[item.element] for item in read) * interleave.length > NEAR:
        plan = share_rows_across_warps(plan, target, interleave.length // interleave.width)
    return QuantizedGemv(plan, source, interleave, along)


def _counting_whole(access: Access, roles: Roles, extents: Mapping[str, int]) -> Access:
    """An access in which one loop counts the whole sum, where the sum is two loops."""
    *outer, inner = roles.sums
    axes = []
    for axis in access.axes:
        step = axis.index.coefficient(inner)
        if any(axis.index.coefficient(name) != step * extents[inner] for name in outer):
            raise Unsupported("what stands before its vectors does not lie along the sum")
        rest = axis.index.without(inner)
        for name in outer:
            rest = rest.without(name)
        axes.append(replace(axis, index=rest + Affine(0, ((INTERLEAVED, step),) if step else ())))
    return replace(access, axes=tuple(axes))


def _along_sum(access: Access, roles: Roles, extents: Mapping[str, int]) -> Access:
    """The vectors, whose closest mode counts the whole sum."""
    inner = roles.sums[-1]
    *others, last = access.axes
    if last.stride != 1 or last.index != Affine(0, ((inner, 1),)) or last.ring:
        raise Unsupported("its vectors do not lie along the sum")
    if len(roles.sums) == 2:
        outer = roles.sums[0]
        *others, groups = others
        dense = groups.stride == last.size == extents[inner] and groups.size == extents[outer]
        if groups.index != Affine(0, ((outer, 1),)) or groups.ring or not dense:
            raise Unsupported("its vectors do not lie along the sum")
        last = Axis(last.size * groups.size, 1, Affine(0, ((INTERLEAVED, 1),)))
    else:
        last = replace(last, index=Affine(0, ((INTERLEAVED, 1),)))
    if any(item.ring or item.index.symbols & set(roles.sums) for item in others):
        raise Unsupported("its vectors have the sum twice")
    return replace(access, axes=(*others, last))


def _find_interleave(
    vectors: Sequence[Access], roles: Roles, extents: Mapping[str, int], short: bool
) -> Interleave:
    if len(roles.sums) > 2 or any(name not in extents for name in roles.sums):
        raise Unsupported("its sum is made of several loops")
    length = prod(extents[name] for name in roles.sums)
    group = extents[roles.sums[-1]]
    unit = group
    for access in vectors:
        *others, last = access.axes
        if (
            last.size != length
            or last.stride != 1
            or any(axis.index.coefficient(INTERLEAVED) for axis in others)
        ):
            raise Unsupported("its vectors are longer than the sum, or do not lie along it")
        unit = gcd(unit, PIECE // BYTES[access.element], *(axis.stride for axis in others))
    if unit < 4:
        raise Unsupported("its vectors are read element by element")
    return Interleave(PIECE * (2 if short else 1), unit, length, roles.sums, group)


def _interleaved_access(
    source: Access, loops: Sequence[str], extents: Mapping[str, int], interleave: Interleave
) -> Access:
    """The interleaved codes: bytes of a row contiguous, then the rows, then what is outside."""
    width = interleave.blocks * WARP * PIECE
    axes, stride = [Axis(width, 1, Affine(0, ((INTERLEAVED, 1),)))], width
    for name in reversed(loops):
        axes.append(Axis(extents[name], stride, Affine(0, ((name, 1),))))
        stride *= extents[name]
    return replace(source, axes=tuple(reversed(axes)))


# --- weaving --------------------------------------------------------------------------------------------------------


def write_quantized_gemv(plan: QuantizedGemv, tensors: Tensors) -> list[TileKernel]:
    """The kernels of a product: the one that interleaves the codes, which runs once, and the GEMV."""
    return [_write_interleave(plan), QuantizedGemvWriter(plan.vector, tensors, code=plan).write()]


def _write_interleave(plan: QuantizedGemv) -> TileKernel:
    """The kernel that interleaves codes, a row in each work-group."""
    parameters, vector, interleave = Parameters(), plan.vector, plan.interleave
    target = parameters.add(PACKED, vector.matrix)
    source = parameters.add(vector.matrix_key, plan.source)
    builder = parameters.builder()
    extents, outer = vector.matrix_extents, (*vector.outer, vector.row)
    values = delinearize_group(builder, outer, extents)
    with builder.foreach([builder.constant(interleave.blocks * WARP * PIECE)]) as (region, (byte,)):
        found = [
            _read_code(region, source, interleave, values, position)
            for position in _positions(region, interleave, byte)
        ]
        value = found[0] if len(found) == 1 else _join(region, found)
        region.store(value, target.memref, target.places(region, {**values, INTERLEAVED: byte}))
    return parameters.close(builder, prod(extents[name] for name in outer))


def _positions(builder: Builder, interleave: Interleave, byte: Value) -> Iterator[Value]:
    """The elements of the sum whose codes one byte of a row holds."""

    def split(value: Value, size: int) -> tuple[Value, Value]:
        by = builder.constant(size)
        return builder.arith("div", value, by), builder.arith("rem", value, by)

    block, rest = split(byte, WARP * PIECE)
    lane, place = split(rest, PIECE)
    number, step = split(place, interleave.unit)
    parts = [
        (block, interleave.width),
        (lane, interleave.unit),
        (number, interleave.each * WARP * interleave.unit),
        (step, 1),
    ]
    first = builder.constant(0)
    for value, factor in parts:
        scaled = builder.arith("mul", value, builder.constant(factor))
        first = builder.arith("add", first, scaled)
    for more in range(interleave.each):
        yield builder.arith("add", first, builder.constant(more * WARP * interleave.unit))


def _read_code(
    builder: Builder, source: Access, interleave: Interleave, values: Mapping[str, Value], position: Value
) -> Value:
    """A code, 0 behind the end of the sum."""
    type_ = Scalar(source.element)
    if interleave.length % interleave.width == 0:
        here = {**values, **interleave.places(builder, position)}
        return builder.load(source.memref, source.places(builder, here), type_)
    inside = builder.compare("lt", position, builder.constant(interleave.length))
    then, otherwise, found = builder.inner(), builder.inner(), builder.names.new()
    here = {**values, **interleave.places(then, position)}
    then.give(then.load(source.memref, source.places(then, here), type_))
    # Reals of 8 bits are no type of constants.
    otherwise.give(otherwise.cast(otherwise.constant(0, WORD), type_))
    builder.put(If(inside, then.region(), otherwise.region(), (type_,)), (found,))
    return found


def _join(builder: Builder, codes: Sequence[Value]) -> Value:
    """Two 4-bit codes in a byte: 16 high + (low mod 16)."""
    low, high = (builder.cast(item, WORD) for item in codes)
    sign = builder.arith("shr", low, builder.constant(3, WORD), type_=WORD)
    above = builder.arith("sub", high, sign, type_=WORD)
    scaled = builder.arith("mul", above, builder.constant(16, WORD), type_=WORD)
    return builder.cast(builder.arith("add", low, scaled, type_=WORD), Scalar("i8"))


# --- the product ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class QuantizedGemvWriter(GemvWriter):
    """Writes the kernel of a GEMV with codes."""

    code: QuantizedGemv | None = None
    groups: list[Access] = field(default_factory=list)
    """Scales along the sum."""

    @property
    def interleave(self) -> Interleave:
        """The layout of the codes."""
        if self.code is None:
            raise TypeError("a product of codes has codes")
        return self.code.interleave

    def promise(self, kernel: TileKernel, sides: Sequence[Access]) -> TileKernel:
        """The kernel with 16-byte alignment of codes and vectors promised."""
        matrix, vectors = sides
        promised = promise_vector_loads(kernel, [matrix], PIECE // BYTES[matrix.element])
        promised = promise_vector_loads(promised, self.read_along(vectors, INTERLEAVED), self.interleave.unit)
        return replace(promised, attributes=group_sizes(self.plan.together))

    def add_scales(self) -> None:
        """Scales along the sum are parameters too."""
        along = self.code.along if self.code is not None else ()
        self.groups = [self.parameters.add(item.key, item.access) for item in along]

    def sum(
        self, builder: Builder, sides: tuple[Access, Access], places: Sequence[Mapping[str, Value]]
    ) -> list[Value]:
        """The sums of each work-item, added up."""
        interleave, real = self.interleave, self.plan.real
        lane = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        sums = [builder.constant(0.0, real)] * self.count_sums(len(places))
        together = self.plan.together
        whole = interleave.length // interleave.width // together
        for begin, end, unrolled in self.turns(whole, PIECE):
            attributes = Dictionary((DictionaryEntry("unroll", unrolled),))
            bounds = builder.constant(begin), builder.constant(end), None
            with builder.loop(*bounds, [(value, real) for value in sums], attributes) as loop:
                start = self._start(loop.body, self._block_of(loop.body, loop.variable), lane)
                loop.body.give(*self._block(loop.body, sides, start, places, loop.carried))
            sums = loop.results
        if whole * together < interleave.blocks:
            start = self._start(builder, self._block_of(builder, builder.constant(whole)), lane)
            sums = self._block(builder, sides, start, places, sums, interleave.length)
        return self.add_up(
            builder, sums if self.scratch is None else self.exchange(builder, sums, self.scratch)
        )

    def _block_of(self, builder: Builder, turn: Value) -> Value:
        """The block that a subgroup reads in one trip."""
        if self.plan.together == 1:
            return turn
        own = builder.cast(builder.builtin("subgroup_id", LANE), INDEX)
        first = builder.arith("mul", turn, builder.constant(self.plan.together))
        return builder.arith("add", first, own)

    def _start(self, builder: Builder, block: Value, lane: Value) -> tuple[Value, Value]:
        """The first byte that a work-item reads of a block, and the first element of its vectors.

        Where subgroups share a row and the block is behind the last one, it reads the last one and no vectors.
        """

        def at(block: Value, width: int, step: int) -> Value:
            begin = builder.arith("mul", block, builder.constant(width))
            return builder.arith("add", begin, builder.arith("mul", lane, builder.constant(step)))

        interleave, there = self.interleave, block
        if interleave.blocks % self.plan.together:
            there = builder.arith("min", block, builder.constant(interleave.blocks - 1))
        return at(there, WARP * PIECE, PIECE), at(block, interleave.width, interleave.unit)

    def _block(
        self,
        builder: Builder,
        sides: tuple[Access, Access],
        start: tuple[Value, Value],
        places: Sequence[Mapping[str, Value]],
        sums: Sequence[Value],
        end: int = 0,
    ) -> list[Value]:
        """What a block adds to each sum; units behind the end add nothing, where there is one."""
        interleave, real, found = self.interleave, self.plan.real, list(sums)
        rows: dict[tuple[Value, ...], list[Value]] = {}
        own = []
        for place in places:
            key = tuple(place[name] for name in sorted(sides[0].loops() - {INTERLEAVED}))
            if key not in rows:
                rows[key] = self._codes(builder, sides[0], place, start[0])
            own.append(rows[key])
        for number in range(interleave.units):
            step = builder.constant(number * WARP * interleave.unit)
            position = builder.arith("add", start[1], step) if number else start[1]
            numbers = [item[number * interleave.unit :][: interleave.unit] for item in own]
            if not end:
                found = self._unit(builder, sides[1], position, places, numbers, found)
                continue
            inside = builder.compare("lt", position, builder.constant(end))
            then, otherwise = builder.inner(), builder.inner()
            then.give(*self._unit(then, sides[1], position, places, numbers, found))
            otherwise.give(*found)
            results = [builder.names.new() for _ in found]
            types = tuple(real for _ in found)
            builder.put(If(inside, then.region(), otherwise.region(), types), tuple(results))
            found = results
        return found

    def _codes(
        self, builder: Builder, access: Access, place: Mapping[str, Value], start: Value
    ) -> list[Value]:
        """The numbers that the codes of a work-item are, in the order of its units (dequantised)."""
        interleave, real, type_ = self.interleave, self.plan.real, Scalar(access.element)
        found: list[Value] = []
        loaded = []
        for byte in range(PIECE):
            here = builder.arith("add", start, builder.constant(byte)) if byte else start
            indices = access.places(builder, {**place, INTERLEAVED: here})
            loaded.append(builder.load(access.memref, indices, type_))
        if interleave.each == 1:
            return [builder.cast(item, real) for item in loaded]
        top, half = builder.constant(28, WORD), builder.constant(4, WORD)
        for begin in range(0, PIECE, interleave.unit):
            words = [builder.cast(item, WORD) for item in loaded[begin : begin + interleave.unit]]
            low = [
                builder.arith("shr", builder.arith("shl", item, top, type_=WORD), top, type_=WORD)
                for item in words
            ]
            high = [builder.arith("shr", item, half, type_=WORD) for item in words]
            found += [builder.cast(item, real) for item in (*low, *high)]
        return found

    def _unit(
        self,
        builder: Builder,
        vectors: Access,
        position: Value,
        places: Sequence[Mapping[str, Value]],
        numbers: Sequence[Sequence[Value]],
        sums: Sequence[Value],
    ) -> list[Value]:
        """What a unit adds to each sum; what several sums read is loaded once."""
        interleave, real, found = self.interleave, self.plan.real, list(sums)
        steps = [
            {INTERLEAVED: builder.arith("add", position, builder.constant(step)) if step else position}
            for step in range(interleave.unit)
        ]
        loaded = self.vectors(builder, vectors, steps, places, found)
        scales: dict[tuple[Value, ...], Value] = {}
        sum_place = interleave.places(builder, position) if self.groups else {}
        for number, place in enumerate(places):
            pairs = list(zip(numbers[number], loaded[number % len(loaded)], strict=True))
            total = found[number]
            if self.groups:
                total = builder.arith("mul", *pairs.pop(0), type_=real)
            for pair in pairs:
                total = add_product(builder, *pair, total, real)
            factors = []
            for access in self.groups:
                own = (
                    access.memref,
                    *(place[name] for name in sorted(access.loops() - set(interleave.loops))),
                )
                if own not in scales:
                    scales[own] = self.load(builder, access, {**place, **sum_place})
                factors.append(scales[own])
            for factor in factors[1:]:
                total = builder.arith("mul", total, factor, type_=real)
            found[number] = add_product(builder, total, factors[0], found[number], real) if factors else total
        return found
