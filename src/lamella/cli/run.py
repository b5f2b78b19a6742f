"""`lamella run`: execute a program."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import click

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import Limits
from lamella.cli.options import (
    Common,
    Guarded,
    ModelOptions,
    common_options,
    model_options,
    print_findings,
    print_json,
)
from lamella.cli.progress import watch
from lamella.pipeline.api import compile
from lamella.pipeline.arrays import Array, read_array, write_array


def _order(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"program|random(:\d{1,18})?", value):
        raise click.BadParameter("orders are: program, random, random:SEED")
    return value


class Options(Common, ModelOptions):
    """What the command line gives to `run`."""

    inputs: tuple[str, ...]
    output: Path | None
    backend: str | None
    seed: int
    order: str
    dtype: str | None
    quantized: bool
    profile: bool


@click.command(cls=Guarded)
@common_options
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input array; repeatable.")
@click.option("--output", type=click.Path(path_type=Path), help="Write one .npy per output into this folder.")
@click.option(
    "--backend",
    type=click.Choice(["npu", "reference"]),
    default=None,
    help="How to run it: plans and streams run on npu, graphs on reference.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of what nobody gives."
)
@model_options
@click.option(
    "--dtype", type=click.Choice(["f32", "f64"]), default=None, help="Compute real numbers in this type."
)
@click.option("--quantized", is_flag=True, help="Apply the quantisation that the model describes.")
@click.option(
    "--order", default="program", callback=_order, metavar="program|random[:N]", help="Another legal order."
)
@click.option("--profile", is_flag=True, help="Say how long it took.")
def run(**options: Unpack[Options]) -> None:
    """Execute FILE; without --input the inputs are random, from the seed, and so are missing weights."""
    own = ("file", "as_json", "inputs", "output", "backend", "profile")
    words: dict[str, object] = {key: value for key, value in options.items() if key not in own}
    arrays = _read_inputs(options["inputs"], options["limits"])
    executable = compile(options["file"], options["backend"], **words)
    executable.watch = watch
    start = time.perf_counter()
    outputs = executable(**arrays)
    elapsed = time.perf_counter() - start
    print_findings(executable.findings)
    if options["output"] is not None:
        for name, array in outputs.items():
            write_array(options["output"] / f"{name}.npy", array)
    _print_outputs(outputs, options["as_json"], executable.findings)
    if options["profile"]:
        click.echo(f"{elapsed * 1000:.1f} ms", err=True)


def _read_inputs(words: tuple[str, ...], limits: Limits) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for word in words:
        name, array = _read_input(word, limits)
        if name in arrays:
            raise click.UsageError(f"--input {name} is given twice")
        arrays[name] = array
    return arrays


def _read_input(text: str, limits: Limits) -> tuple[str, Array]:
    name, equals, file = text.partition("=")
    if not equals or not file:
        raise click.UsageError(f"--input '{text}' is not NAME=FILE.npy")
    return name, read_array(Path(file), limits)


def _print_outputs(outputs: dict[str, Array], as_json: bool, findings: Sequence[Diagnostic]) -> None:
    """Type, shape and a digest of the bytes, by which two runs are compared."""
    digests = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in outputs.items()}
    if as_json:
        facts = {
            name: {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": digests[name]}
            for name, array in outputs.items()
        }
        print_json({"ok": True, "diagnostics": [item.to_json() for item in findings], "outputs": facts})
        return
    if not outputs:
        click.echo("nothing is written to L2 or DDR, so there is no output", err=True)
    for name, array in outputs.items():
        click.echo(f"{name}: {array.dtype}{list(array.shape)}  sha256 {digests[name][:16]}")
