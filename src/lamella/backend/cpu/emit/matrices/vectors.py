"""Moving lanes about in vectors of any length; a vector of one lane is a scalar."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.values import LLVM, llvm
from lamella.lang.tensor.check.kinds import PARTS


def part_count(element: str) -> int:
    """How many parts an element has: two where it is complex."""
    return 2 if element in PARTS else 1


def splat(context: EmitContext, operand: str, element: str, count: int) -> str:
    """A vector with the same value in every lane."""
    if count == 1:
        return operand
    if not operand.startswith("%"):
        return f"splat ({LLVM[element]} {operand})"
    return integers.splat(context, operand, element, count)


def shuffle(context: EmitContext, element: str, pair: Sequence[str], count: int, lanes: Sequence[int]) -> str:
    """Lanes picked from one or two vectors of `count` lanes; -1 picks anything."""
    kind = llvm(element, count)
    first, second = (*pair, "poison")[:2]
    if len(lanes) == 1:
        source, place = (first, lanes[0]) if lanes[0] < count else (second, lanes[0] - count)
        return source if count == 1 else context.out.value(f"extractelement {kind} {source}, i64 {place}")
    if count == 1:
        return assemble(context, element, [pair[lane] if lane >= 0 else "poison" for lane in lanes])
    listed = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
    return context.out.value(
        f"shufflevector {kind} {first}, {kind} {second}, <{len(lanes)} x i32> <{listed}>"
    )


def assemble(context: EmitContext, element: str, scalars: Sequence[str]) -> str:
    """A vector put together from scalars."""
    kind, found = llvm(element, len(scalars)), "poison"
    for place, scalar in enumerate(scalars):
        if scalar != "poison":
            text = f"insertelement {kind} {found}, {LLVM[element]} {scalar}, i64 {place}"
            found = context.out.value(text)
    return found


def concatenate(context: EmitContext, element: str, vectors: Sequence[str], count: int) -> str:
    """One vector after the other, each of `count` lanes; pairs first, so that registers are filled side by side."""
    if len(vectors) == 1:
        return vectors[0]
    if count == 1:
        return assemble(context, element, vectors)
    if len(vectors) % 2 == 0:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        joined = [shuffle(context, element, pair, count, range(2 * count)) for pair in pairs]
        return concatenate(context, element, joined, 2 * count)
    longer = (len(vectors) - 1) * count
    front = concatenate(context, element, vectors[:-1], count)
    back = shuffle(context, element, vectors[-1:], count, [*range(count), *[-1] * (longer - count)])
    return shuffle(context, element, (front, back), longer, range(longer + count))
