"""Exponentials of complex numbers, in double precision."""

from __future__ import annotations

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.mathematics.circles import cos, sin
from lamella.backend.cpu.emit.mathematics.exponentials import near_exp, reduced
from lamella.backend.cpu.emit.mathematics.polynomials import clamp, scale
from lamella.backend.cpu.emit.scalars.complexes import Pair
from lamella.backend.cpu.emit.scalars.vectors import Vector

LN2 = 0.6931471805599453


def exp(here: Here, value: Pair) -> Pair:
    """exp(re) (cos im, sin im); a part overflows or is denormal only where the product is."""
    rest, exponent = reduced(clamp(value[0], -1400.0, 1400.0))
    size = near_exp(rest)
    return tuple(scale(here, size * turn(here, value[1]), exponent) for turn in (cos, sin))


def exp2(here: Here, value: Pair) -> Pair:
    """2 to the power of a complex number: exp of its product with ln 2."""
    return exp(here, tuple(_times(part) for part in value))


def _times(part: Vector) -> Vector:
    return part * LN2
