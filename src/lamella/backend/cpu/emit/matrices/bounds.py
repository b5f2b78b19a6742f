"""What a checked access leaves out: masks of lanes, conditions of rows and columns, vectors that mind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import add, number
from lamella.backend.cpu.emit.matrices.layout import MatrixAxis
from lamella.backend.cpu.emit.matrices.vectors import splat
from lamella.backend.cpu.emit.memory.addresses import part_bytes, part_pointers
from lamella.backend.cpu.emit.memory.vectors import VectorAddress, load_vector, store_vector
from lamella.backend.cpu.emit.values import LLVM, llvm

LARGEST = 16
"""Bytes of the largest element."""
ASIDE = 64
"""Bytes that divide the places of zeros and of what nobody reads."""


@dataclass(frozen=True, slots=True)
class AxisBounds:
    """The components of an axis that lie inside, from the first up to before the last, as i32 operands."""

    first: str
    last: str


def guard(context: EmitContext, axis: MatrixAxis, count: int) -> AxisBounds | None:
    """Which of the first `count` components lie inside; None where all do or nobody asks."""
    if not _is_open(axis, count):
        return None
    out = context.out
    before = out.value(f"sub i64 0, {axis.start.operand}")
    left = out.value(f"sub i64 {axis.size.operand}, {axis.start.operand}")
    return AxisBounds(_clamped(context, before, count), _clamped(context, left, count))


def _is_open(axis: MatrixAxis, count: int) -> bool:
    start, size = axis.start.constant, axis.size.constant
    known = isinstance(start, int) and isinstance(size, int) and 0 <= start <= size - count
    return axis.checked and not known


def _clamped(context: EmitContext, operand: str, count: int) -> str:
    low = context.out.intrinsic("i64", "llvm.smax.i64", f"i64 {operand}, i64 0")
    both = context.out.intrinsic("i64", "llvm.smin.i64", f"i64 {low}, i64 {count}")
    return context.out.value(f"trunc i64 {both} to i32")


def inside(context: EmitContext, axis: MatrixAxis, index: int) -> str | None:
    """Whether a component of an axis lies inside, as an i1; None where it does or nobody asks."""
    if not _is_open(axis, index + 1):
        return None
    place = add(context, axis.start, number(index))
    return context.out.value(f"icmp ult i64 {place.operand}, {axis.size.operand}")


def mask_lanes(context: EmitContext, allowed: AxisBounds | None, lanes: Sequence[int]) -> str | None:
    """A mask for lanes that hold these components of an axis (-1: none); None where all lanes may be accessed."""
    if allowed is None:
        whole = all(lane >= 0 for lane in lanes)
        known = ", ".join(f"i1 {str(lane >= 0).lower()}" for lane in lanes)
        return None if whole else f"<{known}>"
    count = len(lanes)
    kind = llvm("i32", count)
    held = f"<{', '.join(f'i32 {lane}' for lane in lanes)}>" if count > 1 else str(lanes[0])
    first, last = (splat(context, item, "i32", count) for item in (allowed.first, allowed.last))
    after = context.out.value(f"icmp sge {kind} {held}, {first}")
    before = context.out.value(f"icmp slt {kind} {held}, {last}")
    return context.out.value(f"and {llvm('bool', count)} {after}, {before}")


def restrict(context: EmitContext, mask: str | None, condition: str | None, count: int) -> str | None:
    """The lanes of a mask where a condition holds, else none."""
    if condition is None:
        return mask
    kind = llvm("bool", count)
    return context.out.value(f"select i1 {condition}, {kind} {mask or _all(count)}, {kind} zeroinitializer")


def _all(count: int) -> str:
    return "true" if count == 1 else "splat (i1 true)"


# --- numbers in memory --------------------------------------------------------------------------------------


def run_place(
    element: str, pointer: str, count: int, alignment: int = 1, streamed: bool = False
) -> VectorAddress:
    """Where parts of numbers lie one behind the other; no more is said of alignment than holds for `or_zeros`."""
    bytes_ = min(max(alignment, part_bytes(element)), ASIDE)
    return VectorAddress(LLVM[element], count, pointer, bytes_, streamed)


def load_lanes(context: EmitContext, place: VectorAddress, mask: str | None) -> str:
    """A vector from memory; lanes that a mask leaves out are 0."""
    if mask is not None and place.count == 1:
        place = replace(place, pointer=or_zeros(context, place.pointer, mask))
    return load_vector(context, place, mask)


def store_lanes(context: EmitContext, place: VectorAddress, vector: str, mask: str | None) -> None:
    """A vector into memory; lanes that a mask leaves out stay as they are."""
    if mask is not None and place.count == 1:
        place = replace(place, pointer=or_aside(context, place.pointer, mask))
    store_vector(context, place, vector, mask)


def load_scalar(context: EmitContext, element: str, pointer: str) -> tuple[str, ...]:
    """The parts of one element."""
    pointers = part_pointers(context, element, pointer)
    return tuple(load_lanes(context, run_place(element, item, 1), None) for item in pointers)


def store_scalar(context: EmitContext, element: str, parts: Sequence[str], pointer: str) -> None:
    """The parts of one element into memory."""
    for part, item in zip(parts, part_pointers(context, element, pointer), strict=True):
        store_lanes(context, run_place(element, item, 1), part, None)


def or_zeros(context: EmitContext, pointer: str, condition: str, size: int = LARGEST) -> str:
    """A pointer, or one to so many bytes of zeros where a condition does not hold."""
    name = f"@lamella_zeros_{size}"
    context.out.need(f"{name} = private unnamed_addr constant [{size} x i8] zeroinitializer, align {ASIDE}")
    return context.out.value(f"select i1 {condition}, ptr {pointer}, ptr {name}")


def or_aside(context: EmitContext, pointer: str, condition: str, size: int = LARGEST) -> str:
    """A pointer, or one to so many bytes that nobody reads where a condition does not hold."""
    return context.out.value(f"select i1 {condition}, ptr {pointer}, ptr {context.out.share(size)}")


def join_conditions(context: EmitContext, left: str | None, right: str | None) -> str | None:
    """Whether both hold."""
    if left is None or right is None:
        return right if left is None else left
    return context.out.value(f"and i1 {left}, {right}")
