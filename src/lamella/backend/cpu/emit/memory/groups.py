"""Groups: the memref at a position, with its pointer, sizes and strides read from the arrays of the group."""

from __future__ import annotations

from dataclasses import replace

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.memory.addresses import unit
from lamella.backend.cpu.emit.memory.vectors import Place, gather, load_vector
from lamella.backend.cpu.emit.values import LLVM, Lanes, Members, Memory
from lamella.lang.tensor.nodes import Size

SLOT = 8
"""Bytes of a pointer, a size and a stride in memory."""


def load_member(here: Here, members: Members, index: Lanes) -> Memory:
    """The memref at a position of a group."""
    kind = members.type.memref
    pointer = _behind(here, members, _read(here, "ptr", members.pointers, index))
    sizes = _read_numbers(here, (kind.shape, members.sizes, members.size_divisors), index)
    strides = _read_numbers(here, (kind.stride, members.strides, members.stride_divisors), index)
    start = integers.number(0)
    return Memory(kind, pointer, start, sizes, strides, members.alignment, members.streamed)


def _behind(here: Here, members: Members, pointer: Lanes) -> Lanes:
    """The pointer to the first element, which is the one that promises of alignment are about."""
    if members.offset.constant == 0:
        return pointer
    kind = "ptr" if pointer.is_uniform else f"<{pointer.count} x ptr>"
    moved = f"{unit(members.type.memref.element)}, {kind} {pointer.operand}, i64 {members.offset.operand}"
    return replace(pointer, parts=(here.out.value(f"getelementptr {moved}"),))


def _read_numbers(
    here: Here, entries: tuple[tuple[Size, ...], tuple[str | None, ...], tuple[int, ...]], index: Lanes
) -> tuple[Lanes, ...]:
    """Numbers of a type, those that it leaves open from arrays."""
    known, arrays, divisors = entries
    found = []
    for mode, (value, array) in enumerate(zip(known, arrays, strict=True)):
        if array is None:
            found.append(integers.number(value or 0))
        else:
            divisor = divisors[mode] if mode < len(divisors) else 1
            found.append(_read(here, "index", array, index, divisor))
    return tuple(found)


def _read(here: Here, element: str, array: str, index: Lanes, divisor: int = 1) -> Lanes:
    """An entry of an array, or the entries of all lanes."""
    if index.is_uniform:
        pointer = here.out.value(f"getelementptr i64, ptr {array}, i64 {index.operand}")
        operand = load_vector(here, Place(LLVM[element], 1, pointer, SLOT))
        return Lanes(element, (operand,), divisor=divisor)
    lanes = here.lanes
    positions = integers.spread(here, index).operand
    pointers = here.out.value(f"getelementptr i64, ptr {array}, <{lanes} x i64> {positions}")
    operand = gather(here, Place(LLVM[element], lanes, pointers, SLOT), here.mask)
    return Lanes(element, (operand,), lanes)
