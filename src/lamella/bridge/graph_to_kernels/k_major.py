"""Packing of GEMM operands K-major (the sum contiguous) by a kernel of its own: transpose, im2col, dequantisation.

For a weight that kernel runs once. What it makes of codes is a temporary of each product of many columns: the model
keeps only its codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from lamella.base.affine import Affine
from lamella.bridge.graph_to_kernels.accesses import Access, Axis
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel
from lamella.bridge.graph_to_kernels.tiled import Key, Scale
from lamella.kernels.build import Builder
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import If, Scalar, Value
from lamella.lang.tensor.nodes.types import BOOL, STORED_FLOATS, make_memref

PACKED_COLUMNS: Key = (f"{PACKED[0]}_columns", None)
"""The temporary of the packed column operand."""
TILE = 64
"""Rows and columns of a tile that is transposed in local memory."""
SHORT, MANY = 1024, 1024
"""Elements that a work-group packs at least, where so many work-groups are left."""
GRAIN = 8
"""Elements of which the distance between rows is a multiple: 16 bytes of halves."""
DECODED: Key = (".decoded", None)
"""The temporary of dequantised codes."""
CODES = ("i8", *STORED_FLOATS)
REAL = Scalar("f32")


def grain_of(element: str) -> int:
    """The same grain, counted in elements of another type."""
    return 2 * GRAIN // BYTES[element]


def k_major_access(
    access: Access, loops: Sequence[str], extents: Mapping[str, int], element: str = ""
) -> Access:
    """The packed operand: the last of some loops, the sum, contiguous, the row loop before it.

    Rows begin at multiples of a grain. The element type is that of the operand, or the one that is given.
    """
    *outer, inner = loops
    grain = max(GRAIN, grain_of(element or access.element))
    axes, stride = [Axis(extents[inner], 1, Affine(0, ((inner, 1),)))], -(-extents[inner] // grain) * grain
    for name in reversed(outer):
        axes.append(Axis(extents[name], stride, Affine(0, ((name, 1),))))
        stride *= extents[name]
    return replace(access, axes=tuple(reversed(axes)), element=element or access.element)


def write_k_major_pack(
    source: Access,
    keys: tuple[Key, Key],
    loops: Sequence[str],
    extents: Mapping[str, int],
    sums: Sequence[str] = (),
    element: str = "",
    ends: Mapping[str, int] | None = None,
) -> TileKernel:
    """The kernel that packs an operand; keys are those of the operand and of the packed temporary.

    A work-group packs a row. Where another loop than the sum is contiguous, it transposes a tile through local memory
    instead. A sum of several loops counts through the last of them first. Rows behind the end of a loop in `ends`
    repeat its last row.
    """
    parameters, (*outer, inner) = Parameters(), loops
    across = next((name for name in outer if source.stride(name) == 1), None)
    if across is not None and not ends and min(extents[across], extents[inner]) >= TILE:
        return _write_tiles(source, keys, loops, across, extents, sums, element)
    target, key = parameters.add(keys[1], k_major_access(source, loops, extents, element)), keys[0]
    source = parameters.add(key, source)
    builder = parameters.builder()
    rows = _rows_together(outer, extents, inner)
    counts = {**extents, outer[-1]: extents[outer[-1]] // rows} if rows > 1 else extents
    values = delinearize_group(builder, outer, counts)
    with builder.foreach([builder.constant(extents[inner] * rows)]) as (region, (step,)):
        here = dict(values)
        if rows > 1:
            width, many = region.constant(extents[inner]), region.constant(rows)
            begin = region.arith("mul", values[outer[-1]], many)
            here[outer[-1]] = region.arith("add", begin, region.arith("div", step, width))
            step = region.arith("rem", step, width)
        here |= {inner: step, **_digits(region, step, sums, extents)}
        inside = {**here, **_inside(region, here, ends or {})}
        value = region.load(source.memref, source.places(region, inside), Scalar(source.element))
        if target.element != source.element:
            value = region.cast(value, Scalar(target.element))
        region.store(value, target.memref, target.places(region, here))
    return parameters.close(builder, prod(counts[name] for name in outer))


def _rows_together(outer: Sequence[str], extents: Mapping[str, int], inner: str) -> int:
    """How many short rows a work-group packs, as long as enough work-groups stay."""
    rows = 1
    while (
        outer
        and extents[inner] * rows < SHORT
        and extents[outer[-1]] % (2 * rows) == 0
        and prod(extents[name] for name in outer) // rows > MANY
    ):
        rows *= 2
    return rows


def _inside(builder: Builder, values: Mapping[str, Value], ends: Mapping[str, int]) -> dict[str, Value]:
    """Loop indices clamped to their last step."""
    return {name: builder.arith("min", values[name], builder.constant(end - 1)) for name, end in ends.items()}


def _write_tiles(
    source: Access,
    keys: tuple[Key, Key],
    loops: Sequence[str],
    across: str,
    extents: Mapping[str, int],
    sums: Sequence[str],
    packed: str,
) -> TileKernel:
    """The kernel that transposes an operand tile by tile through local memory: coalesced loads and stores."""
    parameters, inner = Parameters(), loops[-1]
    target = parameters.add(keys[1], k_major_access(source, loops, extents, packed))
    source = parameters.add(keys[0], source)
    builder = parameters.builder()
    others = [name for name in loops if name not in (across, inner)]
    tiles = {"across": -(-extents[across] // TILE), "inner": -(-extents[inner] // TILE)}
    values = delinearize_group(builder, [*others, "inner", "across"], {**extents, **tiles})
    size, element = builder.constant(TILE), Scalar(source.element)
    starts = {
        name: builder.arith("mul", values[key], size) for name, key in ((across, "across"), (inner, "inner"))
    }
    # Rows are padded against bank conflicts: the elements of a column lie in different banks.
    staged = builder.alloca(make_memref(source.element, (TILE + 2, TILE), local=True))
    for is_read in (True, False):
        with builder.foreach([builder.constant(TILE * TILE)]) as (region, (step,)):
            width = region.constant(TILE)
            near, far = region.arith("rem", step, width), region.arith("div", step, width)
            steps = {across: near, inner: far} if is_read else {inner: near, across: far}
            here = {name: region.arith("add", starts[name], step) for name, step in steps.items()}
            place = (steps[across], steps[inner])
            conditions = [
                region.compare("lt", here[name], region.constant(extents[name]))
                for name in (across, inner)
                if extents[name] % TILE
            ]
            inside = region.inner() if conditions else region
            here |= _digits(inside, here[inner], sums, extents)
            if is_read:
                value = inside.load(source.memref, source.places(inside, {**values, **here}), element)
                inside.store(value, staged, place)
            else:
                value = inside.load(staged, place, element)
                if target.element != source.element:
                    value = inside.cast(value, Scalar(target.element))
                inside.store(value, target.memref, target.places(inside, {**values, **here}))
            if conditions:
                both = conditions[0] if len(conditions) == 1 else region.arith("and", *conditions, type_=BOOL)
                region.put(If(both, inside.region()))
    return parameters.close(builder, prod(extents[name] for name in others) * prod(tiles.values()))


def _digits(
    builder: Builder, step: Value, sums: Sequence[str], extents: Mapping[str, int]
) -> dict[str, Value]:
    """The indices of the loops that make up a sum, delinearized; nothing where there is one loop."""
    found: dict[str, Value] = {}
    for name in reversed(sums[1:]):
        size = builder.constant(extents[name])
        found[name], step = builder.arith("rem", step, size), builder.arith("div", step, size)
    return {**found, sums[0]: step} if found else {}


def write_dequantize(
    source: tuple[Key, Access],
    scales: Sequence[Scale],
    loops: Sequence[str],
    sums: Sequence[str],
    extents: Mapping[str, int],
    element: str,
) -> TileKernel:
    """The kernel that writes scaled codes K-major; the sum is the last loop and made of `sums`."""
    parameters, (*outer, inner) = Parameters(), loops
    target = parameters.add(DECODED, k_major_access(source[1], loops, extents, element))
    codes = parameters.add(*source)
    factors = [replace(item, access=parameters.add(item.key, item.access)) for item in scales]
    builder = parameters.builder()
    values = delinearize_group(builder, outer, extents)
    with builder.foreach([builder.constant(extents[inner])]) as (region, (step,)):
        here = {**values, **_digits(region, step, sums, extents), inner: step}
        loaded = region.load(codes.memref, codes.places(region, here), Scalar(codes.element))
        value = region.cast(loaded, REAL)
        for item in factors:
            scale = region.load(item.access.memref, item.access.places(region, here), REAL)
            value = region.arith("mul", value, scale, type_=REAL)
        region.store(region.cast(value, Scalar(element)), target.memref, target.places(region, here))
    return parameters.close(builder, prod(extents[name] for name in outer))
