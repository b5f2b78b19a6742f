"""Factors of products that are laid along the sum by a kernel of their own, which for a weight runs once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from lamella.base.affine import Affine
from lamella.bridge.graph_to_kernels.accesses import Access, Axis
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED, split_group
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel
from lamella.bridge.graph_to_kernels.tiled import Key
from lamella.lang.tensor.nodes import Scalar

LAID_COLUMNS: Key = (f"{PACKED[0]}_columns", None)
"""The temporary that holds the column factor as it is laid."""
GRAIN = 8
"""Elements of which the distance between rows is a multiple: 16 bytes of halves."""


def lay_factor(access: Access, loops: Sequence[str], extents: Mapping[str, int], element: str = "") -> Access:
    """A factor as it is laid: the last of some loops closest, which is the sum, the row loop before it.

    Rows begin some elements apart. It has the type of its elements, or the one that is said.
    """
    *outer, inner = loops
    axes, stride = [Axis(extents[inner], 1, Affine(0, ((inner, 1),)))], -(-extents[inner] // GRAIN) * GRAIN
    for name in reversed(outer):
        axes.append(Axis(extents[name], stride, Affine(0, ((name, 1),))))
        stride *= extents[name]
    return replace(access, axes=tuple(reversed(axes)), element=element or access.element)


def write_laid(
    source: Access,
    keys: tuple[Key, Key],
    loops: Sequence[str],
    extents: Mapping[str, int],
    element: str = "",
) -> TileKernel:
    """The kernel that lays a factor, a row in each work-group; keys are those of the factor and of where it is laid."""
    parameters, (*outer, inner) = Parameters(), loops
    target, key = parameters.add(keys[1], lay_factor(source, loops, extents, element)), keys[0]
    source = parameters.add(key, source)
    builder = parameters.builder()
    values = split_group(builder, outer, extents)
    with builder.foreach([builder.constant(extents[inner])]) as (region, (step,)):
        here = {**values, inner: step}
        value = region.load(source.memref, source.places(region, here), Scalar(source.element))
        if target.element != source.element:
            value = region.cast(value, Scalar(target.element))
        region.store(value, target.memref, target.places(region, here))
    return parameters.close(builder, prod(extents[name] for name in outer))
