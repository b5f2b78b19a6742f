"""Dequantisation: a kernel makes bf16 of the codes of an operand, so that tensor cores can multiply them.

It runs before each product of many columns. The result is a temporary of that product: the model keeps only its codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.k_major import k_major_access
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel
from lamella.bridge.graph_to_kernels.tiled import Key, Scale
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import Scalar, Value
from lamella.lang.tensor.nodes.types import STORED_FLOATS

DECODED: Key = (".decoded", None)
"""The temporary that holds what codes stand for."""
CODES = ("i8", *STORED_FLOATS)
REAL = Scalar("f32")


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


def _digits(
    builder: Builder, step: Value, sums: Sequence[str], extents: Mapping[str, int]
) -> dict[str, Value]:
    """The indices of the loops that make up a sum, delinearized, the last of them fastest."""
    found: dict[str, Value] = {}
    for name in reversed(sums[1:]):
        size = builder.constant(extents[name])
        found[name], step = builder.arith("rem", step, size), builder.arith("div", step, size)
    return {**found, sums[0]: step}
