"""Halos: rows of padding around images in L2, so that the tiles under a kernel are all alike.

A tile at the edge of an image has pads, the others have none, and attributes cannot depend on a loop variable. Where an
image has a few rows of its padding before and behind it, written once, every tile reads as many rows and has no pads
above or below: one loop holds them all. The rows come from a line of padding that each plan keeps in L1 of engine 0.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from lamella.base.quant import PerTensor
from lamella.base.shape import bytes_for
from lamella.lang.nem.resolved import Region
from lamella.plan.tiling.split import RowWindow, Split, bits_of
from lamella.plan.tiling.stages import Network, Stage

SMALL = 16
"""Padding may take one part in so many of L1."""


@dataclass(frozen=True, slots=True)
class Halo:
    """Bytes of padding before and behind an image, and the byte they consist of."""

    above: int
    below: int
    fill: int


def find_halos(network: Network, room: int) -> dict[str, Halo]:
    """The images that may have halos, by their buffers: images whose readers agree on the padding."""
    found: dict[str, Halo] = {}
    refused: set[str] = set()
    for stage in network.stages:
        window = stage.split.window
        if stage.leads or window is None or not (window.pad or window.below):
            continue
        name, halo = window.region.buffer.name, _halo(network, stage.split, window)
        known = found.get(name, halo)
        if halo is None or known is None or known.fill != halo.fill or max(halo.above, halo.below) > room:
            refused.add(name)
            continue
        found[name] = Halo(max(known.above, halo.above), max(known.below, halo.below), halo.fill)
    return {name: halo for name, halo in found.items() if name not in refused}


def _halo(network: Network, split: Split, window: RowWindow) -> Halo | None:
    """What a stage wants around the image it reads; None where that image cannot have it."""
    region, type = window.region, window.region.type
    name = region.buffer.name
    whole = region.offset.constant == 0 and region.extent == region.buffer.size
    if type is None or not whole or name in network.weights | network.outputs or type.shape[0] != 1:
        return None
    fill = _fill(split.task.opcode, region)
    if fill is None or window.pad < 0:
        return None
    pitch = bytes_for(type.shape[2] * type.shape[3], bits_of(type.elem))
    return Halo(window.pad * pitch, window.below * pitch, fill)


def _fill(opcode: str, region: Region) -> int | None:
    """The byte that stands for padding: the real number 0 for products, the least number for the largest of several.

    An average counts the elements that are there, so padding cannot be written for it.
    """
    type = region.type
    assert type is not None
    if opcode in ("conv2d", "depthwise_conv2d"):
        if type.elem in ("f16", "bf16", "f32") and type.quant is None:
            return 0
        if type.elem == "i8" and isinstance(type.quant, PerTensor):
            return type.quant.zero_point & 255
    return 128 if opcode == "maxpool" and type.elem == "i8" else None


def with_halo(stage: Stage, halos: Collection[str]) -> Stage:
    """A stage that reads its image with a halo where it has one, and without where it has none."""
    inputs = tuple(
        replace(item, halo=item.region.buffer.name in halos) if isinstance(item, RowWindow) else item
        for item in stage.split.inputs
    )
    return replace(stage, split=replace(stage.split, inputs=inputs))
