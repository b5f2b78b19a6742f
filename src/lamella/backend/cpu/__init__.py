"""The CPU backend: kernels of the tensor language as machine code on NumPy arrays."""

from __future__ import annotations

from lamella.backend.cpu.compile import compile_program
from lamella.backend.cpu.run.kernels import CompiledKernels

__all__ = ["CompiledKernels", "compile_program"]
