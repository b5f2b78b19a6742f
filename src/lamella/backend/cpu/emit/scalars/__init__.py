"""Scalars in LLVM text: constants, arithmetic, comparisons and casts, for lanes and for cooperative matrices."""

from __future__ import annotations

from lamella.backend.cpu.emit.scalars.arith import combine, compute_unary, emit_arith, select
from lamella.backend.cpu.emit.scalars.compare import compare, emit_compare
from lamella.backend.cpu.emit.scalars.constants import emit_constant, identity, make_constant, spell_constant
from lamella.backend.cpu.emit.scalars.convert import convert, emit_cast
from lamella.backend.cpu.emit.scalars.floats import from_float, to_float

__all__ = [
    "combine",
    "compare",
    "compute_unary",
    "convert",
    "emit_arith",
    "emit_cast",
    "emit_compare",
    "emit_constant",
    "from_float",
    "identity",
    "make_constant",
    "select",
    "spell_constant",
    "to_float",
]
