"""`lamella train`: take steps of the training graph that a NAC file carries."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

import click

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.cli.options import command, file_argument
from lamella.cli.progress import show_progress
from lamella.cli.report import array_facts, read_inputs, report_run
from lamella.cli.waiting import waiting
from lamella.pipeline.api import make_executable
from lamella.pipeline.languages import NAC, Executable, language_of
from lamella.pipeline.options import Options
from lamella.pipeline.profile import Profile


@command("train")
@file_argument
def train(file: Path, options: Options) -> None:
    """Take --steps steps of the training graph of FILE.nac, each on the same inputs and targets; print the losses."""
    if language_of(file, options.language) is not NAC:
        hint = "lamella.from_torch(module, args, loss=…) writes one (docs/languages/nac.md)"
        raise InputError(f"'{printable(str(file))}' has no training graph", hint=hint)
    options = replace(options, training=True)
    arrays = read_inputs(options.inputs, options.limits)
    profile = Profile(show_progress)
    start = time.perf_counter()
    with waiting(f"reading {printable(str(file))}"):
        training = cast("Training", make_executable(file, options.backend, options))
    training.progress = profile if options.profile or options.run_timeline else show_progress
    profile.load_seconds = time.perf_counter() - start
    given = _with_targets(training, arrays, read_inputs(options.targets, options.limits, "--target"))
    start = time.perf_counter()
    outputs, losses = _take_steps(training, given, options)
    profile.run_seconds = time.perf_counter() - start
    if options.save is not None:
        training.save(options.save)
    shown = [item if math.isfinite(item) else None for item in losses]
    report_run(
        training, outputs, options, {"losses": shown, "parameters": array_facts(training.state)}, profile
    )


class Training(Executable, Protocol):
    """A step of training that keeps its parameters."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The inputs that are targets, by their numbers."""

    @property
    def loss(self) -> str:
        """The output that is the loss; empty where there is none."""

    @property
    def state(self) -> Mapping[str, Array]:
        """The parameters, by name."""

    def save(self, path: Path) -> None:
        """Write the parameters, or the file with them."""


def _with_targets(
    training: Training, arrays: Mapping[str, Array], targets: Mapping[str, Array]
) -> dict[str, Array]:
    """The arrays of a step: inputs by their names, targets by their numbers."""
    found = dict(arrays)
    for number, array in targets.items():
        known = number.isascii() and number.isdigit() and len(number) < 10
        if not known or int(number) >= len(training.targets):
            count = len(training.targets)
            raise click.UsageError(
                f"there is no target {printable(number, 80)}; the file has {count}, from 0"
            )
        found[training.targets[int(number)]] = array
    missing = [number for number, name in enumerate(training.targets) if name not in found]
    if missing:
        raise click.UsageError(f"target {missing[0]} is not given; say --target {missing[0]}=FILE.npy")
    return found


def _take_steps(
    training: Training, arrays: Mapping[str, Array], options: Options
) -> tuple[dict[str, Array], list[float]]:
    """The outputs of the last step, and the losses of all, which are printed one by one."""
    outputs: dict[str, Array] = {}
    losses: list[float] = []
    for number in range(1, options.steps + 1):
        outputs = training(**arrays)
        losses += [float(outputs[training.loss])] if training.loss else []
        if not options.as_json:
            click.echo(f"step {number}" + (f"  loss {losses[-1]:.7g}" if losses else ""))
    return outputs, losses
