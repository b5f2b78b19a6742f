"""NEM programs and streams for the API: load, lower, save."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.writer import write_text
from lamella.lang.nem import write
from lamella.pipeline.languages import is_stream
from lamella.pipeline.nem.program import KERNELS, Program, plan_of, read_checked
from lamella.pipeline.nem.streams import load_stream, save_stream
from lamella.pipeline.options import Options
from lamella.plan.bind import bind
from lamella.plan.stcb import Stream


def load(path: Path, options: Options) -> Program | Stream:
    """Read a NEM program or a bound stream; LamellaError holds all findings when something is wrong."""
    if options.language is None and is_stream(path):
        return load_stream(path, options.limits)
    return read_checked(path, options.device, options.limits, options.root)


def lower(model: Program | Stream, to: str, options: Options) -> Program | Stream:
    """A plan becomes a bound stream."""
    if to == "nem" and isinstance(model, Program):
        return model
    if to != "stcb":
        raise InputError(f"there is no lowering to '{to}' from here", hint="a NEM program lowers to: stcb")
    if isinstance(model, Stream):
        return model
    stream, findings = bind(plan_of(model), allow_future=options.allow_future, limits=options.limits)
    if stream is None:
        raise LamellaError(errors(findings))
    return stream


def save(model: Program | Stream, path: Path) -> None:
    """Write a model by the ending of the path: .nem (canonical text), .stcb (binary) or .json (stream)."""
    if isinstance(model, Stream):
        save_stream(model, path)
    elif path.suffix == ".nem":
        write_text(path, write(model.document))
        kernels = model.plan.kernels.values() if model.plan else ()
        if kernels:
            write_text(path.with_suffix(KERNELS), "\n".join(kernel.text for kernel in kernels))
    else:
        raise InputError(f"'{path.name}' is no ending for a program", hint="programs are written as .nem")
