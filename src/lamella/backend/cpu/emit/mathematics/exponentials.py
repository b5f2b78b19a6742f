"""exp, exp2 and what is made of them: hyperbolic functions and the logistic one.

`exp(x) = 2^n exp(r)` with `n` next to `x / ln 2`, and `exp(r) = 1 + r + r² q(r)`; the coefficients of q make the
largest error on the interval of r small, those of single precision after they are rounded.
"""

from __future__ import annotations

from types import MappingProxyType

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.mathematics.polynomials import (
    at_most,
    clamp,
    nearest,
    polynomial,
    power_of_two,
    scale,
    with_sign,
)
from lamella.backend.cpu.emit.scalars.vectors import Vector

LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LN2 = MappingProxyType(
    {
        "float": (float.fromhex("0x1.62e4p-1"), 1.4286068203094173e-06),
        "double": (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56")),
    }
)
"""ln 2 in two parts; that of single precision is short, so that the first step of the reduction is exact."""
RANGE = MappingProxyType({"float": (-105.0, 89.0), "double": (-746.0, 710.0)})
"""Below the result is 0, above it is infinite."""
POWERS = MappingProxyType({"float": (-151.0, 129.0), "double": (-1076.0, 1025.0)})
EXP = MappingProxyType(
    {
        "float": (
            0.5,
            0.16666534543037415,
            0.04166724532842636,
            0.008367440663278103,
            0.0013863133499398828,
        ),
        "double": (
            0.5,
            0.16666666666666671074,
            0.041666666666666669814,
            0.0083333333333260249508,
            0.0013888888888883669627,
            0.00019841269875205076848,
            0.00002480158732582228205,
            2.7557254913486702019e-6,
            2.7557273295539724343e-7,
            2.5105419192016336433e-8,
            2.0914831351380410561e-9,
        ),
    }
)
"""(exp(r) - 1 - r) / r² for |r| <= ln(2) / 2."""
EXP2 = MappingProxyType(
    {
        "float": (
            0.69314718811634906328,
            0.24022650761348438004,
            0.055503566823864048238,
            0.0096180821833941218592,
            0.0013391093247266345796,
            0.00015453361973533560734,
        ),
        "double": (
            0.69314718055994530925,
            0.24022650695910071233,
            0.05550410866482162799,
            0.0096181291076284795398,
            0.0013333558146406116514,
            0.00015403530393370558099,
            0.000015252733842009231961,
            1.3215486808929518589e-6,
            1.0178056855501161077e-7,
            7.0548971892065078144e-9,
            4.4558591123302076764e-10,
            2.5729528125665951592e-11,
        ),
    }
)
"""(2^r - 1) / r for |r| <= 1/2."""


def reduced(x: Vector, low: Vector | None = None) -> tuple[Vector, Vector]:
    """The rest r and the exponent n of exp(x) = 2^n exp(r); `low` is a small number to be added to x."""
    first, second = LN2[x.kind]
    count, exponent = nearest(x, LOG2_E)
    rest = count.fma(-second, count.fma(-first, x))
    return rest if low is None else rest + low, exponent


def near_exp(rest: Vector) -> Vector:
    """exp(r) for |r| <= ln(2) / 2."""
    return polynomial(rest, (1.0, 1.0, *EXP[rest.kind]))


def exp(context: EmitContext, x: Vector, low: Vector | None = None) -> Vector:
    """The exponential function; denormal results are rounded once, NaN stays NaN."""
    rest, exponent = reduced(clamp(x, *RANGE[x.kind]), low)
    return scale(context, near_exp(rest), exponent)


def exp2(context: EmitContext, x: Vector) -> Vector:
    """2 to the power of x."""
    inside = clamp(x, *POWERS[x.kind])
    count, exponent = nearest(inside, 1.0)
    return scale(context, near_exp2(inside - count), exponent)


def near_exp2(rest: Vector) -> Vector:
    """2 to the power of r for |r| <= 1/2."""
    return polynomial(rest, (1.0, *EXP2[rest.kind]))


def expm1(x: Vector) -> Vector:
    """`exp(x) - 1` where the exponent of exp(x) is that of a normal number."""
    rest, exponent = reduced(x)
    less = (rest * rest).fma(polynomial(rest, EXP[x.kind]), rest)
    factor = power_of_two(exponent, x.kind)
    return factor.fma(less, factor - 1.0)


def tanh(context: EmitContext, x: Vector) -> Vector:
    """The hyperbolic tangent: e / (e + 2) with e = exp(2|x|) - 1."""
    less = expm1(at_most(abs(x) + abs(x), 44.0))
    return with_sign(less / (less + 2.0), x)


def sigmoid(context: EmitContext, x: Vector) -> Vector:
    """1 / (1 + exp(-x)), by exp(-|x|), which never overflows."""
    small = exp(context, -abs(x))
    return (x < 0.0).choose(small, 1.0) / (small + 1.0)


def cosh(context: EmitContext, x: Vector) -> Vector:
    """The hyperbolic cosine."""
    half = _half_exp(context, x)
    return half + 0.25 / half


def sinh(context: EmitContext, x: Vector) -> Vector:
    """The hyperbolic sine; below 1 by exp(|x|) - 1, where the difference of two exponentials would cancel."""
    half = _half_exp(context, x)
    less = expm1(at_most(abs(x), 2.0))
    small = (less + less / (less + 1.0)) * 0.5
    return with_sign((abs(x) < 1.0).choose(small, half - 0.25 / half), x)


def _half_exp(context: EmitContext, x: Vector) -> Vector:
    """exp(|x|) / 2, which overflows only where the hyperbolic functions do."""
    rest, exponent = reduced(at_most(abs(x), RANGE[x.kind][1] + 2.0))
    return scale(context, near_exp(rest), exponent - 1)
