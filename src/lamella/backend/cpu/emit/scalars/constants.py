"""Constants, and the values that change nothing in a reduction."""

from __future__ import annotations

import math
import struct

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.scalars.lanes import element_of
from lamella.backend.cpu.emit.scalars.vectors import literal, round_single
from lamella.backend.cpu.emit.values import LLVM, ScalarValue
from lamella.lang.tensor.check.kinds import PARTS
from lamella.lang.tensor.nodes import Constant, Number


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
