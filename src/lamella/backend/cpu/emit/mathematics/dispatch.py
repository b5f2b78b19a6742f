"""`math.…`: which function computes it, and in which precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf, nan, sqrt
from types import MappingProxyType
from typing import TypeAlias

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.mathematics import erf, exponentials, hardware, trigonometric
from lamella.backend.cpu.emit.mathematics import exponentials as rounding
from lamella.backend.cpu.emit.mathematics.exponentials import (
    FRACTION,
    clamp,
    near_exp,
    polynomial,
    reduced,
    scale,
    with_sign,
)
from lamella.backend.cpu.emit.mathematics.exponentials import LN2 as exponentials_LN2
from lamella.backend.cpu.emit.mathematics.exponentials import exp as exponentials_exp
from lamella.backend.cpu.emit.mathematics.trigonometric import HALF_PI, cos, sin
from lamella.backend.cpu.emit.scalars.complexes import Pair
from lamella.backend.cpu.emit.scalars.lanes import Operand, Vector, change, lanes_of, level, vectors_of
from lamella.backend.cpu.emit.values import ScalarValue
from lamella.base.records import dataclass
from lamella.lang.tensor.check.kinds import PARTS
from lamella.lang.tensor.nodes import Math, Scalar

# --- logarithms, and the inverse hyperbolic functions that are made of them ---------------------------------


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
class FloatParts:
    """`x = 2^exponent (1 + rest)`; the exponent is a whole number of the kind of x."""

    exponent: Vector
    rest: Vector


def split(x: Vector) -> FloatParts:
    """The exponent and the fraction of positive numbers, denormal ones included."""
    bits, fraction = FRACTION[x.kind], float(2 ** FRACTION[x.kind])
    small = x < LEAST[x.kind]
    field = small.choose(x * fraction, x).bits()
    # Subtracting the bits of √½ makes the exponent change where the fraction passes it.
    moved = field - x.like(sqrt(0.5)).bits()
    exponent = (moved >> bits).cast("sitofp", x.kind)
    kept = (moved & ((1 << bits) - 1)) + x.like(sqrt(0.5)).bits()
    exponent = small.choose(exponent - float(bits), exponent)
    return FloatParts(exponent, kept.cast("bitcast", x.kind) - 1.0)


def finish(x: Vector, found: Vector) -> Vector:
    """A logarithm at the ends: of 0, of infinity, of negative numbers."""
    found = (x.equals(inf) | x.is_nan()).choose(x, found)
    found = x.equals(0.0).choose(x.like(-inf), found)
    return (x < 0.0).choose(x.like(nan), found)


def log(context: EmitContext, x: Vector) -> Vector:
    """The natural logarithm."""
    parts = split(x)
    high, low = exponentials_LN2[x.kind]
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


def log2(context: EmitContext, x: Vector) -> Vector:
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


def log1p(context: EmitContext, x: Vector) -> Vector:
    """log(1 + x), with what the sum loses given back."""
    whole = x + 1.0
    lost = (x - (whole - 1.0)) / whole
    found = log(context, whole)
    return (whole < inf).choose(found + lost, found)


def asinh(context: EmitContext, x: Vector) -> Vector:
    """The inverse of the hyperbolic sine: log1p(a + a² / (1 + √(a² + 1))) for a = |x|."""
    size = abs(x)
    huge = size > HUGE
    square = huge.choose(size.like(0.0), size) * size
    found = log1p(context, huge.choose(size, size + square / ((square + 1.0).call("sqrt") + 1.0)))
    return with_sign(huge.choose(found + exponentials_LN2["double"][0], found), x)


def acosh(context: EmitContext, x: Vector) -> Vector:
    """The inverse of the hyperbolic cosine: log1p(t + √(2t + t²)) for t = x - 1."""
    less = x - 1.0
    huge = x > HUGE
    root = (huge.choose(less.like(1.0), less) * (less + 2.0)).call("sqrt")
    found = log1p(context, huge.choose(x, less + root))
    found = huge.choose(found + exponentials_LN2["double"][0], found)
    return (x < 1.0).choose(x.like(nan), found)


def atanh(context: EmitContext, x: Vector) -> Vector:
    """The inverse of the hyperbolic tangent: log1p(2a / (1 - a)) / 2 for a = |x|."""
    size = abs(x)
    return with_sign(log1p(context, (size + size) / (1.0 - size)) * 0.5, x)


# --- powers: x to the y, the logarithm with twice the precision so that large exponents lose nothing --------


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


def power(context: EmitContext, x: Vector, y: Vector) -> Vector:
    """Powers `x^y` in double precision, with the special cases of C's pow."""
    high, low = _logarithm(abs(x))
    product = high * y
    rest = high.fma(y, -product) + low * y
    return _finish(x, y, exponentials_exp(context, product, (abs(product) < FAR).choose(rest, 0.0)))


def short_power(context: EmitContext, x: Vector, y: Vector) -> Vector:
    """Powers `x^y` in double precision, as exact as single precision needs."""
    return _finish(x, y, exponentials_exp(context, log(context, abs(x)) * y))


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
    high, low = exponentials_LN2["double"]
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


# --- asin, acos and atan in double precision ----------------------------------------------------------------


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


def asin(context: EmitContext, x: Vector) -> Vector:
    """The inverse of the sine; NaN outside of [-1, 1]."""
    size = abs(x)
    large = size > 0.5
    t, tail = _arc(size, large)
    found = HALF_PI[0] - ((t + tail) * 2.0 - HALF_PI[1])
    return with_sign(large.choose(found, t + tail), x)


def acos(context: EmitContext, x: Vector) -> Vector:
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


def atan(context: EmitContext, x: Vector) -> Vector:
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


# --- exponentials of complex numbers, in double precision ---------------------------------------------------


LN2 = 0.6931471805599453


def exp(context: EmitContext, value: Pair) -> Pair:
    """exp(re) (cos im, sin im); a part overflows or is denormal only where the product is."""
    rest, exponent = reduced(clamp(value[0], -1400.0, 1400.0))
    size = near_exp(rest)
    return tuple(scale(context, size * turn(context, value[1]), exponent) for turn in (cos, sin))


def exp2(context: EmitContext, value: Pair) -> Pair:
    """2 to the power of a complex number: exp of its product with ln 2."""
    return exp(context, tuple(_times(part) for part in value))


def _times(part: Vector) -> Vector:
    return part * LN2


Function: TypeAlias = Callable[..., Vector]
"""Of the place of emission and of vectors of one kind."""

SINGLE: Mapping[str, Function] = MappingProxyType(
    {
        "exp": exponentials.exp,
        "exp2": exponentials.exp2,
        "log": log,
        "log2": log2,
        "tanh": exponentials.tanh,
        "sigmoid": exponentials.sigmoid,
        "erf": erf.erf,
        "sqrt": rounding.machine_instruction("sqrt"),
        "rsqrt": rounding.rsqrt,
        "floor": rounding.machine_instruction("floor"),
        "ceil": rounding.machine_instruction("ceil"),
        "trunc": rounding.machine_instruction("trunc"),
        "round": rounding.round_away,
        "sign": rounding.sign,
    }
)
"""Functions in single and in double precision."""
DOUBLE: Mapping[str, Function] = MappingProxyType(
    {
        "sin": trigonometric.sin,
        "cos": trigonometric.cos,
        "tan": trigonometric.tan,
        "asin": asin,
        "acos": acos,
        "atan": atan,
        "sinh": exponentials.sinh,
        "cosh": exponentials.cosh,
        "asinh": asinh,
        "acosh": acosh,
        "atanh": atanh,
        "pow": power,
    }
)
"""Functions in double precision only; narrower types go through it and are rounded once more."""
SHORT: Mapping[str, Function] = MappingProxyType(
    {
        **DOUBLE,
        "sin": partial(trigonometric.sin, short=True),
        "cos": partial(trigonometric.cos, short=True),
        "tan": partial(trigonometric.tan, short=True),
        "pow": short_power,
    }
)
"""The same for narrower types, where some may be shorter."""
COMPLEX = MappingProxyType({"exp": exp, "exp2": exp2})
NATIVE = MappingProxyType(
    {
        "native_exp2": ("ex2.approx.ftz", ""),
        "native_exp": ("ex2.approx.ftz", "0x3FF7154760000000"),
        "native_log2": ("lg2.approx.ftz", ""),
        "native_tanh": ("tanh.approx", ""),
        "native_erf": ("tanh.approx", ""),
    }
)
"""What a GPU has an instruction for: its name, and by what it is multiplied before.

Powers and logarithms are right to two units in the last place, the others to 2^-11 and, of erf, 2^-10.
"""
NEAR_ERF = "0x3FF21326E0000000", "0x3FB98C0060000000"
"""erf(x) = tanh(x (a + b x²)) to 0.0003: a and b."""


def emit_math(context: EmitContext, instruction: Math) -> ScalarValue:
    """`math.exp %a : f32`; a `native_` function is the one without the word, but where a GPU has an instruction."""
    fast = NATIVE.get(instruction.function) if context.threads else None
    if fast is not None and instruction.type == Scalar("f32"):
        (value,) = (context.scalar(item.name).operand for item in instruction.operands)
        given = context.out.value(f"fmul float {value}, {fast[1]}") if fast[1] else value
        if instruction.function == "native_erf":
            square = context.out.value(f"fmul float {value}, {value}")
            terms = f"float {square}, float {NEAR_ERF[1]}, float {NEAR_ERF[0]}"
            slope = context.out.intrinsic("float", "llvm.fma.f32", terms)
            given = context.out.value(f"fmul float {value}, {slope}")
        # Beside products that are in flight it stands where the text has it: before what waits for them.
        kept = " sideeffect" if context.stream is not None else ""
        called = f'asm{kept} "{fast[0]}.f32 $0, $1;", "=f,f"(float {given})'
        return ScalarValue("f32", (context.out.value(f"call float {called}"),))
    function = instruction.function.removeprefix("native_")
    operands = level(context, *(context.scalar(value.name) for value in instruction.operands))
    return compute(context, function, *operands)


def compute(context: EmitContext, function: str, *operands: ScalarValue) -> ScalarValue:
    """A function of values with as many lanes each."""
    element = operands[0].element
    if element in PARTS:
        part = PARTS[element]
        wide = tuple(change(item, part, "f64") for item in vectors_of(context, operands[0]))
        return lanes_of(element, *(change(item, "f64", part) for item in COMPLEX[function](context, wide)))
    wanted = "f64" if function in DOUBLE or element == "f64" else "f32"
    values = [change(vectors_of(context, item)[0], element, wanted) for item in operands]
    functions = DOUBLE if element == "f64" else SHORT
    own = hardware.FUNCTIONS.get(function) if context.threads and wanted == "f32" else None
    found = (own or functions.get(function) or SINGLE[function])(context, *values)
    return lanes_of(element, change(found, wanted, element))
