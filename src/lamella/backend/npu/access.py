"""Which bytes a task instance reads and writes, and as what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamella.backend.npu.memory import byte_type
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.lang.nem.resolved import Region, Task, TensorType
from lamella.lang.nem.rules import DIVISION_BY_ZERO, OUT_OF_BOUNDS

MOVES = ("transfer", "store")


@dataclass(frozen=True, slots=True)
class BufferAccess:
    """A tensor at a place in a buffer."""

    buffer: str
    offset: int
    type: TensorType


def reads_of(task: Task, iteration: Mapping[int, int]) -> list[BufferAccess]:
    """What an instance reads, in the order of its inputs; moves read raw bytes."""
    return [_access(region, _type_in(task, region), iteration) for region in task.inputs]


def writes_of(task: Task, iteration: Mapping[int, int]) -> list[BufferAccess]:
    """What an instance writes, in the order of its outputs; moves write as many bytes as they read."""
    return [_access(region, _type_in(task, region), iteration) for region in task.outputs]


def _type_in(task: Task, region: Region) -> TensorType:
    if task.opcode in MOVES:
        return byte_type(task.inputs[0].extent)
    return region.type or byte_type(region.extent)


def _access(region: Region, type: TensorType, iteration: Mapping[int, int]) -> BufferAccess:
    """The access in an iteration; a place outside the buffer is an error that a checked plan does not have."""
    try:
        offset = region.offset.at(iteration)
    except ZeroDivisionError:
        raise LamellaError([DIVISION_BY_ZERO.at(region.span, text=region.span.text)]) from None
    end = offset + region.extent
    if offset < 0 or end > region.buffer.size:
        raise LamellaError([_outside(region, offset, end)])
    return BufferAccess(region.buffer.name, offset, type)


def _outside(region: Region, first: int, end: int) -> Diagnostic:
    buffer = region.buffer
    return OUT_OF_BOUNDS.at(
        region.span, first=first, end=end, buffer=buffer.name, size=buffer.size, iteration=""
    )
