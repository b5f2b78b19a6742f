"""Vectors with the operators of Python: arithmetic on them writes the instructions that compute it."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from lamella.backend.cpu.emit.text import IrWriter

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
