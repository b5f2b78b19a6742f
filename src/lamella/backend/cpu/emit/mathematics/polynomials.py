"""Polynomials and powers of two, the stuff that the functions are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.scalars.vectors import Vector, shaped

FRACTION = {"float": 23, "double": 52}
"""Bits behind the leading one."""
BIAS = {"float": 127, "double": 1023}


def polynomial(x: Vector, coefficients: Sequence[float]) -> Vector:
    """`c0 + c1 x + c2 x² + …`, the highest power first, each step rounded once."""
    found = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        found = found.fma(x, coefficient)
    return found


def nearest(x: Vector, factor: float) -> tuple[Vector, Vector]:
    """The whole number next to `x * factor`, as it is and as an integer; its magnitude must stay below 2^21.

    Adding a large number leaves the whole part in the low bits; unlike a conversion that never makes poison.
    """
    large = 1.5 * 2.0 ** FRACTION[x.kind]
    shifted = x.fma(factor, large)
    whole = shifted.bits() - shifted.like(large).bits()
    return shifted - large, whole


def power_of_two(exponent: Vector, kind: str) -> Vector:
    """2 to an integer, which must be that of a normal number."""
    return ((exponent + BIAS[kind]) << FRACTION[kind]).cast("bitcast", kind)


def scale(context: EmitContext, value: Vector, exponent: Vector) -> Vector:
    """`value * 2^exponent`, rounded once; the exponent may lead to infinity or to denormal numbers."""
    if "+avx512f" in context.target.features.split(","):
        return _scale_at_once(value, exponent)
    half = exponent >> 1
    return value * power_of_two(half, value.kind) * power_of_two(exponent - half, value.kind)


def _scale_at_once(value: Vector, exponent: Vector) -> Vector:
    """One instruction of its own where the machine has it; elsewhere LLVM would call a function for each lane."""
    short = exponent if exponent.kind == "i32" else exponent.cast("trunc", "i32")
    lanes = "" if value.count == 1 else f"v{value.count}"
    ending = {"float": "f32", "double": "f64"}[value.kind]
    name = f"llvm.ldexp.{lanes}{ending}.{lanes}i32"
    text = value.out.intrinsic(shaped(value.kind, value.count), name, f"{value.typed}, {short.typed}")
    return replace(value, operand=text)


def clamp(x: Vector, low: float, high: float) -> Vector:
    """The number of an interval next to x; NaN stays NaN."""
    return at_most((x < low).choose(x.like(low), x), high)


def at_most(x: Vector, high: float) -> Vector:
    """The lesser of a number and a bound; NaN stays NaN."""
    return (x > high).choose(x.like(high), x)


def with_sign(magnitude: Vector, sign: Vector) -> Vector:
    """A magnitude with the sign of another number."""
    return magnitude.call("copysign", sign)
