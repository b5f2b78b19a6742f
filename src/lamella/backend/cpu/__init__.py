"""The CPU backend: kernels of the tensor language as machine code on NumPy arrays.

What compiles is loaded when somebody asks for it: graphs whose compiled form was kept need none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamella.base.optional import load_late

if TYPE_CHECKING:
    from lamella.backend.cpu.compile import compile_program
    from lamella.backend.cpu.run.kernels import CompiledKernels

__all__ = ["CompiledKernels", "compile_program"]

_MODULES = {"CompiledKernels": "run.kernels", "compile_program": "compile"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    found: object = getattr(load_late(f"{__name__}.{_MODULES[name]}"), name)
    return found
