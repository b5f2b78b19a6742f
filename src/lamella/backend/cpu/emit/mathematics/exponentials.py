"""exp, exp2 and what is made of them: hyperbolic functions and the logistic one.

`exp(x) = 2^n exp(r)` with `n` next to `x / ln 2`, and `exp(r) = 1 + r + r² q(r)`; the coefficients of q make the
largest error on the interval of r small, those of single precision after they are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.scalars.lanes import Vector, shaped

# --- polynomials and powers of two, the stuff that the functions are made of --------------------------------


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


# --- functions that are exact or rounded by the machine: roots, whole numbers, signs ------------------------


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
