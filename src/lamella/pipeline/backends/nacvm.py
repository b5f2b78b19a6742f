"""NAC files on the virtual machine that obeys their instructions and their memory schedule."""

from __future__ import annotations

from lamella.base.errors import InputError
from lamella.pipeline.languages import Executable
from lamella.pipeline.nac.model import Model
from lamella.pipeline.nac.running import compile_file, compile_training
from lamella.pipeline.options import Options


def missing(backend: str) -> str | None:
    """The machine is always there."""
    return None


def compile(model: Model, backend: str, options: Options) -> Executable:
    """Make a file executable, or a step of its training graph."""
    if options.dtype == "f64":
        hint = "--backend reference computes in 64 bits"
        raise InputError("the virtual machine computes in the types of the file", hint=hint)
    return compile_training(model, None, options) if options.training else compile_file(model, options)
