"""Learning-rate schedules: the rate of each step, with a linear warm-up before and a decay behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lamella.base.errors import InputError
from lamella.base.records import dataclass

WSD_DECAY = 0.1
"""The share of all steps in which warm-up–stable–decay comes down, where nobody says how many."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate as a function of the step.

    The formulas are those of the schedules of the package transformers, so that a curve can be taken over: step 0 of a
    warm-up has the rate 0, and the step behind the last one has the lowest.
    """

    name: str
    peak: float
    steps: int
    warmup: int = 0
    decay: int | None = None
    """Steps in which warm-up–stable–decay comes down; None for a tenth of all."""
    lowest: float = 0.0
    """The rate in the end, of schedules that decay."""

    def rate(self, step: int) -> float:
        """The learning rate of a step; the first is 0."""
        if step < self.warmup:
            return self.peak * step / self.warmup
        share = SCHEDULES[self.name](self, step)
        return self.lowest + (self.peak - self.lowest) * min(1.0, max(0.0, share))


def _constant(schedule: Schedule, step: int) -> float:
    return 1.0


def _linear(schedule: Schedule, step: int) -> float:
    return (schedule.steps - step) / max(1, schedule.steps - schedule.warmup)


def _cosine(schedule: Schedule, step: int) -> float:
    done = min(1.0, (step - schedule.warmup) / max(1, schedule.steps - schedule.warmup))
    return 0.5 * (1.0 + math.cos(math.pi * done))


def _wsd(schedule: Schedule, step: int) -> float:
    """The decay of warm-up–stable–decay is linear."""
    falling = schedule.decay if schedule.decay is not None else math.ceil(WSD_DECAY * schedule.steps)
    return (schedule.steps - step) / falling if falling else 1.0


SCHEDULES: Mapping[str, Callable[[Schedule, int], float]] = MappingProxyType(
    {"constant": _constant, "linear": _linear, "cosine": _cosine, "wsd": _wsd}
)
"""What is left of the way from the peak to the lowest rate, by the names of schedules."""


def require_schedule(schedule: Schedule) -> None:
    """InputError for a schedule whose parts are longer than the whole, or whose end is above its peak."""
    if schedule.peak < 0:
        raise InputError(f"the rate {schedule.peak:g} is below 0: steps would go up the loss")
    if not math.isfinite(schedule.peak) or not math.isfinite(schedule.lowest):
        raise InputError(f"rates from {schedule.peak:g} to {schedule.lowest:g} are no finite numbers")
    if schedule.steps < 1:
        raise InputError(f"{schedule.steps} steps are none", hint="steps start at 1")
    parts = schedule.warmup + (schedule.decay or 0)
    if parts > schedule.steps:
        hint = f"there are {schedule.steps} steps"
        raise InputError(f"warm-up and decay together take {parts} steps", hint=hint)
    if schedule.lowest > schedule.peak:
        raise InputError(f"the lowest rate {schedule.lowest:g} is above the peak {schedule.peak:g}")
