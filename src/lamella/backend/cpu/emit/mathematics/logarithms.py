"""Logarithms, and the inverse hyperbolic functions that are made of them.

`x = 2^k m` with m between √½ and √2, `f = m - 1`. Single precision takes a polynomial in f; double precision one in
`s² = (f / (2 + f))²`, as log(m) = 2 artanh(s).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan, sqrt

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.mathematics.exponentials import LN2
from lamella.backend.cpu.emit.mathematics.polynomials import FRACTION, polynomial, with_sign
from lamella.backend.cpu.emit.scalars.vectors import Vector

LEAST = {"float": 2.0**-126, "double": 2.0**-1022}
"""The least number that is not denormal."""
INVERSE = float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56")
"""1 / ln 2 in two parts."""
LOG_SINGLE = (
    0.33333331180030048052,
    -0.24999996957950882045,
    0.20000715748892101743,
    -0.16667802319501254074,
    0.14249057645697480404,
    -0.12425687331451106113,
    0.11685419923486739308,
    -0.11479733846637635556,
    0.069716114714511778317,
)
"""(log(1+f) - f + f²/2) / f³ for f between √½-1 and √2-1."""
LOG2_SINGLE = (
    0.44269504175605119,
    -0.72134751199053583,
    0.48089790445500085,
    -0.36067466009513406,
    0.2885755897331174,
    -0.24044757077719425,
    0.20504002106652402,
    -0.17919457239512765,
    0.17234259277671126,
    -0.16765051818984326,
    0.094818637986995757,
)
"""log2(1+f) / f - 1 for f between √½-1 and √2-1."""
LOG_DOUBLE = (
    0.66666666666666666464,
    0.40000000000000879686,
    0.28571428570801956942,
    0.22222222392089007936,
    0.18181795600060792441,
    0.15386241881938595507,
    0.13268714792348096667,
    0.13087236196659622326,
)
"""(2 artanh(s) - 2s) / s³ as a function of s² up to 0.0295."""
HUGE = 1e150
"""Its square is still finite, and adding 1 to it changes nothing."""


@dataclass(frozen=True, slots=True)
class Split:
    """`x = 2^exponent (1 + rest)`; the exponent is a whole number of the kind of x."""

    exponent: Vector
    rest: Vector


def split(x: Vector) -> Split:
    """The exponent and the fraction of positive numbers, denormal ones included."""
    bits, fraction = FRACTION[x.kind], float(2 ** FRACTION[x.kind])
    small = x < LEAST[x.kind]
    field = small.choose(x * fraction, x).bits()
    # Subtracting the bits of √½ makes the exponent change where the fraction passes it.
    moved = field - x.like(sqrt(0.5)).bits()
    exponent = (moved >> bits).cast("sitofp", x.kind)
    kept = (moved & ((1 << bits) - 1)) + x.like(sqrt(0.5)).bits()
    exponent = small.choose(exponent - float(bits), exponent)
    return Split(exponent, kept.cast("bitcast", x.kind) - 1.0)


def finish(x: Vector, found: Vector) -> Vector:
    """A logarithm at the ends: of 0, of infinity, of negative numbers."""
    found = (x.equals(inf) | x.is_nan()).choose(x, found)
    found = x.equals(0.0).choose(x.like(-inf), found)
    return (x < 0.0).choose(x.like(nan), found)


def log(here: Here, x: Vector) -> Vector:
    """The natural logarithm."""
    parts = split(x)
    high, low = LN2[x.kind]
    rest, half = parts.rest, parts.rest * parts.rest * 0.5
    if x.kind == "float":
        cubic = rest * rest * rest * polynomial(rest, LOG_SINGLE)
        tail = parts.exponent.fma(low, cubic) - half
    else:
        tail = parts.exponent.fma(low, _slope(rest, half)) - half
    return finish(x, parts.exponent.fma(high, rest + tail))


def _slope(rest: Vector, half: Vector) -> Vector:
    """log(1 + f) - f + f²/2, as s (f²/2 + R(s²))."""
    s = rest / (rest + 2.0)
    square = s * s
    return s * (half + square * polynomial(square, LOG_DOUBLE))


def log2(here: Here, x: Vector) -> Vector:
    """The logarithm to the base 2; of powers of two it is exact."""
    parts = split(x)
    if x.kind == "float":
        return finish(x, parts.exponent + parts.rest.fma(polynomial(parts.rest, LOG2_SINGLE), parts.rest))
    rest, half = parts.rest, parts.rest * parts.rest * 0.5
    high = (rest - half).bits() & -(1 << 32)
    first = high.cast("bitcast", x.kind)
    second = (rest - first) - half + _slope(rest, half)
    product = first * INVERSE[0]
    error = first.fma(INVERSE[0], -product) + second.fma(INVERSE[0], (first + second) * INVERSE[1])
    total = parts.exponent + product
    return finish(x, total + ((parts.exponent - total) + product + error))


def log1p(here: Here, x: Vector) -> Vector:
    """log(1 + x), with what the sum loses given back."""
    whole = x + 1.0
    lost = (x - (whole - 1.0)) / whole
    found = log(here, whole)
    return (whole < inf).choose(found + lost, found)


def asinh(here: Here, x: Vector) -> Vector:
    """The inverse of the hyperbolic sine: log1p(a + a² / (1 + √(a² + 1))) for a = |x|."""
    size = abs(x)
    huge = size > HUGE
    square = huge.choose(size.like(0.0), size) * size
    found = log1p(here, huge.choose(size, size + square / ((square + 1.0).call("sqrt") + 1.0)))
    return with_sign(huge.choose(found + LN2["double"][0], found), x)


def acosh(here: Here, x: Vector) -> Vector:
    """The inverse of the hyperbolic cosine: log1p(t + √(2t + t²)) for t = x - 1."""
    less = x - 1.0
    huge = x > HUGE
    root = (huge.choose(less.like(1.0), less) * (less + 2.0)).call("sqrt")
    found = log1p(here, huge.choose(x, less + root))
    found = huge.choose(found + LN2["double"][0], found)
    return (x < 1.0).choose(x.like(nan), found)


def atanh(here: Here, x: Vector) -> Vector:
    """The inverse of the hyperbolic tangent: log1p(2a / (1 - a)) / 2 for a = |x|."""
    size = abs(x)
    return with_sign(log1p(here, (size + size) / (1.0 - size)) * 0.5, x)
