"""Training from the command line: what `run` takes for it, its steps, and what is written afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypedDict, TypeVar, cast

import click

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.pipeline.languages import Executable

F = TypeVar("F", bound=Callable[..., object])


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


class TrainingOptions(TypedDict):
    """What the command line gives for training."""

    train_steps: int | None
    target: tuple[str, ...]
    lr: float | None
    save: Path | None


TRAINING_OPTIONS = (
    click.option(
        "--train-steps",
        type=click.IntRange(min=1, max=1_000_000),
        default=None,
        help="NAC: so many steps of its training graph, each on the same inputs and targets.",
    ),
    click.option(
        "--target", multiple=True, metavar="K=FILE.npy", help="What --train-steps aims at; repeatable."
    ),
    click.option("--lr", type=float, default=None, help="The learning rate of --train-steps."),
    click.option(
        "--save",
        type=click.Path(path_type=Path),
        help="Write what --train-steps made: weights (.safetensors), or FILE with them (.nac, .nacs).",
    ),
)


def training_options(command: F) -> F:
    """Give a command the options of training."""
    for option in reversed(TRAINING_OPTIONS):
        command = option(command)
    return command


def wants_training(options: TrainingOptions) -> bool:
    """Whether steps of training are asked for; what only concerns them is refused without."""
    given = {"--target": options["target"], "--lr": options["lr"], "--save": options["save"]}
    word = next((word for word, value in given.items() if value not in (None, ())), None)
    if options["train_steps"] is None and word is not None:
        raise click.UsageError(f"{word} is for training; say --train-steps N too")
    return options["train_steps"] is not None


def as_training(executable: Executable, file: Path) -> Training:
    """The executable of a training graph."""
    if not hasattr(executable, "targets"):
        raise click.UsageError(f"only NAC files are trained, and '{printable(str(file))}' is none")
    return cast(Training, executable)


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
