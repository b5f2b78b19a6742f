"""What commands that run models share: arrays that are given, and the report of a run."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import click
import numpy as np

from lamella.backend.drawing import Drawn
from lamella.backend.progress import Progress
from lamella.base.diagnostic import printable
from lamella.base.limits import Limits
from lamella.base.placement import placement_of
from lamella.cli.options import placement_json, print_findings, print_json, print_placement
from lamella.kernels.launches import LaunchTime
from lamella.pipeline.arrays import Array, file_name, read_array, write_array
from lamella.pipeline.languages import Executable
from lamella.pipeline.options import Options

# --- where the time of a run goes, by operator: the table behind `run --profile` ----------------------------


T = TypeVar("T")


@runtime_checkable
class Named(Protocol):
    """A step that calls an operator by its name."""

    operator: str


class Stopwatch:
    """Progress of a run that adds up the seconds of its steps."""

    def __init__(self, inner: Progress) -> None:
        self._inner = inner
        self.load_seconds = 0.0
        self.run_seconds = 0.0
        self.seconds: dict[str, float] = {}
        """By operator, or by the kind of step."""
        self.counts: dict[str, int] = {}
        self._is_told = False

    def __call__(self, items: Iterable[T], total: int, /) -> Iterator[T]:
        """The items as they come, each timed until the next one is asked for, unless it told its launches."""
        for item in self._inner(items, total):
            self._is_told = False
            start = time.perf_counter()
            yield item
            if not self._is_told:
                self._add(_kind(item), time.perf_counter() - start)

    def record(self, launch: LaunchTime, /) -> None:
        """A launch of the step that runs now took its time."""
        self._is_told = True
        self._add(launch.operator, launch.seconds)

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.counts[name] = self.counts.get(name, 0) + 1

    def to_json(self) -> dict[str, object]:
        """Seconds of reading and running, then seconds and counts by operator, the slowest first."""
        rows = {name: {"seconds": self.seconds[name], "count": self.counts[name]} for name in self._ranked()}
        return {"loaded": self.load_seconds, "run": self.run_seconds, "operators": rows}

    def lines(self) -> Iterator[str]:
        """The same as a table."""
        yield f"loaded in {self.load_seconds * 1000:.1f} ms, run in {self.run_seconds * 1000:.1f} ms"
        whole = sum(self.seconds.values()) or 1.0
        for name in self._ranked():
            part = self.seconds[name]
            yield f"{part * 1000:>10.1f} ms {part / whole:>6.1%}  {self.counts[name]:>6} × {name}"

    def _ranked(self) -> list[str]:
        return sorted(self.seconds, key=lambda name: -self.seconds[name])


def _kind(step: object) -> str:
    """The operator of a step, or what kind of step it is; the tasks of a plan are all of one kind."""
    if isinstance(step, Named):
        return step.operator
    return "task" if isinstance(step, tuple) else type(step).__name__.lower()


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
    stopwatch: Stopwatch,
) -> None:
    """Write and print what a run gave, what was random, where operations ran, and where the time went."""
    if options.output is not None:
        for name, array in outputs.items():
            write_array(options.output / f"{file_name(name)}.npy", array)
    placement = placement_of(executable)
    if options.as_json:
        profile = {"profile": stopwatch.to_json()} if options.profile else {}
        facts = {**more, **profile, **random_json(executable.drawn, options), **placement_json(placement)}
        findings = [item.to_json() for item in executable.findings]
        print_json({"ok": True, "diagnostics": findings, "outputs": array_facts(outputs), **facts})
        return
    print_findings(executable.findings)
    print_random(executable.drawn, options)
    print_placement(options.backend, placement)
    print_outputs(outputs)
    if options.profile:
        for line in stopwatch.lines():
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
