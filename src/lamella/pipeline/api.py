"""The public functions that need a backend: load, compile, lower, save."""

from __future__ import annotations

from pathlib import Path

from lamella.backend.npu import Executable, compile_plan
from lamella.backend.npu.stream import compile_stream
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import read_bytes
from lamella.base.writer import write_bytes, write_text
from lamella.lang.nem import write
from lamella.lang.nem.resolved import Plan
from lamella.pipeline.languages import is_stream, language_of
from lamella.pipeline.program import Program, read_program
from lamella.plan.bind import bind
from lamella.plan.stcb import Stream, read_stream, stream_to_bytes, stream_to_text

Model = Program | Stream


def load(
    path: str | Path,
    *,
    language: str | None = None,
    device: str | None = None,
    limits: Limits = DEFAULT,
) -> Model:
    """Read a NEM program or a bound stream; LamellaError holds all findings when something is wrong."""
    path = Path(path)
    if language is None and is_stream(path):
        return read_stream(read_bytes(path, limits), str(path), limits)
    language_of(path, language)
    program = read_program(path, device, limits)
    if errors(program.findings):
        raise LamellaError(errors(program.findings))
    return program


def compile(  # the API's word: lamella.compile
    model: Model | str | Path,
    backend: str | None = None,
    *,
    device: str | None = None,
    seed: int = 0,
    order: int | None = None,
    limits: Limits = DEFAULT,
) -> Executable:
    """Make a model executable; inputs that a call leaves out are random, from the seed."""
    if backend not in (None, "npu"):
        raise InputError(f"there is no backend '{backend}' for this form", hint="plans and streams run on: npu")
    if isinstance(model, str | Path):
        model = load(model, device=device, limits=limits)
    if isinstance(model, Stream):
        return compile_stream(model, seed=seed, order=order, limits=limits)
    return compile_plan(plan_of(model), seed=seed, order=order, limits=limits)


def plan_of(program: Program) -> Plan:
    """The plan of a program; a configuration has none."""
    if program.plan is None:
        raise InputError("the file is a device configuration, not a program", path=program.path)
    return program.plan


def lower(
    model: Model | str | Path,
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
    if isinstance(model, Program) and path.suffix == ".nem":
        write_text(path, write(model.document))
    elif isinstance(model, Stream) and path.suffix == ".stcb":
        write_bytes(path, stream_to_bytes(model))
    elif isinstance(model, Stream) and path.suffix == ".json":
        write_text(path, stream_to_text(model))
    else:
        raise InputError(f"'{path.name}' is not an ending for this form", hint=".nem for programs, .stcb or .json for streams")
