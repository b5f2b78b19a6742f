"""Powers: x to the y, the logarithm with twice the precision so that large exponents lose nothing."""

from __future__ import annotations

from math import inf, nan
from typing import TypeAlias

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.mathematics.exponentials import LN2, exp
from lamella.backend.cpu.emit.mathematics.logarithms import log, split
from lamella.backend.cpu.emit.mathematics.polynomials import polynomial
from lamella.backend.cpu.emit.scalars.vectors import Operand, Vector

Sum: TypeAlias = tuple[Vector, Vector]
"""A number as the sum of a double and a small rest."""
LOG = (
    0.39999999999999999817,
    0.28571428571429368119,
    0.22222222221654732568,
    0.18181818335654159468,
    0.15384594934597916688,
    0.13334806212100603652,
    0.11706195689881364837,
    0.11723603622905411626,
)
"""((2 artanh(s) - 2s) / s³ - 2/3) / s² as a function of s² up to 0.0295."""
FAR = 2048.0
"""Where exp has long been 0 or infinite."""
TWO_THIRDS = 2 / 3, 2.0**-54 * 2 / 3


def power(here: Here, x: Vector, y: Vector) -> Vector:
    """Powers `x^y` in double precision, with the special cases of C's pow."""
    high, low = _logarithm(abs(x))
    product = high * y
    rest = high.fma(y, -product) + low * y
    return _finish(x, y, exp(here, product, (abs(product) < FAR).choose(rest, 0.0)))


def short_power(here: Here, x: Vector, y: Vector) -> Vector:
    """Powers `x^y` in double precision, as exact as single precision needs."""
    return _finish(x, y, exp(here, log(here, abs(x)) * y))


def _finish(x: Vector, y: Vector, size: Vector) -> Vector:
    found = _signed(x, y, size)
    return (y.equals(0.0) | abs(x).equals(1.0) & _is_settled(x, y)).choose(found.like(1.0), found)


def _is_settled(x: Vector, y: Vector) -> Vector:
    """Whether 1 to the y is 1 whatever y is, and -1 too where y is infinite."""
    return x.equals(1.0) | abs(y).equals(inf)


def _signed(x: Vector, y: Vector, size: Vector) -> Vector:
    """Negative where x is and y is odd; NaN where x is negative and finite and y is not whole."""
    whole = y.equals(y.call("trunc"))
    half = y * 0.5
    odd = whole & half.compare("one", half.call("trunc"))
    sign = odd.choose(x, x.like(1.0))
    signed = size.call("copysign", sign)
    wrong = (x < 0.0) & (x > -inf) & (whole ^ 1)
    return wrong.choose(x.like(nan), signed)


def _logarithm(x: Vector) -> Sum:
    """The logarithm of positive numbers in two parts, about 2^-65 off."""
    parts = split(x)
    rest = parts.rest
    s = _divide(rest, _add(rest.like(2.0), rest))
    square = _multiply(s, s)
    cube = _multiply(s, square)
    third = _multiply(cube, (s[0].like(TWO_THIRDS[0]), s[0].like(TWO_THIRDS[1])))
    tail = cube[0] * square[0] * polynomial(square[0], LOG)
    high, low = _add(s[0] + s[0], third[0])
    base = _add(*_scaled(parts.exponent))
    total = _add(base[0], high)
    low = low + (s[1] + s[1]) + third[1] + tail + base[1] + total[1]
    special = x.equals(0.0) | x.equals(inf) | x.is_nan()
    found = _add(total[0], low)
    ends = x.equals(0.0).choose(x.like(-inf), x)
    return special.choose(ends, found[0]), special.choose(x.like(0.0), found[1])


def _scaled(exponent: Vector) -> Sum:
    high, low = LN2["double"]
    product = exponent * high
    return product, exponent.fma(high, -product) + exponent * low


# --- sums of two doubles ------------------------------------------------------------------------------------


def _add(left: Vector, right: Operand) -> Sum:
    """The sum and what it lost."""
    total = left + right
    part = total - left
    return total, (left - (total - part)) + (left.like(right) - part)


def _multiply(left: Sum, right: Sum) -> Sum:
    product = left[0] * right[0]
    lost = left[0].fma(right[0], -product)
    return product, left[0].fma(right[1], left[1].fma(right[0], lost))


def _divide(left: Vector, right: Sum) -> Sum:
    quotient = left / right[0]
    rest = (-quotient).fma(right[0], left) - quotient * right[1]
    return quotient, rest / right[0]
