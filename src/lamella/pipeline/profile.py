"""Where the time of a run goes: its steps with their seconds, summed up by operator, or one by one as a trace.

A step is an operation of a graph, an instruction, a task: whatever an executable passes through its `progress`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from lamella.backend.progress import Progress, no_progress
from lamella.base.diagnostic import printable
from lamella.base.origin import Origin
from lamella.graph.model import ProfiledRegion
from lamella.graph.nodes import Operation, tensors
from lamella.kernels.launches import LaunchTime

T = TypeVar("T")
MOST_STEPS = 200_000
"""How many steps a profile keeps one by one; sums go on."""


@runtime_checkable
class Named(Protocol):
    """A step that calls an operator by its name."""

    operator: str


class ProfiledStep(NamedTuple):
    """One step of a run: what it was, when it began, how long it took, in seconds."""

    item: object
    start: float
    seconds: float

    @property
    def operator(self) -> str:
        """The operator of a step, or what kind of step it is; the tasks of a plan are all of one kind."""
        if isinstance(self.item, Named):
            return self.item.operator
        return "task" if isinstance(self.item, tuple) else type(self.item).__name__.lower()

    @property
    def result(self) -> str:
        """The tensor that it makes, or its kernel, by which a step is told from others of its operator."""
        if isinstance(self.item, LaunchTime):
            return self.item.kernel
        if not isinstance(self.item, Operation):
            return ""
        return next((found.name for item in self.item.outputs for found in tensors(item)), "")

    @property
    def origins(self) -> tuple[str, ...]:
        """What it was made from, back to the line of the model."""
        found: object = getattr(self.item, "origin", None)
        return found.words() if isinstance(found, Origin) else ()


class RegionTime(NamedTuple):
    """A region of the source in a run: its seconds, its steps, the bytes that these read and write."""

    region: ProfiledRegion
    seconds: float
    steps: int
    size: int
    start: float
    end: float

    def to_json(self) -> dict[str, object]:
        """The facts of it."""
        size = {"bytes": self.size} if self.region.has_memory else {}
        name = {"name": self.region.name, "path": self.region.path}
        return {**name, "seconds": self.seconds, "steps": self.steps, **size}


def share_in(item: object, region: ProfiledRegion) -> float:
    """How much of a step belongs to a region: the part of the operations that it stands for."""
    return region.share_of(getattr(item, "origin", None))


def _bytes_of(item: object) -> int:
    """The bytes of the arguments of a launch, or of the tensors of an operation as far as their extents are known."""
    if isinstance(item, LaunchTime):
        return item.size
    if not isinstance(item, Operation):
        return 0
    found = (part for argument in (*item.inputs, *item.outputs) for part in tensors(argument))
    return sum(
        prod(size for size in part.shape or () if isinstance(size, int)) * part.element.bits // 8
        for part in found
    )


class Profile:
    """Progress of a run that keeps its steps and adds up their seconds."""

    def __init__(self, inner: Progress = no_progress, regions: Sequence[ProfiledRegion] = ()) -> None:
        self._inner = inner
        self.regions = tuple(regions)
        """What the source wants to be told of by name."""
        self.load_seconds = 0.0
        self.run_seconds = 0.0
        self.steps: list[ProfiledStep] = []
        self.seconds: dict[str, float] = {}
        """By operator, or by the kind of step."""
        self.counts: dict[str, int] = {}
        self._is_told = False

    def __call__(self, items: Iterable[T], total: int, /) -> Iterator[T]:
        """The items as they come, each timed until the next one is asked for, unless it tells its launches."""
        for item in self._inner(items, total):
            self._is_told = False
            start = time.perf_counter()
            yield item
            if not self._is_told:
                self._add(ProfiledStep(item, start, time.perf_counter() - start))

    def record(self, launch: LaunchTime, /) -> None:
        """A launch of the step that runs now took its time."""
        self._is_told = True
        self._add(ProfiledStep(launch, launch.start, launch.seconds))

    def _add(self, step: ProfiledStep) -> None:
        if len(self.steps) < MOST_STEPS:
            self.steps.append(step)
        name = step.operator
        self.seconds[name] = self.seconds.get(name, 0.0) + step.seconds
        self.counts[name] = self.counts.get(name, 0) + 1

    def to_json(self) -> dict[str, object]:
        """Seconds of reading and running, then seconds and counts by operator, the slowest first."""
        rows = {name: {"seconds": self.seconds[name], "count": self.counts[name]} for name in self._ranked()}
        found: dict[str, object] = {"loaded": self.load_seconds, "run": self.run_seconds, "operators": rows}
        if self.regions:
            found["regions"] = [item.to_json() for item in self.region_times()]
        return found

    def lines(self) -> Iterator[str]:
        """The same as a table."""
        yield f"loaded in {self.load_seconds * 1000:.1f} ms, run in {self.run_seconds * 1000:.1f} ms"
        whole = sum(self.seconds.values()) or 1.0
        for name in self._ranked():
            part = self.seconds[name]
            yield f"{part * 1000:>10.1f} ms {part / whole:>6.1%}  {self.counts[name]:>6} × {name}"
        for item in self.region_times():
            size = f", {item.size:,} bytes" if item.region.has_memory else ""
            place = f" ({item.region.path})" if item.region.path else ""
            name = printable(f"{item.region.name}{place}")
            part = item.seconds
            yield f"{part * 1000:>10.1f} ms {part / whole:>6.1%}  @profile {name}: {item.steps} steps{size}"

    def region_times(self) -> Iterator[RegionTime]:
        """The time of each region, in the order of the source: of its steps, or of the clock around all of them.

        A step that several regions share is shared out.
        """
        for region in self.regions:
            shares = [(step, share_in(step.item, region)) for step in self.steps]
            own = [(step, share) for step, share in shares if share]
            start = min((step.start for step, _ in own), default=0.0)
            end = max((step.start + step.seconds for step, _ in own), default=0.0)
            seconds = sum(step.seconds * share for step, share in own) if region.has_events else end - start
            size = sum(_bytes_of(step.item) for step, _ in own)
            yield RegionTime(region, seconds, len(own), size, start, end)

    def _ranked(self) -> list[str]:
        return sorted(self.seconds, key=lambda name: -self.seconds[name])

    def to_trace(self) -> dict[str, object]:
        """A Chrome trace that Perfetto opens: a slice for each step, with its origins down to the line of the model."""
        begin = self.steps[0].start if self.steps else 0.0
        events = [
            {
                "ph": "X",
                "name": step.operator,
                "cat": step.operator.partition(".")[0],
                "pid": 1,
                "tid": 1,
                "ts": (step.start - begin) * 1e6,
                "dur": step.seconds * 1e6,
                "args": _facts(step),
            }
            for step in self.steps
        ]
        events += [
            {
                "ph": "X",
                "name": item.region.name,
                "cat": "@profile",
                "pid": 1,
                "tid": 2,
                "ts": (item.start - begin) * 1e6,
                "dur": (item.end - item.start) * 1e6,
                "args": item.to_json(),
            }
            for item in self.region_times()
            if item.region.has_markers
        ]
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def _facts(step: ProfiledStep) -> dict[str, object]:
    """What a click on a slice tells; only what there is to tell."""
    links = {("origin" if not place else f"from {place}"): text for place, text in enumerate(step.origins)}
    return {**({"result": step.result} if step.result else {}), **links}
