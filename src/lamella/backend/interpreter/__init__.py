"""The interpreter: runs kernels by the letter of the tensor language, slow and obvious, the judge of other backends."""

from __future__ import annotations

from lamella.backend.arguments import Arrays
from lamella.backend.interpreter.kernels import Kernels, compile_program
from lamella.backend.interpreter.state import Step, Trace

__all__ = ["Arrays", "Kernels", "Step", "Trace", "compile_program"]
