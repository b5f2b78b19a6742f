"""`lamella run`: execute a program."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TypedDict, Unpack

import click

from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.cli.options import (
    Guarded,
    device_option,
    file_argument,
    json_option,
    language_option,
    limit_option,
    print_findings,
    print_json,
)
from lamella.pipeline.api import compile, load
from lamella.pipeline.arrays import Array, read_array, write_array


class Options(TypedDict):
    """What the command line gives to `run`."""

    file: Path
    inputs: tuple[str, ...]
    output: Path | None
    backend: str | None
    seed: int
    order: str
    profile: bool
    as_json: bool
    device: str | None
    language: str | None
    limits: Limits


@click.command(cls=Guarded)
@file_argument
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input array; repeatable.")
@click.option("--output", type=click.Path(path_type=Path), help="Write one .npy per output into this folder.")
@click.option("--backend", default=None, help="How to run it; for plans and streams: npu.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random inputs.")
@click.option(
    "--order", default="program", metavar="program|random[:SEED]", help="Run in another legal order."
)
@click.option("--profile", is_flag=True, help="Say how long it took.")
@json_option
@device_option
@language_option
@limit_option
def run(**options: Unpack[Options]) -> None:
    """Execute FILE (.nem or .stcb) bit-exactly; without --input the inputs are random, from the seed."""
    limits = options["limits"]
    model = load(options["file"], language=options["language"], device=options["device"], limits=limits)
    executable = compile(
        model, options["backend"], seed=options["seed"], order=options["order"], limits=limits
    )
    arrays = dict(_read_input(item, limits) for item in options["inputs"])
    start = time.perf_counter()
    outputs = executable(**arrays)
    elapsed = time.perf_counter() - start
    print_findings(executable.findings)
    if options["output"] is not None:
        for name, array in outputs.items():
            write_array(options["output"] / f"{name}.npy", array)
    _print_outputs(outputs, options["as_json"])
    if options["profile"]:
        click.echo(f"{elapsed * 1000:.1f} ms", err=True)


def _read_input(text: str, limits: Limits) -> tuple[str, Array]:
    name, equals, file = text.partition("=")
    if not equals or not file:
        raise InputError(f"'{text}' is not NAME=FILE.npy")
    return name, read_array(Path(file), limits)


def _print_outputs(outputs: dict[str, Array], as_json: bool) -> None:
    facts = {name: _describe(array) for name, array in outputs.items()}
    if as_json:
        print_json({"outputs": facts})
        return
    for name, fact in facts.items():
        click.echo(f"{name}: {fact['dtype']}{fact['shape']}  sha256 {fact['sha256'][:16]}")


def _describe(array: Array) -> dict[str, str]:
    """Type, shape and a digest of the bytes, by which two runs are compared."""
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    return {"dtype": str(array.dtype), "shape": str(list(array.shape)), "sha256": digest}
