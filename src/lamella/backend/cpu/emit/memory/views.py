"""Views of memory and local memory: new sizes, strides and offsets; nothing is copied."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.memory.addresses import LARGEST_ALIGNMENT
from lamella.backend.cpu.emit.values import Lanes, Members, Memory
from lamella.lang.tensor.nodes import Expand, Fuse, IndexOrSize, Memref, SizeOf, Subview, Value

SCRATCH_ALIGNMENT = 128
"""Bytes to which the local memory of a work-group is aligned."""


def emit_subview(here: Here, instruction: Subview) -> Memory:
    """Emit a view of blocks of modes; a slice of size 0 takes its mode away."""
    source = memory_of(here, instruction.operand)
    offset, kept = source.offset, []
    for part, stride in zip(instruction.slices, source.strides, strict=True):
        moved = integers.multiply(here, _number(here, part.offset), stride)
        offset = integers.add(here, offset, moved)
        if part.size != 0:
            kept.append((_number(here, part.size), stride))
    sizes, strides = tuple(size for size, _ in kept), tuple(stride for _, stride in kept)
    return replace(source, type=instruction.type, offset=offset, sizes=sizes, strides=strides)


def emit_expand(here: Here, instruction: Expand) -> Memory:
    """Emit a view that sees a mode as several, the first of them fastest."""
    source, mode = memory_of(here, instruction.operand), instruction.mode
    sizes = [_number(here, size) for size in instruction.sizes]
    strides = [source.strides[mode]]
    for size in sizes[:-1]:
        strides.append(integers.multiply(here, strides[-1], size))
    return replace(
        source,
        type=instruction.type,
        sizes=(*source.sizes[:mode], *sizes, *source.sizes[mode + 1 :]),
        strides=(*source.strides[:mode], *strides, *source.strides[mode + 1 :]),
    )


def emit_fuse(here: Here, instruction: Fuse) -> Memory:
    """Emit a view that sees neighbouring modes as one."""
    source, first, last = memory_of(here, instruction.operand), instruction.first, instruction.last
    size = source.sizes[first]
    for other in source.sizes[first + 1 : last + 1]:
        size = integers.multiply(here, size, other)
    return replace(
        source,
        type=instruction.type,
        sizes=(*source.sizes[:first], size, *source.sizes[last + 1 :]),
        strides=(*source.strides[: first + 1], *source.strides[last + 1 :]),
    )


def emit_size(here: Here, instruction: SizeOf) -> Lanes:
    """Give the size of a mode, or how many memrefs are in a group."""
    source = here.values[instruction.operand.name]
    if isinstance(source, Members):
        return source.count
    return memory_of(here, instruction.operand).sizes[instruction.mode]


def make_local(here: Here, kind: Memref, offset_bytes: int) -> Memory:
    """A memref in the local memory of the work-group, whose shape and strides are all known."""
    pointer = here.scratch
    if offset_bytes:
        pointer = here.out.value(f"getelementptr i8, ptr {pointer}, i64 {offset_bytes}")
    sizes, strides = (
        tuple(integers.number(value or 0) for value in values) for values in (kind.shape, kind.stride)
    )
    alignment = gcd(SCRATCH_ALIGNMENT, offset_bytes, LARGEST_ALIGNMENT)
    return Memory(kind, Lanes("ptr", (pointer,)), integers.number(0), sizes, strides, alignment)


def memory_of(here: Here, value: Value) -> Memory:
    """The memref that a value is."""
    found = here.values[value.name]
    if not isinstance(found, Memory):
        raise TypeError(f"%{value.name} is no memref")
    return found


def _number(here: Here, item: IndexOrSize) -> Lanes:
    return integers.number(item) if isinstance(item, int) else here.scalar(item.name)
