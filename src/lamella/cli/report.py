"""What commands that run models share: arrays that are given, and the report of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click
import numpy as np

from lamella.backend.drawing import Drawn
from lamella.base.diagnostic import printable
from lamella.base.limits import Limits
from lamella.base.placement import placement_of
from lamella.base.writer import write_text
from lamella.cli.options import placement_json, print_findings, print_json, print_placement
from lamella.pipeline.arrays import Array, file_name, read_array, write_array
from lamella.pipeline.languages import Executable
from lamella.pipeline.options import Options
from lamella.pipeline.profile import Profile

# --- arrays that are given ---------------------------------------------------------------------------------------


def read_inputs(words: tuple[str, ...], limits: Limits, option: str = "--input") -> dict[str, Array]:
    """`--input a=FILE.npy --input b=3` as arrays by name."""
    arrays: dict[str, Array] = {}
    for word in words:
        name, array = _read_input(word, limits, option)
        if name in arrays:
            raise click.UsageError(f"{option} {name} is given twice")
        arrays[name] = array
    return arrays


def _read_input(text: str, limits: Limits, option: str) -> tuple[str, Array]:
    name, equals, file = text.partition("=")
    if not equals or not file:
        raise click.UsageError(f"{option} '{text}' is not NAME=FILE.npy")
    number = _number(file)
    return name, read_array(Path(file), limits) if number is None else np.asarray(number)


def _number(text: str) -> bool | int | float | complex | None:
    """A scalar as a user writes it, or None for what must be a file."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float, complex):
        with suppress(ValueError):
            return kind(text)
    return None


# --- what a run gave --------------------------------------------------------------------------------------------


def report_run(
    executable: Executable,
    outputs: dict[str, Array],
    options: Options,
    more: Mapping[str, object],
    profile: Profile,
) -> None:
    """Write and print what a run gave, what was random, where operations ran, and where the time went."""
    if options.output is not None:
        for name, array in outputs.items():
            write_array(options.output / f"{file_name(name)}.npy", array)
    if options.run_timeline is not None:
        write_text(options.run_timeline, json.dumps(profile.to_trace(), allow_nan=False))
    placement = placement_of(executable)
    if options.as_json:
        times = {"profile": profile.to_json()} if options.profile else {}
        facts = {**more, **times, **random_json(executable.drawn, options), **placement_json(placement)}
        findings = [item.to_json() for item in executable.findings]
        print_json({"ok": True, "diagnostics": findings, "outputs": array_facts(outputs), **facts})
        return
    print_findings(executable.findings)
    print_random(executable.drawn, options)
    print_placement(options.backend, placement)
    print_outputs(outputs)
    if options.profile:
        for line in profile.lines():
            click.echo(line, err=True)


def print_random(drawn: Drawn, options: Options) -> None:
    """Say which inputs and weights nobody gave."""
    line = drawn.line(options.start_seed)
    if line:
        click.echo(line, err=True)


def random_json(drawn: Drawn, options: Options) -> dict[str, object]:
    """The same as data; nothing where nothing was drawn."""
    return {"random": drawn.to_json(options.start_seed)} if drawn.inputs or drawn.weights else {}


def _digest(array: Array) -> str:
    """A digest of the bytes, by which two runs are compared."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def array_facts(arrays: Mapping[str, Array]) -> dict[str, object]:
    """Type, shape and digest of arrays, by name."""
    return {
        name: {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": _digest(array)}
        for name, array in arrays.items()
    }


def print_outputs(outputs: dict[str, Array]) -> None:
    """Type, shape and digest of each output."""
    if not outputs:
        click.echo("there is no output; a plan has those that it writes to L2 or DDR", err=True)
    for name, array in outputs.items():
        click.echo(f"{printable(name)}: {array.dtype}{list(array.shape)}  sha256 {_digest(array)[:16]}")
