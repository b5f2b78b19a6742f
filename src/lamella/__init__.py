"""Lamella, a neural-network compiler toolchain whose layers are five published languages.

The public API is loaded when it is asked for, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lamella.base.diagnostic import Diagnostic, LamellaError
    from lamella.base.limits import Limits
    from lamella.pipeline.api import compile, load, lower, save
    from lamella.pipeline.bench.api import bench
    from lamella.pipeline.check import check
    from lamella.pipeline.diff.api import diff
    from lamella.pipeline.generation import generate
    from lamella.pipeline.module.watch import watch
    from lamella.pipeline.quantize.api import quantize
    from lamella.pipeline.torch.export import from_torch
    from lamella.studio import view
    from lamella.train import train

__version__ = "0.1.0"
__all__ = [
    "Diagnostic",
    "LamellaError",
    "Limits",
    "bench",
    "check",
    "compile",
    "diff",
    "from_torch",
    "generate",
    "load",
    "lower",
    "quantize",
    "save",
    "train",
    "view",
    "watch",
]

_HOMES = {
    "Diagnostic": "lamella.base.diagnostic",
    "LamellaError": "lamella.base.diagnostic",
    "Limits": "lamella.base.limits",
    "bench": "lamella.pipeline.bench.api",
    "check": "lamella.pipeline.check",
    "diff": "lamella.pipeline.diff.api",
    "quantize": "lamella.pipeline.quantize.api",
    "from_torch": "lamella.pipeline.torch.export",
    "generate": "lamella.pipeline.generation",
    "train": "lamella.train",
    "view": "lamella.studio",
    "watch": "lamella.pipeline.module.watch",
}


def __getattr__(name: str) -> object:
    """Load a part of the public API the first time it is used."""
    if name not in __all__:
        meant = import_module("lamella.base.suggest").did_you_mean(name, __all__)
        raise AttributeError(f"module 'lamella' has no attribute '{name}'; {meant}".rstrip("; "))
    value: object = getattr(import_module(_HOMES.get(name, "lamella.pipeline.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
