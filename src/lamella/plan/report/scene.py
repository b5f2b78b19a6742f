"""What all pictures show, in the words and numbers they show it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Track:
    """A row of the timeline: one instance of a unit; `engine` is None for units of the whole device."""

    unit: str
    instance: int
    engine: int | None
    busy: int
    utilisation: float

    @property
    def name(self) -> str:
        """`CSTL[1]`."""
        return f"{self.unit}[{self.instance}]"

    @property
    def group(self) -> str:
        """The engine it belongs to, or the device."""
        return "device" if self.engine is None else f"engine {self.engine}"


@dataclass(frozen=True, slots=True)
class WaitStretch:
    """A stretch in which a task instance waited; `cause` is the title of what it waited for, where one is known."""

    reason: str
    cycles: int
    cause: str = ""


@dataclass(frozen=True, slots=True)
class TaskSlice:
    """A task instance: `track` and `task` are positions in the scene, `after` positions of earlier slices."""

    track: int
    task: int
    start: int
    end: int
    iteration: str
    waits: tuple[WaitStretch, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of the program with the totals of all its instances; `line` is 0 where it is not in the text.

    `blockers` are what it waited for most, `others` counts the rest of them.
    """

    title: str
    opcode: str
    unit: str
    line: int
    profile: str
    count: int
    cycles: int
    waits: Mapping[str, int]
    blockers: tuple[WaitStretch, ...]
    others: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def waited(self) -> int:
        """Cycles that its instances waited, for all reasons."""
        return sum(self.waits.values())


@dataclass(frozen=True, slots=True)
class BufferBox:
    """A buffer in its memory, from its first to its last use."""

    name: str
    offset: int
    size: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """A memory over time: `steps` are (cycle, bytes in use from there on), `holders` who holds the peak."""

    name: str
    engine: int | None
    capacity: int | None
    peak: int
    peak_at: int
    holders: tuple[tuple[str, int], ...]
    steps: tuple[tuple[int, int], ...]
    boxes: tuple[BufferBox, ...]


@dataclass(frozen=True, slots=True)
class BoundRow:
    """A lower bound of the cycles, and what it counts."""

    name: str
    cycles: int
    what: str
    binding: bool


@dataclass(frozen=True, slots=True)
class NamedScope:
    """A loop or region that carries a @debug name or a @profile tag."""

    kind: str
    name: str
    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A simulated program; `covered` is the cycle up to which the slices show everything, `cut` says so if they end."""

    program: str
    file: str
    device: str
    topology: str
    cycles: int
    covered: int
    cut: str
    tracks: tuple[Track, ...]
    tasks: tuple[TaskRow, ...]
    levels: tuple[MemoryTimeline, ...]
    bounds: tuple[BoundRow, ...]
    ratio: float
    facts: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]
    named: tuple[NamedScope, ...]
    source: tuple[str, ...]
    slices: tuple[TaskSlice, ...] = ()

    @property
    def binding(self) -> BoundRow | None:
        """The largest bound."""
        return next((bound for bound in self.bounds if bound.binding), None)
