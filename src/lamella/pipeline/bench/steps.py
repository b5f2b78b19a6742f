"""The steps of one run with their work: what a table of kernels and a roofline are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lamella.backend.progress import no_progress
from lamella.graph.model import Model
from lamella.graph.nodes import Operation
from lamella.pipeline.bench.contestants import Ours
from lamella.pipeline.bench.work import Counting, Work, extents_of
from lamella.pipeline.profile import Profile, ProfiledStep

RUNS = 3
"""Runs that are looked at; the fastest is told about."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A step of a run: when it ran, and what it had to do."""

    operator: str
    result: str
    origin: str
    start: float
    """Seconds from the start of the run."""
    seconds: float
    macs: int
    moved: int
    """Bytes that it reads and writes."""
    calls: int = 1

    @property
    def gflops(self) -> float:
        """Billions of additions and multiplications a second."""
        return 2 * self.macs / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """Billions of bytes a second."""
        return self.moved / self.seconds / 1e9 if self.seconds else 0.0


def profile_steps(ours: Ours) -> list[KernelTime]:
    """Run once more, and say where the time went, in order."""
    executable = ours.executable
    runs = [_profile(ours) for _ in range(RUNS)]
    profile = min(runs, key=lambda item: sum(step.seconds for step in item.steps))
    model: object = getattr(executable, "model", None)
    counting = None
    if isinstance(model, Model):
        shapes = {name: item.shape for name, item in ours.inputs.items()}
        counting = Counting(model.library, extents_of(model.graph.inputs, shapes))
    begin = profile.steps[0].start if profile.steps else 0.0
    return [_told(step, begin, counting) for step in profile.steps]


def _profile(ours: Ours) -> Profile:
    profile = Profile()
    ours.executable.progress = profile
    ours.call()
    ours.executable.progress = no_progress
    return profile


def _told(step: ProfiledStep, begin: float, counting: Counting | None) -> KernelTime:
    work = (
        counting.operation(step.item) if counting is not None and isinstance(step.item, Operation) else Work()
    )
    origin = step.origins[-1] if step.origins else ""
    return KernelTime(
        step.operator, step.result, origin, step.start - begin, step.seconds, work.macs, work.moved
    )


def by_operator(steps: Iterable[KernelTime]) -> list[KernelTime]:
    """Steps of the same operator added up, the slowest first."""
    found: dict[str, KernelTime] = {}
    for step in steps:
        old = found.get(step.operator)
        found[step.operator] = step if old is None else _sum(old, step)
    return sorted(found.values(), key=lambda item: -item.seconds)


def _sum(left: KernelTime, right: KernelTime) -> KernelTime:
    return KernelTime(
        left.operator,
        "",
        "",
        left.start,
        left.seconds + right.seconds,
        left.macs + right.macs,
        left.moved + right.moved,
        left.calls + right.calls,
    )
