"""Kernels and graphs on an NVIDIA GPU: as on the processor, with the machine of the device."""

from __future__ import annotations

from lamella.backend.cuda import driver
from lamella.pipeline.backends import kernels
from lamella.pipeline.languages import Executable, Model
from lamella.pipeline.options import Options


def missing(backend: str) -> str | None:
    """Why no kernel can run on a GPU here; None where one can."""
    return driver.missing()


def compile(model: Model, backend: str, options: Options) -> Executable:
    """Make kernels or a graph callable."""
    return kernels.compile(model, backend, options)  # type: ignore[arg-type]
