"""Kernels on NVIDIA GPUs: PTX by the emitter of cpu, loaded and launched through the driver alone."""

from __future__ import annotations

from lamella.backend.cuda.arrays import DeviceArray, to_device
from lamella.backend.cuda.compile import compile_program
from lamella.backend.cuda.driver import missing
from lamella.backend.cuda.kernels import CudaKernels

__all__ = ["CudaKernels", "DeviceArray", "compile_program", "missing", "to_device"]
