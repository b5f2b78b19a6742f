"""sin, cos and tan in double precision, for every argument.

`x = q π/2 + r` with |r| <= π/4; r is held in two parts. Up to 2^28 three parts of π/2 are enough, since the first step
is exact; beyond, a function of one lane multiplies by as many digits of 2/π as the argument asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, nan
from types import MappingProxyType

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.mathematics.exponentials import nearest, polynomial, power_of_two, with_sign
from lamella.backend.cpu.emit.scalars.lanes import Vector
from lamella.backend.cpu.emit.text import IrWriter
from lamella.base.records import dataclass

LARGE = 2.0**28
HALF_PI = (
    float.fromhex("0x1.921fb54442d18p+0"),
    float.fromhex("0x1.1a62633145c07p-54"),
    float.fromhex("-0x1.f1976b7ed8fbcp-110"),
)
TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
DIGITS = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921c"
    "fe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980f"
    "ef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d08"
    "56033046fc7b6babf0cfbc209af4361d",
    16,
)
"""The first 1280 binary digits of 2/π."""
TABLE = 176
"""Bytes of the table of digits: some zeros before the first, for arguments that are not so large."""
SIN = (
    -0.16666666666666664599,
    0.0083333333333309245621,
    -0.00019841269836722417756,
    2.755731608381635861e-6,
    -2.5051127944014187575e-8,
    1.5917848524808261007e-10,
)
"""(sin(r) - r) / r³ as a function of r² for |r| <= π/4."""
COS = (
    0.041666666666666665373,
    -0.0013888888888887382271,
    0.000024801587298743069286,
    -2.7557317260008838164e-7,
    2.0876143827993132496e-9,
    -1.1382456778061305849e-11,
)
"""(cos(r) - 1 + r²/2) / r⁴ as a function of r²."""
SHORT_SIN = (-0.16666666663832764, 0.008333331865959414, -0.00019840082012765537, 2.7249314054698805e-6)
SHORT_COS = (0.041666666664302406, -0.001388888766471362, 2.4800596435621997e-5, -2.7300448619488355e-7)
"""The same for results in single precision."""


@dataclass(frozen=True, slots=True)
class Angle:
    """A quadrant, counted modulo 4, and what is left of the argument, in two parts or in one that is good enough."""

    quadrant: Vector
    high: Vector
    low: Vector | None


def sin(context: EmitContext, x: Vector, short: bool = False) -> Vector:
    """The sine; a `short` one is as exact as single precision needs."""
    return _everywhere(context, x, short, _sine)


def cos(context: EmitContext, x: Vector, short: bool = False) -> Vector:
    """The cosine; a `short` one is as exact as single precision needs."""
    return _everywhere(context, x, short, _cosine)


def tan(context: EmitContext, x: Vector, short: bool = False) -> Vector:
    """The tangent; a `short` one is as exact as single precision needs."""
    return _everywhere(context, x, short, _tangent)


# --- from an angle to the result ----------------------------------------------------------------------------


def _sine(angle: Angle) -> Vector:
    return _turned(angle, angle.quadrant)


def _cosine(angle: Angle) -> Vector:
    return _turned(angle, angle.quadrant + 1)


def _turned(angle: Angle, quadrant: Vector) -> Vector:
    """The sine of a quadrant: odd ones take the cosine, the upper two the other sign."""
    found = (quadrant & 1).compare("ne", 0).choose(_near_cos(angle), _near_sin(angle))
    return (found.bits() ^ ((quadrant & 2) << 62)).cast("bitcast", found.kind)


def _tangent(angle: Angle) -> Vector:
    odd = (angle.quadrant & 1).compare("ne", 0)
    sine, cosine = _near_sin(angle), _near_cos(angle)
    return odd.choose(-cosine, sine) / odd.choose(sine, cosine)


def _near_sin(angle: Angle) -> Vector:
    r, square = angle.high, angle.high * angle.high
    if angle.low is None:
        return (r * square).fma(polynomial(square, SHORT_SIN), r)
    correction = angle.low * (1.0 - square * 0.5)
    return r + (r * square).fma(polynomial(square, SIN), correction)


def _near_cos(angle: Angle) -> Vector:
    square = angle.high * angle.high
    half = square * 0.5
    first = 1.0 - half
    if angle.low is None:
        return (square * square).fma(polynomial(square, SHORT_COS), first)
    lost = (1.0 - first) - half
    return first + (lost + (square * square).fma(polynomial(square, COS), -(angle.high * angle.low)))


# --- from an argument to its angle --------------------------------------------------------------------------


def reduced(x: Vector) -> Angle:
    """The angle of an argument up to `LARGE`."""
    count, whole = nearest(x, TWO_OVER_PI)
    # Both are multiples of the same small power of two and their difference is below 1: no bit is lost.
    first = count.fma(-HALF_PI[0], x)
    product = count * HALF_PI[1]
    lost = count.fma(HALF_PI[1], -product)
    high = first - product
    part = high - first
    low = (first - (high - part)) - (product + part) - count.fma(HALF_PI[2], lost)
    return Angle(whole, high, low)


def reduced_shortly(x: Vector) -> Angle:
    """The angle of an argument up to `LARGE` that is a number of single precision: none is too near to π/2."""
    count, whole = nearest(x, TWO_OVER_PI)
    return Angle(whole, count.fma(-HALF_PI[1], count.fma(-HALF_PI[0], x)), None)


def _everywhere(context: EmitContext, x: Vector, short: bool, compute: Callable[[Angle], Vector]) -> Vector:
    """The result for each lane; the few that are large take the way of one lane at a time."""
    name = NAMES[compute]
    fast = compute(reduced_shortly(x) if short else reduced(x))
    large = (abs(x) > LARGE) & (abs(x) < inf)
    context.out.need(_write_large(context.out, name, compute))
    found = large.choose(_call_lanes(x, large, fast, name), fast)
    return found if compute is _cosine else x.equals(0.0).choose(x, found)


NAMES: Mapping[Callable[[Angle], Vector], str] = MappingProxyType(
    {_sine: "large_sin", _cosine: "large_cos", _tangent: "large_tan"}
)
"""Functions of one lane for large arguments."""


def _call_lanes(x: Vector, large: Vector, fast: Vector, name: str) -> Vector:
    """Call a function for each lane where one of them is large."""
    out = x.out
    begin, slow, done = out.block, out.label("large"), out.label("joined")
    wanted = large.operand
    if x.count > 1:
        wanted = out.intrinsic("i1", f"llvm.vector.reduce.or.v{x.count}i1", large.typed)
    out.branch(wanted, slow, done)
    out.begin(slow)
    found = _loop_lanes(x, begin, done, name)
    joined = out.value(f"phi {x.type} [ {fast.operand}, %{begin} ], [ {found}, %{slow} ]")
    return replace(x, operand=joined)


def _loop_lanes(x: Vector, begin: str, done: str, name: str) -> str:
    out, slow = x.out, x.out.block
    if x.count == 1:
        found = out.value(f"call double @{name}({x.typed})")
        out.jump(done)
        out.begin(done)
        return found
    lane, lanes, hole, second = out.name(), out.name(), out.hole(), out.hole()
    item = out.value(f"extractelement {x.typed}, i64 {lane}")
    result = out.value(f"call double @{name}(double {item})")
    found = out.value(f"insertelement {x.type} {lanes}, double {result}, i64 {lane}")
    following = out.value(f"add i64 {lane}, 1")
    out.fill(hole, f"{lane} = phi i64 [ 0, %{begin} ], [ {following}, %{slow} ]")
    out.fill(second, f"{lanes} = phi {x.type} [ poison, %{begin} ], [ {found}, %{slow} ]")
    out.branch(out.value(f"icmp eq i64 {following}, {x.count}"), done, slow)
    out.begin(done)
    return found


def _write_large(outer: IrWriter, name: str, compute: Callable[[Angle], Vector]) -> str:
    """A function of one double for arguments above `LARGE`."""
    out = IrWriter()
    x = Vector(out, "double", 1, "%x")
    found = compute(_reduced_large(x))
    for declaration in out.declarations:
        outer.need(declaration)
    head = f"define internal double @{name}(double %x) noinline {{\nentry:"
    return f"{head}\n{out.body()}\n  ret double {found.operand}\n}}"


def _reduced_large(x: Vector) -> Angle:
    """The angle of a large argument: 192 digits of 2/π, from the first that matters, times its 53 bits."""
    size = (abs(x) > LARGE).choose(abs(x), LARGE).bits()
    fraction = (size & ((1 << 52) - 1)) | (1 << 52)
    turns = _window(size.apply("lshr", 52)) * fraction.cast("zext", "i192")
    rest = turns << 2
    negative = rest < 0
    quadrant = turns.apply("lshr", 190).cast("trunc", "i64") + negative.cast("zext", "i64")
    high, low = _fraction(negative.choose(0 - rest, rest))
    sign = (x.bits() ^ (negative.cast("zext", "i64") << 63)).cast("bitcast", "double")
    quadrant = (x < 0.0).choose(0 - quadrant, quadrant)
    finite = abs(x) < inf
    return Angle(quadrant, finite.choose(with_sign(high, sign), nan), low * with_sign(x.like(1.0), sign))


def _window(field: Vector) -> Vector:
    """192 digits of 2/π for an exponent field; those before them, of weight 4 and more, stand for whole turns."""
    out = field.out
    data = "".join(f"\\{byte:02X}" for byte in DIGITS.to_bytes(TABLE, "little"))
    out.need(f'@two_over_pi = internal constant [{TABLE} x i8] c"{data}"')
    # The lowest digit is bit 0 of the table; the highest of the window has weight 2 once it is scaled.
    place = (1280 + 1075 + 1 - 191) - field
    address = out.value(f"getelementptr i8, ptr @two_over_pi, i64 {place.apply('lshr', 3).operand}")
    wide = Vector(out, "i256", 1, out.value(f"load i256, ptr {address}, align 1"))
    return wide.apply("lshr", (place & 7).cast("zext", "i256")).cast("trunc", "i192")


def _fraction(rest: Vector) -> tuple[Vector, Vector]:
    """A fraction of 192 binary digits, times π/2, in two parts."""
    zeros = rest.call("ctlz", flags="i1 false")
    aligned = rest.apply("shl", zeros)
    first = aligned.apply("lshr", 139).cast("trunc", "i64").cast("uitofp", "double")
    second = aligned.apply("lshr", 75).cast("trunc", "i64").cast("uitofp", "double")
    unit = power_of_two(-53 - zeros.cast("trunc", "i64"), "double")
    high, low = first * unit, second * unit * 2.0**-64
    product = high * HALF_PI[0]
    return product, high.fma(HALF_PI[0], -product) + high.fma(HALF_PI[1], low * HALF_PI[0])
