"""The loop of a training: steps one after the other, evaluated and kept every so often, from any step on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.records import dataclass
from lamella.train.checkpoints import Checkpoint, write_checkpoint
from lamella.train.data.batches import Batch, Batches, count_targets
from lamella.train.schedules import Schedule


class StepOutcome(Protocol):
    """What a step gave."""

    @property
    def loss(self) -> float:
        """The loss before the update."""

    @property
    def gradient_norm(self) -> float | None:
        """The norm of all gradients; None where nobody asked for it."""


class Steps(Protocol):
    """What takes steps and keeps all that they change."""

    @property
    def state(self) -> Mapping[str, Array]:
        """All that the next step needs."""

    def load_state(self, arrays: Mapping[str, Array]) -> None:
        """Go on from a state."""

    def step(self, batch: Batch, rate: float) -> StepOutcome:
        """Change all parameters by the gradients of a batch."""

    def evaluate(self, batch: Batch) -> float:
        """The loss of a batch; nothing changes."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How long a training goes, and what is done on the way."""

    steps: int
    schedule: Schedule
    evaluate_every: int = 0
    """Steps between evaluations; 0 for one in the end."""
    save_every: int = 0
    """Steps between checkpoints; 0 for none."""
    checkpoints: Path | None = None
    """The folder of checkpoints."""
    is_writing: bool = True
    """Whether checkpoints are written by this process; of several ranks one does."""
    fingerprint: Mapping[str, object] | None = None
    """What must be the same when the run goes on."""


class StepReport(NamedTuple):
    """One step as it is shown and logged."""

    step: int
    """Its number; the first is 1."""
    loss: float
    rate: float
    gradient_norm: float | None
    seconds: float
    """The time of this step."""
    tokens: int
    evaluation: float | None
    """The loss of the evaluation behind it, where there was one."""
    saved: Path | None
    """The checkpoint that was written behind it."""


class TrainingLoop:
    """Takes the steps of a training; what it has seen is in `losses` and `evaluations`."""

    def __init__(
        self,
        trainer: Steps,
        batches: Batches,
        settings: LoopSettings,
        evaluation: Batches | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.trainer, self.batches, self.settings = trainer, batches, settings
        self._evaluation, self._clock = evaluation, clock
        self.losses: list[float] = []
        self.evaluations: list[tuple[int, float]] = []
        self.tokens = 0
        """Tokens of this process."""
        self.seconds = 0.0
        """Seconds of this process's steps, evaluations and checkpoints left out."""

    @property
    def done(self) -> int:
        """Steps that were taken, by this process and those before it."""
        return len(self.losses)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on behind a checkpoint."""
        self.trainer.load_state(checkpoint.state)
        self.losses = [float(item) for item in checkpoint.losses]
        self.evaluations = [(int(step), float(loss)) for step, loss in checkpoint.evaluations]

    def run(self) -> Iterator[StepReport]:
        """The steps that are left; each is taken when it is asked for."""
        while self.done < self.settings.steps:
            yield self._step(self.done)

    def _step(self, number: int) -> StepReport:
        batch = self.batches.batch(number)
        rate = self.settings.schedule.rate(number)
        start = self._clock()
        found = self.trainer.step(batch, rate)
        seconds = self._clock() - start
        if not math.isfinite(found.loss):
            hint = "lower --lr, give --warmup or --clip; checkpoints before this step are whole"
            raise InputError(
                f"the loss of step {number + 1} is {found.loss}: the training diverged", hint=hint
            )
        self.losses.append(found.loss)
        self.seconds += seconds
        self.tokens += self.batches.tokens
        evaluation = self.evaluate() if self._is_due(self.settings.evaluate_every) else None
        saved = self._save() if self._is_due(self.settings.save_every) else None
        return StepReport(
            number + 1, found.loss, rate, found.gradient_norm, seconds, self.batches.tokens, evaluation, saved
        )

    def _is_due(self, every: int) -> bool:
        """Whether something that is done every so often, and in the end, is done behind this step."""
        return bool(every) and (self.done % every == 0 or self.done == self.settings.steps)

    def evaluate(self) -> float | None:
        """The mean loss of all targets that are not learnt from; None where there are none."""
        if self._evaluation is None:
            return None
        losses: list[tuple[float, int]] = []
        for number in range(self._evaluation.epoch):
            batch = self._evaluation.batch(number)
            losses.append((self.trainer.evaluate(batch), count_targets(batch)))
        loss = math.fsum(loss * count for loss, count in losses) / sum(count for _, count in losses)
        if not math.isfinite(loss):
            hint = "lower --lr, give --warmup or --clip; checkpoints before this step are whole"
            raise InputError(
                f"the evaluation behind step {self.done} is {loss}: the training diverged", hint=hint
            )
        self.evaluations.append((self.done, loss))
        return loss

    def _save(self) -> Path | None:
        if self.settings.checkpoints is None:
            return None
        checkpoint = self.checkpoint()  # ranks gather it together, also those that do not write it
        return write_checkpoint(self.settings.checkpoints, checkpoint) if self.settings.is_writing else None

    def checkpoint(self) -> Checkpoint:
        """All that the rest of the run needs."""
        return Checkpoint(
            self.done,
            self.trainer.state,
            np.asarray(self.losses, np.float64),
            np.asarray(self.evaluations, np.float64).reshape(-1, 2),
            self.settings.fingerprint or {},
        )


def smoothed(losses: Sequence[float], share: float = 0.1) -> list[float]:
    """The exponential mean of losses, without the weight of its beginning."""
    found: list[float] = []
    mean, weight = 0.0, 0.0
    for loss in losses:
        mean, weight = (1 - share) * mean + share * loss, (1 - share) * weight + share
        found.append(mean / weight)
    return found
