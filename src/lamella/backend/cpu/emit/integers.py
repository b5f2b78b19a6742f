"""Index arithmetic with constant folding; values that are affine in the lane stay known as such."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.values import LLVM, ScalarValue, llvm

WIDTHS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}
LARGEST_DIVISOR = 1 << 20


def number(value: int, element: str = "index") -> ScalarValue:
    """An integer that is known."""
    return ScalarValue(element, (str(value),), 1, value, divisor=abs(value))


def dynamic(operand: str, element: str = "index", divisor: int = 1) -> ScalarValue:
    """A uniform integer that the run tells."""
    return ScalarValue(element, (operand,), divisor=divisor)


def affine(
    context: EmitContext, base: str, step: int, element: str = "index", divisor: int = 1
) -> ScalarValue:
    """`base + step * lane`."""
    if step == 0 or context.lanes == 1:
        return dynamic(base, element, divisor)
    return ScalarValue(element, (), context.lanes, base=base, step=step, divisor=divisor)


def spread(context: EmitContext, value: ScalarValue) -> ScalarValue:
    """A value as a vector with a lane for each work-item."""
    if context.lanes == 1 or (value.parts and value.count == context.lanes):
        return value
    if not value.parts:
        return replace(value, parts=(_steps(context, value),))
    return replace(
        value, count=context.lanes, parts=tuple(splat(context, item, value.element) for item in value.parts)
    )


def splat(context: EmitContext, operand: str, element: str, count: int = 0) -> str:
    """A vector with the same value in every lane."""
    count = count or context.lanes
    kind = llvm(element, count)
    first = context.out.value(f"insertelement {kind} poison, {LLVM[element]} {operand}, i64 0")
    return context.out.value(f"shufflevector {kind} {first}, {kind} poison, <{count} x i32> zeroinitializer")


def _steps(context: EmitContext, value: ScalarValue) -> str:
    kind, part = llvm(value.element, context.lanes), LLVM[value.element]
    bits = WIDTHS[value.element]
    steps = ", ".join(f"{part} {_wrapped(lane * value.step, bits)}" for lane in range(context.lanes))
    if value.base == "0":
        return f"<{steps}>"
    base = splat(context, value.base or "0", value.element)
    return context.out.value(f"add {kind} {base}, <{steps}>")


def _wrapped(value: int, bits: int) -> int:
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def add(context: EmitContext, left: ScalarValue, right: ScalarValue) -> ScalarValue:
    """The sum of two integers of one type; it wraps."""
    return _combine(context, "add", left, right)


def subtract(context: EmitContext, left: ScalarValue, right: ScalarValue) -> ScalarValue:
    """The difference of two integers of one type; it wraps."""
    return _combine(context, "sub", left, right)


def _combine(context: EmitContext, word: str, left: ScalarValue, right: ScalarValue) -> ScalarValue:
    sign = 1 if word == "add" else -1
    divisor = gcd(left.divisor, right.divisor)
    if isinstance(left.constant, int) and isinstance(right.constant, int):
        return number(_wrapped(left.constant + sign * right.constant, WIDTHS[left.element]), left.element)
    if right.constant == 0:
        return left
    if left.constant == 0 and word == "add":
        return right
    if _is_even(left) and _is_even(right):
        base = _apply(context, word, LLVM[left.element], first_of(left), first_of(right))
        return affine(context, base, left.step + sign * right.step, left.element, divisor)
    wide = [spread(context, item).operand for item in (left, right)]
    operand = _apply(context, word, llvm(left.element, context.lanes), *wide)
    return ScalarValue(left.element, (operand,), context.lanes, divisor=1)


def multiply(context: EmitContext, left: ScalarValue, right: ScalarValue) -> ScalarValue:
    """The product of two integers of one type; it wraps."""
    if isinstance(left.constant, int) and isinstance(right.constant, int):
        return number(_wrapped(left.constant * right.constant, WIDTHS[left.element]), left.element)
    for one, other in ((left, right), (right, left)):
        if isinstance(other.constant, int) and _is_even(one):
            return _scale(context, one, int(other.constant))
    if left.is_uniform and right.is_uniform:
        operand = _apply(context, "mul", LLVM[left.element], left.operand, right.operand)
        return dynamic(operand, left.element, _bounded(left.divisor * right.divisor))
    wide = [spread(context, item).operand for item in (left, right)]
    return ScalarValue(
        left.element, (_apply(context, "mul", llvm(left.element, context.lanes), *wide),), context.lanes
    )


def _scale(context: EmitContext, value: ScalarValue, factor: int) -> ScalarValue:
    if factor == 1:
        return value
    if factor == 0:
        return number(0, value.element)
    base = _apply(context, "mul", LLVM[value.element], first_of(value), str(factor))
    divisor = _bounded(value.divisor * abs(factor))
    return affine(context, base, value.step * factor, value.element, divisor)


def _bounded(divisor: int) -> int:
    """A divisor that does not grow for ever; of a large one its power of two is kept, which is what alignment needs."""
    return divisor if divisor <= LARGEST_DIVISOR else gcd(divisor, LARGEST_DIVISOR)


def _is_even(value: ScalarValue) -> bool:
    """Whether neighbouring lanes differ by a known number."""
    return value.is_uniform or value.base is not None


def first_of(value: ScalarValue) -> str:
    """The value of lane 0."""
    return value.base if value.base is not None else value.operand


def _apply(context: EmitContext, word: str, kind: str, left: str, right: str) -> str:
    if right == "0" and word in ("add", "sub"):
        return left
    if left == "0" and word == "add":
        return right
    if right == "1" and word == "mul":
        return left
    return context.out.value(f"{word} {kind} {left}, {right}")
