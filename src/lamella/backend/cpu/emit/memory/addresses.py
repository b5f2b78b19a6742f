"""Addresses of elements: a pointer and an offset, and what is known about both before the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.values import LLVM, MemrefValue, ScalarValue
from lamella.lang.tensor.check.kinds import BYTES, component_of

LARGEST_ALIGNMENT = 1 << 12
"""More is never of use."""


@dataclass(frozen=True, slots=True)
class Address:
    """The place of an element for all lanes, or of one for each lane: `pointer + offset`, counted in elements."""

    element: str
    pointer: ScalarValue
    offset: ScalarValue
    alignment: int
    """Bytes that divide the place; of lane 0 where lanes have their own."""
    streamed: bool = False

    @property
    def step(self) -> int | None:
        """How many elements lie between neighbouring lanes, 0 where all share one; None where nobody knows."""
        if not self.pointer.is_uniform:
            return None
        if self.offset.is_uniform:
            return 0
        return self.offset.step if self.offset.base is not None else None


def part_bytes(element: str) -> int:
    """Bytes of a part of an element, to which an element is always aligned."""
    return BYTES[component_of(element)]


def unit(element: str) -> str:
    """The LLVM type that is as long as an element."""
    part = LLVM[element]
    return f"[2 x {part}]" if component_of(element) != element else part


def address(context: EmitContext, memory: MemrefValue, indices: Sequence[ScalarValue]) -> Address:
    """Where an element is."""
    offset = memory.offset
    for index, stride in zip(indices, memory.strides, strict=True):
        offset = integers.add(context, offset, integers.multiply(context, index, stride))
    element = memory.type.element
    alignment = alignment_of(element, memory.alignment, offset.divisor)
    return Address(element, memory.pointer, offset, alignment, memory.streamed)


def alignment_of(element: str, alignment: int, divisor: int) -> int:
    """Bytes that divide a place which is a multiple of `divisor` elements behind an aligned pointer.

    It is a power of two and never less than a part of an element; a divisor of 0 is that of offset 0.
    """
    found = gcd(alignment, divisor * BYTES[element], LARGEST_ALIGNMENT)
    return max(found, part_bytes(element))


def element_pointer(context: EmitContext, memory: MemrefValue, indices: Sequence[ScalarValue]) -> str:
    """The LLVM pointer to an element at a position that all lanes share."""
    return first_pointer(context, address(context, memory, indices))


def first_pointer(context: EmitContext, place: Address, moved: int = 0) -> str:
    """The pointer to the element of lane 0, or to one some elements behind it."""
    start = place.offset.base if place.offset.base is not None else place.offset.operand
    pointer = step_pointer(context, place.element, place.pointer.operand, start)
    return step_pointer(context, place.element, pointer, str(moved))


def step_pointer(context: EmitContext, element: str, pointer: str, offset: str) -> str:
    """A pointer some elements further on."""
    if offset == "0":
        return pointer
    return context.out.value(f"getelementptr {unit(element)}, ptr {pointer}, i64 {offset}")


def lane_pointers(context: EmitContext, place: Address) -> str:
    """A vector of the pointers of all lanes."""
    offset = place.offset if place.offset.is_uniform else integers.spread(context, place.offset)
    pointer = place.pointer
    if pointer.is_uniform and offset.is_uniform:
        return integers.splat(context, first_pointer(context, place), "ptr")
    return context.out.value(
        f"getelementptr {unit(place.element)}, {_counted('ptr', pointer)} {pointer.operand}, "
        f"{_counted('i64', offset)} {offset.operand}"
    )


def _counted(part: str, value: ScalarValue) -> str:
    return part if value.is_uniform else f"<{value.count} x {part}>"


def second_part(context: EmitContext, element: str, pointer: str, count: int = 1) -> str:
    """The pointer, or the pointers, to the imaginary part of what is pointed to."""
    kind = "ptr" if count == 1 else f"<{count} x ptr>"
    return context.out.value(f"getelementptr {LLVM[element]}, {kind} {pointer}, i64 1")


def part_pointers(context: EmitContext, element: str, pointer: str, count: int = 1) -> list[str]:
    """The pointers to the parts of an element: one, or two where it is complex."""
    if component_of(element) == element:
        return [pointer]
    return [pointer, second_part(context, element, pointer, count)]
