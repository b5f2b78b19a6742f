"""Training from the command line: its steps, and what they aim at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import click

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.pipeline.languages import Executable


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


def with_targets(
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


def train(
    training: Training, arrays: Mapping[str, Array], count: int, tell: bool
) -> tuple[dict[str, Array], list[float]]:
    """Do so many steps: the outputs of the last one, and the losses of all, which are told one by one."""
    outputs: dict[str, Array] = {}
    losses: list[float] = []
    for number in range(1, count + 1):
        outputs = training(**arrays)
        losses += [float(outputs[training.loss])] if training.loss else []
        if tell:
            click.echo(f"step {number}" + (f"  loss {losses[-1]:.7g}" if losses else ""))
    return outputs, losses
