"""`lamella run`: execute a program or a model."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar, cast, runtime_checkable

import click
import numpy as np

from lamella.backend.drawing import Drawn
from lamella.backend.progress import Progress
from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.limits import Limits
from lamella.base.placement import placement_of
from lamella.cli.options import (
    command,
    file_argument,
    has_errors,
    placement_json,
    print_findings,
    print_json,
    print_placement,
)
from lamella.cli.planning import run_plan
from lamella.cli.talking import speak
from lamella.cli.training import Training, train, with_targets
from lamella.cli.watching.bar import watch
from lamella.cli.watching.waiting import waiting
from lamella.pipeline.api import make_executable
from lamella.pipeline.arrays import Array, file_name, read_array, write_array
from lamella.pipeline.effects import steps_of
from lamella.pipeline.generating import generate, read_tokens
from lamella.pipeline.languages import Executable, part_of, subject_of
from lamella.pipeline.options import Options

# --- where the time of a run goes, by operator: the table behind `run --profile` ----------------------------


T = TypeVar("T")


@runtime_checkable
class Named(Protocol):
    """A step that calls an operator by its name."""

    operator: str


class Stopwatch:
    """Watches a run and adds up the seconds of its steps."""

    def __init__(self, inner: Progress) -> None:
        self._inner = inner
        self.seconds: dict[str, float] = {}
        """By operator, or by the kind of step."""
        self.counts: dict[str, int] = {}

    def __call__(self, items: Iterable[T], total: int, /) -> Iterator[T]:
        """The items as they come, each timed until the next one is asked for."""
        for item in self._inner(items, total):
            start = time.perf_counter()
            yield item
            self._add(_kind(item), time.perf_counter() - start)

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.counts[name] = self.counts.get(name, 0) + 1

    def to_json(self) -> dict[str, object]:
        """Seconds and counts by operator, the slowest first."""
        return {name: {"seconds": self.seconds[name], "count": self.counts[name]} for name in self._ranked()}

    def lines(self) -> Iterator[str]:
        """The same as a table."""
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


@command("run")
@file_argument
def run(file: Path, options: Options) -> None:
    """Execute FILE; without --input the inputs are random, from the seed, and so are missing weights."""
    subject = subject_of(file, options.language)
    step = steps_of("run", subject, dict.fromkeys(options.given))[-1]
    if step == "speak":
        speak(file, options)
    elif step == "observe":
        _observe(file, options)
    elif step == "plan":
        run_plan(file, options)
    else:
        _execute(file, replace(options, training=step == "train", kernel=options.kernel or ""), step)


def _execute(file: Path, options: Options, step: str) -> None:
    """Run a model once, or step by step, and print what it gives."""
    option = "--arg" if options.arguments else "--input"
    arrays = _read_inputs((*options.inputs, *options.arguments), options.limits, option)
    with waiting(f"reading {printable(str(file))}"):
        start = time.perf_counter()
        executable = make_executable(file, options.backend, options)
        loaded = time.perf_counter() - start
    stopwatch = Stopwatch(watch)
    executable.watch = stopwatch if options.profile else watch
    if step == "generate":
        _generate(executable, options, arrays)
        return
    start = time.perf_counter()
    told: dict[str, object] = {}
    outputs = _train(executable, options, arrays, told) if step == "train" else executable(**arrays)
    elapsed = time.perf_counter() - start
    if options.output is not None:
        for name, array in outputs.items():
            write_array(options.output / f"{file_name(name)}.npy", array)
    if options.as_json:
        times = {"loaded": loaded, "run": elapsed, "operators": stopwatch.to_json()}
        told |= {"profile": times} if options.profile else {}
        told |= _random_json(executable.drawn, options) | placement_json(placement_of(executable))
        _print_json(outputs, executable.findings, told)
        return
    print_findings(executable.findings)
    _print_random(executable.drawn, options)
    print_placement(options.backend, placement_of(executable))
    _print_outputs(outputs)
    if options.profile:
        click.echo(f"loaded in {loaded * 1000:.1f} ms, run in {elapsed * 1000:.1f} ms", err=True)
        for line in stopwatch.lines():
            click.echo(line, err=True)


def _print_random(drawn: Drawn, options: Options) -> None:
    """Say which inputs and weights nobody gave."""
    line = drawn.line(options.start_seed)
    if line:
        click.echo(line, err=True)


def _random_json(drawn: Drawn, options: Options) -> dict[str, object]:
    return {"random": drawn.to_json(options.start_seed)} if drawn.inputs or drawn.weights else {}


def _observe(file: Path, options: Options) -> None:
    """Run once, and print what the annotations of a model watch."""
    arrays = _read_inputs(options.inputs, options.limits)
    with waiting(f"reading {printable(str(file))}"):
        found = part_of("module", "observing").observe(file, options, arrays, options.backend)
    failed = has_errors(found.findings, False)
    if options.as_json:
        told = [item.to_json() for item in found.findings]
        more = _random_json(found.drawn, options) | placement_json(found.placement)
        facts = {"outputs": _facts(found.outputs), "observed": list(found.lines)}
        print_json({"ok": not failed, "diagnostics": told, **facts, **more})
    else:
        print_findings(found.findings)
        _print_random(found.drawn, options)
        print_placement(options.backend, found.placement)
        for line in found.lines:
            click.echo(line)
        _print_outputs(dict(found.outputs))
    if failed:
        sys.exit(1)


def _train(
    executable: Executable, options: Options, arrays: dict[str, Array], told: dict[str, object]
) -> dict[str, Array]:
    """Do the steps of training that are asked for, and write what they made."""
    training = cast(Training, executable)
    given = with_targets(training, arrays, _read_inputs(options.targets, options.limits, "--target"))
    outputs, losses = train(training, given, options.train_steps or 0, not options.as_json)
    told["losses"] = [item if math.isfinite(item) else None for item in losses]
    told["parameters"] = _facts(training.state)
    if options.save is not None:
        training.save(options.save)
    return outputs


def _generate(executable: Executable, options: Options, arrays: dict[str, Array]) -> None:
    """Print the tokens that follow the given ones."""
    target, equals, source = (options.generate or "").partition("=")
    if not equals or not source or target in arrays:
        raise click.UsageError("--generate is INPUT=OUTPUT, an input that is not given otherwise")
    start = read_tokens(options.start)
    tokens = generate(executable, (target, source), start, options.max_tokens, arrays)
    if options.as_json:
        told = [item.to_json() for item in executable.findings]
        more = _random_json(executable.drawn, options)
        print_json({"ok": True, "diagnostics": told, "tokens": tokens, **more})
        return
    print_findings(executable.findings)
    _print_random(executable.drawn, options)
    click.echo(",".join(map(str, tokens)))


def _read_inputs(words: tuple[str, ...], limits: Limits, option: str = "--input") -> dict[str, Array]:
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


def _digest(array: Array) -> str:
    """A digest of the bytes, by which two runs are compared."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def _print_json(
    outputs: dict[str, Array], findings: Sequence[Diagnostic], more: Mapping[str, object]
) -> None:
    told = [item.to_json() for item in findings]
    print_json({"ok": True, "diagnostics": told, "outputs": _facts(outputs), **more})


def _facts(arrays: Mapping[str, Array]) -> dict[str, object]:
    return {
        name: {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": _digest(array)}
        for name, array in arrays.items()
    }


def _print_outputs(outputs: dict[str, Array]) -> None:
    """Type, shape and digest of each output."""
    if not outputs:
        click.echo("there is no output; a plan has those that it writes to L2 or DDR", err=True)
    for name, array in outputs.items():
        click.echo(f"{printable(name)}: {array.dtype}{list(array.shape)}  sha256 {_digest(array)[:16]}")
