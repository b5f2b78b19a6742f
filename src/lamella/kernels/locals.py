"""Local memory: how many bytes an alloca takes, and where a pass has placed it."""

from __future__ import annotations

from lamella.kernels.rewrite import walk
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Alloca, Function, Memref

STACK_OFFSET = "stack_offset"
"""The attribute of an alloca that tells where in local memory it lies, in bytes."""


def local_size(type_: Memref) -> int:
    """The bytes that a local memref takes; sizes and strides are static."""
    pairs = [(size or 0, step or 0) for size, step in zip(type_.shape, type_.stride, strict=True)]
    if any(size == 0 for size, _ in pairs):
        return 0
    return BYTES[type_.element] * (1 + sum((size - 1) * step for size, step in pairs))


def stack_offset(alloca: Alloca) -> int | None:
    """Where an alloca lies; None where no pass has placed it yet."""
    found = None if alloca.attributes is None else alloca.attributes.find(STACK_OFFSET)
    return found if isinstance(found, int) else None


def local_bytes(function: Function) -> int:
    """The local memory of a work-group of a function whose allocas are placed."""
    found = (item.instruction for item in walk(function.body))
    ends = ((stack_offset(item) or 0) + local_size(item.type) for item in found if isinstance(item, Alloca))
    return max(ends, default=0)
