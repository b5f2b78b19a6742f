"""Scalar values as vectors and back, and cooperative matrices column by column."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from types import MappingProxyType
from typing import TypeAlias

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.text import IrWriter
from lamella.backend.cpu.emit.values import LLVM, MatrixValue, ScalarValue
from lamella.base.records import dataclass, replace
from lamella.lang.tensor.check.kinds import PARTS
from lamella.lang.tensor.nodes import Constant, Coopmatrix, Number, Scalar, Type
from lamella.lang.tensor.nodes.types import STORED_FLOATS

# --- vectors with the operators of Python: arithmetic on them writes the instructions that compute ----------


WORDS = MappingProxyType({"add": "fadd", "sub": "fsub", "mul": "fmul", "sdiv": "fdiv", "srem": "frem"})
"""What floating-point kinds call the operations of integers."""
SUFFIX = MappingProxyType({"half": "f16", "float": "f32", "double": "f64"})
BITS = MappingProxyType(
    {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64}
)


def shaped(kind: str, count: int) -> str:
    """The LLVM type of so many lanes of a kind."""
    return kind if count == 1 else f"<{count} x {kind}>"


def round_single(value: float) -> float:
    """The nearest number of single precision; what is too large is infinite."""
    return _rounded("<f", value)


def spell(kind: str, value: float) -> str:
    """A constant of one lane as LLVM reads it; floating-point numbers are rounded to their kind."""
    if kind not in SUFFIX:
        return str(int(value))
    if kind == "half":
        bits = struct.unpack("<H", struct.pack("<e", _rounded("<e", value)))[0]
        return f"0xH{bits:04X}"
    exact = value if kind == "double" else round_single(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"


def _rounded(code: str, value: float) -> float:
    try:
        found: float = struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


def literal(kind: str, value: float, count: int) -> str:
    """A constant with the same value in every lane."""
    shown = spell(kind, value)
    return shown if count == 1 else f"splat ({kind} {shown})"


@dataclass(frozen=True, slots=True)
class Vector:
    """An operand of `count` lanes of an LLVM kind, with the writer that its uses go to."""

    out: IrWriter
    kind: str
    count: int
    operand: str

    @property
    def type(self) -> str:
        """The LLVM type."""
        return shaped(self.kind, self.count)

    @property
    def typed(self) -> str:
        """The operand behind its type."""
        return f"{self.type} {self.operand}"

    @property
    def is_floating(self) -> bool:
        """Whether the lanes hold floating-point numbers."""
        return self.kind in SUFFIX

    @property
    def whole_kind(self) -> str:
        """The integer kind of the same width."""
        return f"i{BITS[self.kind]}"

    def like(self, value: Operand) -> Vector:
        """A constant beside this vector; a vector stays as it is."""
        if isinstance(value, Vector):
            return value
        return replace(self, operand=literal(self.kind, value, self.count))

    def apply(self, word: str, *others: Operand) -> Vector:
        """Write an instruction on operands of this type."""
        word = WORDS.get(word, word) if self.is_floating else word
        shown = ", ".join([self.operand, *(self.like(other).operand for other in others)])
        return replace(self, operand=self.out.value(f"{word} {self.type} {shown}"))

    def call(self, name: str, *others: Operand, flags: str = "") -> Vector:
        """Call an intrinsic whose operands and result are of this type; `flags` are operands of another one."""
        ending = SUFFIX.get(self.kind, self.kind)
        ending = ending if self.count == 1 else f"v{self.count}{ending}"
        shown = ", ".join([self.typed, *(self.like(other).typed for other in others), *filter(None, [flags])])
        return replace(self, operand=self.out.intrinsic(self.type, f"llvm.{name}.{ending}", shown))

    def compare(self, word: str, other: Operand) -> Vector:
        """An i1 in each lane; `word` is a predicate of icmp or fcmp."""
        instruction = "fcmp" if self.is_floating else "icmp"
        text = f"{instruction} {word} {self.typed}, {self.like(other).operand}"
        return replace(self, kind="i1", operand=self.out.value(text))

    def choose(self, then: Vector, otherwise: Operand) -> Vector:
        """`then` where this i1 is set, lane by lane or in all lanes at once, else `otherwise`."""
        other = then.like(otherwise)
        text = f"select {self.typed}, {then.typed}, {other.typed}"
        return replace(then, operand=self.out.value(text))

    def cast(self, word: str, kind: str) -> Vector:
        """Write a conversion to another kind."""
        text = f"{word} {self.typed} to {shaped(kind, self.count)}"
        return replace(self, kind=kind, operand=self.out.value(text))

    def bits(self) -> Vector:
        """The bits of floating-point numbers."""
        return self.cast("bitcast", self.whole_kind)

    def fma(self, factor: Operand, added: Operand) -> Vector:
        """`self * factor + added`, rounded once."""
        return self.call("fma", factor, added)

    def __add__(self, other: Operand) -> Vector:
        return self.apply("add", other)

    def __sub__(self, other: Operand) -> Vector:
        return self.apply("sub", other)

    def __rsub__(self, other: float) -> Vector:
        return self.like(other).apply("sub", self)

    def __mul__(self, other: Operand) -> Vector:
        return self.apply("mul", other)

    def __truediv__(self, other: Operand) -> Vector:
        return self.apply("sdiv", other)

    def __rtruediv__(self, other: float) -> Vector:
        return self.like(other).apply("sdiv", self)

    def __neg__(self) -> Vector:
        return self.apply("fneg") if self.is_floating else 0 - self

    def __abs__(self) -> Vector:
        return self.call("fabs") if self.is_floating else self.call("abs", flags="i1 false")

    def __and__(self, other: Operand) -> Vector:
        return self.apply("and", other)

    def __or__(self, other: Operand) -> Vector:
        return self.apply("or", other)

    def __xor__(self, other: Operand) -> Vector:
        return self.apply("xor", other)

    def __lshift__(self, other: Operand) -> Vector:
        return self.apply("shl", other)

    def __rshift__(self, other: Operand) -> Vector:
        return self.apply("ashr", other)

    def __lt__(self, other: Operand) -> Vector:
        return self.compare("olt" if self.is_floating else "slt", other)

    def __le__(self, other: Operand) -> Vector:
        return self.compare("ole" if self.is_floating else "sle", other)

    def __gt__(self, other: Operand) -> Vector:
        return self.compare("ogt" if self.is_floating else "sgt", other)

    def __ge__(self, other: Operand) -> Vector:
        return self.compare("oge" if self.is_floating else "sge", other)

    def equals(self, other: Operand) -> Vector:
        """An i1: whether the lanes are the same number."""
        return self.compare("oeq" if self.is_floating else "eq", other)

    def is_nan(self) -> Vector:
        """An i1: whether the lanes hold no number."""
        return self.compare("uno", self)


Operand: TypeAlias = Vector | float


def element_of(type_: Type) -> str:
    """The name of a scalar type, or of the components of a cooperative matrix."""
    if isinstance(type_, Scalar):
        return type_.name
    if isinstance(type_, Coopmatrix):
        return type_.element
    raise TypeError(f"a {type(type_).__name__.lower()} is no number")


def vectors_of(context: EmitContext, value: ScalarValue) -> tuple[Vector, ...]:
    """The parts of a value."""
    return tuple(Vector(context.out, LLVM[value.element], value.count, part) for part in value.parts)


def vector_of(context: EmitContext, value: ScalarValue) -> Vector:
    """The only part of a value."""
    return vectors_of(context, value)[0]


def lanes_of(element: str, *parts: Vector) -> ScalarValue:
    """A value of a scalar type from its parts."""
    return ScalarValue(element, tuple(part.operand for part in parts), parts[0].count)


def level(context: EmitContext, *values: ScalarValue) -> list[ScalarValue]:
    """Values with as many lanes each: one where all are uniform, else those of the widest."""
    count = max(value.count for value in values)
    return [_widen(context, value, count) for value in values]


def _widen(context: EmitContext, value: ScalarValue, count: int) -> ScalarValue:
    if value.count == count:
        return value if value.parts else integers.spread(context, value)
    parts = tuple(_splat(context, part, value.element, count) for part in value.parts)
    return replace(value, parts=parts, count=count)


def _splat(context: EmitContext, operand: str, element: str, count: int) -> str:
    if operand.startswith("%"):
        return integers.splat(context, operand, element, count)
    return f"splat ({LLVM[element]} {operand})"


def map_columns(
    type_: Type,
    operate: Callable[..., ScalarValue],
    context: EmitContext,
    first: MatrixValue,
    *others: MatrixValue,
) -> MatrixValue:
    """A cooperative matrix from others of its shape, column by column: `operate(here, column, …)`."""
    if not isinstance(type_, Coopmatrix):
        raise TypeError("the result is no cooperative matrix")
    matrices = (first, *others)
    found = [
        operate(context, *(_column(matrix, number) for matrix in matrices))
        for number in range(len(first.parts[0]))
    ]
    parts = tuple(zip(*(column.parts for column in found), strict=True))
    return MatrixValue(type_, parts, first.width)


def _column(matrix: MatrixValue, number: int) -> ScalarValue:
    return ScalarValue(matrix.type.element, tuple(part[number] for part in matrix.parts), matrix.width)


# --- constants, and the values that change nothing in a reduction -------------------------------------------


def emit_constant(context: EmitContext, instruction: Constant) -> ScalarValue:
    """`constant 1.0 : f32` of a scalar type; it writes nothing."""
    return make_constant(instruction.value, element_of(instruction.type))


def make_constant(value: Number, element: str) -> ScalarValue:
    """A value that is known; integers wrap, floating-point numbers are rounded once, bf16 through f32."""
    if isinstance(value, tuple):
        return ScalarValue(element, tuple(spell_constant(part, PARTS[element]) for part in value))
    if isinstance(value, bool):
        return ScalarValue(element, (str(value).lower(),), constant=value)
    if isinstance(value, int) and element in integers.WIDTHS:
        return integers.number(wrap(value, element), element)
    if element in PARTS:
        return make_constant((float(value), 0.0), element)
    return ScalarValue(element, (spell_constant(value, element),), constant=float(value))


def spell_constant(value: float, element: str, count: int = 1) -> str:
    """A number that is not complex as an LLVM constant, the same in all lanes."""
    if element == "bf16":
        return literal("i16", bf16_bits(value), count)
    return literal(LLVM[element], value, count)


def wrap(value: int, element: str) -> int:
    """The low bits of an integer, read as a signed number of its type."""
    half = 1 << (integers.WIDTHS[element] - 1)
    return (value + half) % (2 * half) - half


def bf16_bits(value: float) -> int:
    """A number as bf16, through f32, to nearest, ties to even: its bits as a signed integer."""
    bits: int = struct.unpack("<I", struct.pack("<f", round_single(value)))[0]
    high = bits >> 16
    found = high | 0x40 if math.isnan(value) else (bits + 0x7FFF + (high & 1)) >> 16
    return found - (found >> 15 << 16)


def identity(function: str, element: str) -> ScalarValue:
    """The value that `add`, `mul`, `max` or `min` does not change another by."""
    if function in ("add", "mul"):
        return make_constant(1 if function == "mul" else 0, element)
    sign = -1 if function == "max" else 1
    if element in integers.WIDTHS:
        half = 1 << (integers.WIDTHS[element] - 1)
        return integers.number(-half if sign < 0 else half - 1, element)
    return make_constant(sign * math.inf, element)


# --- conversions between floating-point types, lane by lane; bf16 is held as its bits -----------------------


KINDS = ("half", "float", "double")
LOST = 29
"""Bits of a double's fraction that single precision has no place for."""


def to_float(context: EmitContext, operand: str, count: int = 1) -> str:
    """bf16 bits as numbers of single precision; exact."""
    return widen(Vector(context.out, "i16", count, operand)).operand


def from_float(context: EmitContext, operand: str, count: int = 1) -> str:
    """Numbers of single precision as bf16 bits, to nearest, ties to even; NaN stays NaN."""
    return narrow(Vector(context.out, "float", count, operand)).operand


def widen(bits: Vector) -> Vector:
    """bf16 bits as numbers of single precision; exact."""
    return (bits.cast("zext", "i32") << 16).cast("bitcast", "float")


def narrow(value: Vector) -> Vector:
    """Numbers of single precision as bf16 bits, to nearest, ties to even; NaN stays NaN."""
    bits = value.bits()
    high = bits.apply("lshr", 16)
    rounded = (bits + ((high & 1) + 0x7FFF)).apply("lshr", 16)
    # A NaN whose payload is all in the low bits would turn into infinity.
    return value.is_nan().choose(high | 0x40, rounded).cast("trunc", "i16")


@dataclass(frozen=True, slots=True)
class _ByteFloat:
    """How a floating-point number lies in 8 bits, behind its sign."""

    fraction: int
    """Bits of the fraction."""
    bias: int
    largest: int
    """The code of the largest number, which what is too large becomes."""
    nan: int


BYTE_FLOATS = {"f8e4m3": _ByteFloat(3, 7, 0x7E, 0x7F), "f8e5m2": _ByteFloat(2, 15, 0x7B, 0x7F)}


def _widen_byte(bits: Vector, kind: _ByteFloat) -> Vector:
    """Numbers of 8 bits in single precision, exact: their exponents are those of halves, but for the bias."""
    codes = bits.cast("zext", "i32")
    sign, rest = (codes & 0x80) << 8, (codes & 0x7F) << (10 - kind.fraction)
    half = (sign | rest).cast("trunc", "i16").cast("bitcast", "half")
    found = half.cast("fpext", "float")
    if kind.bias == 15:
        return found
    return (codes & 0x7F).equals(kind.nan).choose(found.like(math.nan), found * 2.0 ** (15 - kind.bias))


def _narrow_byte(value: Vector, kind: _ByteFloat) -> Vector:
    """Numbers of single precision in 8 bits, to nearest, ties to even; what is too large is the largest."""
    bits, cut = value.bits(), 23 - kind.fraction
    size = bits & 0x7FFFFFFF
    odd = size.apply("lshr", cut) & 1
    normal = (size + (odd + ((1 << cut - 1) - 1))).apply("lshr", cut) - ((127 - kind.bias) << kind.fraction)
    # A sum with this number is rounded where the last bit of a subnormal one is.
    magic = 2.0 ** (24 - kind.fraction - kind.bias)
    whole = abs(value) + magic
    small = whole.bits() - whole.like(magic).bits()
    code = (abs(value) < 2.0 ** (1 - kind.bias)).choose(small, normal)
    code = (code < kind.largest).choose(code, code.like(kind.largest))
    code = value.is_nan().choose(code.like(kind.nan), code)
    return (code | (bits.apply("lshr", 24) & 0x80)).cast("trunc", "i8")


def change(value: Vector, source: str, target: str) -> Vector:
    """Numbers of one floating-point type in another, to nearest, ties to even; narrow ones go through f32."""
    if source == target:
        return value
    if source == "bf16":
        return change(widen(value), "f32", target)
    if target == "bf16":
        return narrow(change(value, source, "f32"))
    if source in STORED_FLOATS:
        return change(_widen_byte(value, BYTE_FLOATS[source]), "f32", target)
    if target in STORED_FLOATS:
        return _narrow_byte(change(value, source, "f32"), BYTE_FLOATS[target])
    kind = LLVM[target]
    if KINDS.index(kind) > KINDS.index(value.kind):
        return value.cast("fpext", kind)
    if (source, target) == ("f64", "f16"):
        return _to_odd(value).cast("fptrunc", "float").cast("fptrunc", kind)
    return value.cast("fptrunc", kind)


def _to_odd(value: Vector) -> Vector:
    """Doubles that single precision holds, with a last bit that says whether something was cut off.

    Rounding them twice is rounding once; machines without half precision have no conversion of doubles.
    """
    bits = value.bits()
    cut = (bits & ((1 << LOST) - 1)).compare("ne", 0)
    kept = bits & -(1 << LOST)
    return cut.choose(kept | (1 << LOST), kept).cast("bitcast", "double")
