"""The inputs and outputs of a plan by name.

Inputs are what is read before it is written, and imported buffers; outputs are the buffers in L2 and DDR that are
written, as bytes, and the named typed regions in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lamella.backend.npu.access import reads_of, writes_of
from lamella.backend.npu.memory import allocate, byte_places
from lamella.backend.npu.order import program_order
from lamella.backend.npu.ports import Ports
from lamella.base.arrays import Array
from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem.resolved import Plan

OUTSIDE = ("L2", "DDR")


@dataclass(frozen=True, slots=True)
class Interface:
    """Names in order, and for each buffer the mask of the bytes that must come from outside."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    needed: Mapping[str, Array]


def find_interface(plan: Plan, limits: Limits = DEFAULT) -> Interface:
    """Follow the plan in program order, byte by byte, without computing anything."""
    needed, written = (allocate(plan.buffers, np.dtype(np.bool_), limits) for _ in range(2))
    done: set[int] = set()
    for task, iteration in program_order(plan, limits):
        # A task that touches the same bytes in every iteration adds nothing after the first.
        if task.number in done:
            continue
        for access in reads_of(task, iteration):
            places = byte_places(access.offset, access.type)
            needed[access.buffer][places] |= ~written[access.buffer][places]
        for access in writes_of(task, iteration):
            written[access.buffer][byte_places(access.offset, access.type)] = True
        if all(region.offset.is_constant for region in (*task.inputs, *task.outputs)):
            done.add(task.number)
    ports = Ports(plan)
    return Interface(_input_names(ports, needed), _output_names(ports, written), needed)


def _input_names(ports: Ports, needed: Mapping[str, Array]) -> tuple[str, ...]:
    """Regions that hold needed bytes, behind their buffer where it is imported or they do not cover it."""
    names: dict[str, list[str]] = {name: [] for name in ports.buffers}
    rest = {name: mask.copy() for name, mask in needed.items()}
    for name, access in ports.regions.items():
        places = byte_places(access.offset, access.type)
        if needed[access.buffer][places].any():
            names[access.buffer].append(name)
            rest[access.buffer][places] = False
    for name, buffer in ports.buffers.items():
        if buffer.imported or rest[name].any():
            names[name].insert(0, name)
    return tuple(name for group in names.values() for name in group)


def _output_names(ports: Ports, written: Mapping[str, Array]) -> tuple[str, ...]:
    outside = {
        name: mask for name, mask in written.items() if ports.buffers[name].memory in OUTSIDE and mask.any()
    }
    regions = (
        name
        for name, access in ports.regions.items()
        if access.buffer in outside and outside[access.buffer][byte_places(access.offset, access.type)].any()
    )
    return (*outside, *regions)
