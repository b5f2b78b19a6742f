"""Mathematical functions in LLVM text: polynomials of our own on vectors of any length, with stated errors."""

from __future__ import annotations

from lamella.backend.cpu.emit.mathematics.accuracy import ACCURACY, Accuracy
from lamella.backend.cpu.emit.mathematics.dispatch import compute, emit_math

__all__ = ["ACCURACY", "Accuracy", "compute", "emit_math"]
