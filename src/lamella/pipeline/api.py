"""The public functions that need a backend: load, compile, lower, save."""

from __future__ import annotations

from pathlib import Path

from lamella.backend.npu import Executable, compile_plan
from lamella.backend.npu.stream import compile_stream
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import read_bytes
from lamella.base.writer import write_text
from lamella.lang.nem import write
from lamella.pipeline.languages import is_stream, language_of
from lamella.pipeline.program import Program, plan_of, read_checked
from lamella.pipeline.streams import save_stream
from lamella.plan.bind import bind
from lamella.plan.stcb import Stream, read_stream

Model = Program | Stream


def load(
    path: str | Path,
    /,
    *,
    language: str | None = None,
    device: str | None = None,
    limits: Limits = DEFAULT,
    root: Path | None = None,
) -> Model:
    """Read a NEM program or a bound stream; LamellaError holds all findings when something is wrong."""
    path = Path(path)
    if language is None and is_stream(path):
        return read_stream(read_bytes(path, limits), limits)
    language_of(path, language)
    return read_checked(path, device, limits, root)


def compile(  # the API's word: lamella.compile
    model: Model | str | Path,
    /,
    backend: str | None = None,
    *,
    device: str | None = None,
    seed: int = 0,
    order: str = "program",
    limits: Limits = DEFAULT,
) -> Executable:
    """Make a model executable; inputs that a call leaves out are random, from the seed."""
    if backend not in (None, "npu"):
        raise InputError(
            f"there is no backend '{backend}' for this form", hint="plans and streams run on: npu"
        )
    if isinstance(model, str | Path):
        model = load(model, device=device, limits=limits)
    if isinstance(model, Stream):
        return compile_stream(model, seed=seed, order=order, limits=limits)
    return compile_plan(plan_of(model), seed=seed, order=order, limits=limits)


def lower(
    model: Model | str | Path,
    /,
    to: str = "stcb",
    *,
    device: str | None = None,
    allow_future: bool = False,
    limits: Limits = DEFAULT,
) -> Model:
    """Lower a model to a form below it; a plan becomes a bound stream."""
    if isinstance(model, str | Path):
        model = load(model, device=device, limits=limits)
    if to == "nem" and isinstance(model, Program):
        return model
    if to != "stcb":
        raise InputError(f"there is no road to '{to}' from here", hint="a NEM program lowers to: stcb")
    if isinstance(model, Stream):
        return model
    stream, findings = bind(plan_of(model), allow_future=allow_future, limits=limits)
    if stream is None:
        raise LamellaError(errors(findings))
    return stream


def save(model: Model, path: str | Path) -> None:
    """Write a model by the ending of the path: .nem (canonical text), .stcb (binary) or .json (stream)."""
    path = Path(path)
    if isinstance(model, Stream):
        save_stream(model, path)
    elif path.suffix == ".nem":
        write_text(path, write(model.document))
    else:
        raise InputError(f"'{path.name}' is no ending for a program", hint="programs are written as .nem")
