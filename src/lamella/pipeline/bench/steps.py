"""The steps of one run with their work: what a table of kernels and a roofline are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lamella.backend.progress import no_progress
from lamella.graph.model import Model
from lamella.kernels.launches import LaunchTime
from lamella.pipeline.bench.contestants import Ours
from lamella.pipeline.bench.work import Counting, Work, extents_of
from lamella.pipeline.profile import Profile, ProfiledStep

RUNS = 5
"""Runs that are looked at: of each step the fastest is told about, since what disturbs one seldom disturbs all."""


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
    """Run a few times more, and say where the time went, in order."""
    executable = ours.executable
    steps = _fastest([_profile(ours) for _ in range(RUNS)])
    model: object = getattr(executable, "model", None)
    shapes = {name: item.shape for name, item in ours.inputs.items()}
    works = _works(model, shapes) if isinstance(model, Model) else {}
    # an operation may be several launches, such as one that packs: its work is that of the longest
    longest: dict[int, ProfiledStep] = {}
    for step in steps:
        key = _key(step.item)
        longest[key] = max(longest.get(key, step), step, key=lambda item: item.seconds)
    begin = steps[0].start if steps else 0.0
    return [_told(step, begin, works if longest[_key(step.item)] is step else {}) for step in steps]


def _fastest(runs: Sequence[list[ProfiledStep]]) -> list[ProfiledStep]:
    """The steps of the fastest run, each with its shortest time in any run that took the same steps."""
    best = min(runs, key=lambda steps: sum(step.seconds for step in steps))
    alike = [steps for steps in runs if len(steps) == len(best)]
    return [
        step._replace(seconds=min(steps[place].seconds for steps in alike)) for place, step in enumerate(best)
    ]


def _works(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[int, Work]:
    """The work of each operation, by the identity of its origin, which its launches carry too."""
    counting = Counting(model.library, extents_of(model.graph.inputs, shapes))
    return {_key(item): counting.operation(item) for item in model.graph.operations()}


def _key(item: object) -> int:
    """What a launch and its operation have in common."""
    origin: object = getattr(item, "origin", None)
    return id(item if origin is None else origin)


def _profile(ours: Ours) -> list[ProfiledStep]:
    profile = Profile()
    ours.executable.progress = profile
    ours.call()
    ours.executable.progress = no_progress
    return profile.steps


def _told(step: ProfiledStep, begin: float, works: Mapping[int, Work]) -> KernelTime:
    size = step.item.size if isinstance(step.item, LaunchTime) else 0
    work = works.get(_key(step.item), Work(0, size))
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
