"""asin, acos and atan in double precision."""

from __future__ import annotations

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.mathematics.circles import HALF_PI
from lamella.backend.cpu.emit.mathematics.polynomials import polynomial, with_sign
from lamella.backend.cpu.emit.scalars.vectors import Vector

ASIN = (
    0.16666666666666666592,
    0.07500000000000117751,
    0.044642857142551892902,
    0.030381944475532339993,
    0.022372157443507222419,
    0.017352816540325494994,
    0.013963780012203569641,
    0.011566459612121668568,
    0.0096218429701002810177,
    0.0093195607947674462957,
    0.0030448799094556773959,
    0.019554513336123378949,
    -0.019241671746743040654,
    0.02961201126495512036,
)
"""(asin(t) - t) / t³ as a function of t² up to 1/4."""
ATAN = (
    -0.33333333333333333216,
    0.19999999999999803052,
    -0.14285714285659457296,
    0.11111111105119365263,
    -0.090909087517060757647,
    0.076922963231577845479,
    -0.066664239543734121795,
    0.05878918292975727249,
    -0.052303754575766691623,
    0.045512338448295676627,
    -0.034561322968262307559,
    0.016275521683893418045,
)
"""(atan(t) - t) / t³ as a function of t² for |t| <= √2 - 1."""
EIGHTH = 0.41421356237309503
"""tan(π/8); beyond tan(3π/8) the reciprocal is taken."""
THREE_EIGHTHS = 2.414213562373095


def asin(here: Here, x: Vector) -> Vector:
    """The inverse of the sine; NaN outside of [-1, 1]."""
    size = abs(x)
    large = size > 0.5
    t, tail = _arc(size, large)
    found = HALF_PI[0] - ((t + tail) * 2.0 - HALF_PI[1])
    return with_sign(large.choose(found, t + tail), x)


def acos(here: Here, x: Vector) -> Vector:
    """The inverse of the cosine; NaN outside of [-1, 1]."""
    size = abs(x)
    large = size > 0.5
    t, tail = _arc(size, large)
    half = with_sign(t + tail, x)
    middle = HALF_PI[0] - (half - HALF_PI[1])
    left = 2.0 * HALF_PI[0] - ((t + tail) * 2.0 - 2.0 * HALF_PI[1])
    outer = (x < 0.0).choose(left, (t + tail) * 2.0)
    return large.choose(outer, middle)


def _arc(size: Vector, large: Vector) -> tuple[Vector, Vector]:
    """asin(t) - t and t; above 1/2 t is √((1-x)/2), the half of the complement."""
    square = large.choose((1.0 - size) * 0.5, size * size)
    t = large.choose(square.call("sqrt"), size)
    return t, t * square * polynomial(square, ASIN)


def atan(here: Here, x: Vector) -> Vector:
    """The inverse of the tangent."""
    size = abs(x)
    far, middle = size > THREE_EIGHTHS, size > EIGHTH
    top = far.choose(size.like(-1.0), middle.choose(size - 1.0, size))
    bottom = far.choose(size, middle.choose(size + 1.0, 1.0))
    t = top / bottom
    square = t * t
    arc = t + t * square * polynomial(square, ATAN)
    base = far.choose(size.like(HALF_PI[0]), middle.choose(size.like(HALF_PI[0] / 2), 0.0))
    rest = far.choose(size.like(HALF_PI[1]), middle.choose(size.like(HALF_PI[1] / 2), 0.0))
    return with_sign(base + (arc + rest), x)
