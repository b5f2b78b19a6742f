"""Functions that are exact or rounded by the machine: roots, whole numbers, signs."""

from __future__ import annotations

from collections.abc import Callable

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.mathematics.polynomials import with_sign
from lamella.backend.cpu.emit.scalars.vectors import Vector


def machine_instruction(name: str) -> Callable[[EmitContext, Vector], Vector]:
    """A function that is one instruction."""
    return lambda _, x: x.call(name)


def rsqrt(context: EmitContext, x: Vector) -> Vector:
    """1 / √x."""
    return 1.0 / x.call("sqrt")


def round_away(context: EmitContext, x: Vector) -> Vector:
    """The nearest whole number, halves away from zero; the sign stays."""
    whole = x.call("trunc")
    up = (abs(x - whole) >= 0.5).choose(x.like(1.0), 0.0)
    return with_sign(abs(whole) + up, x)


def sign(context: EmitContext, x: Vector) -> Vector:
    """-1, 0 or 1; NaN stays NaN."""
    zero = x.equals(0.0).choose(x.like(0.0), x)
    negative = (x < 0.0).choose(x.like(-1.0), zero)
    return (x > 0.0).choose(x.like(1.0), negative)
