"""Kernels on NVIDIA GPUs: PTX by the emitter of cpu, loaded and launched through the driver API alone.

What compiles is loaded when somebody asks for it: graphs whose compiled form was kept need none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamella.backend.cuda.arrays import DeviceArray, to_device
from lamella.backend.cuda.driver import missing
from lamella.base.optional import load_late

if TYPE_CHECKING:
    from lamella.backend.cuda.compile import compile_program
    from lamella.backend.cuda.kernels import CudaKernels

__all__ = ["CudaKernels", "DeviceArray", "compile_program", "missing", "to_device"]

_MODULES = {"CudaKernels": "kernels", "compile_program": "compile"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    found: object = getattr(load_late(f"{__name__}.{_MODULES[name]}"), name)
    return found
