"""Conversions between floating-point types, lane by lane; bf16 is held as its bits."""

from __future__ import annotations

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.scalars.vectors import Vector
from lamella.backend.cpu.emit.values import LLVM

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


def change(value: Vector, source: str, target: str) -> Vector:
    """Numbers of one floating-point type in another, to nearest, ties to even; bf16 goes through f32."""
    if source == target:
        return value
    if source == "bf16":
        return change(widen(value), "f32", target)
    if target == "bf16":
        return narrow(change(value, source, "f32"))
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
