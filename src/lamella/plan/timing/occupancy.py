"""Memory over time: a buffer is held from the start of the first task that touches it to the end of the last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from lamella.base.liveness import changes
from lamella.lang.nem.resolved import Buffer, Plan
from lamella.plan.timing.machine import Machine


@dataclass(frozen=True, slots=True)
class Held:
    """A buffer and the cycles in which it is held; the end is exclusive."""

    buffer: Buffer
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """One memory over time; `steps` are (cycle, bytes from there on), `declared` all its buffers together."""

    level: str
    peak: int
    peak_at: int
    capacity: int | None
    declared: int
    holders: tuple[Held, ...]
    held: tuple[Held, ...]
    steps: tuple[tuple[int, int], ...]


def find_occupancy(
    plan: Plan, machine: Machine, first: Mapping[int, int], last: Mapping[int, int]
) -> tuple[Occupancy, ...]:
    """The memories of a plan, DDR first; `first` starts and `last` ends by task number."""
    spans = _spans(plan, first, last)
    levels: dict[str, list[Buffer]] = defaultdict(list)
    for buffer in sorted(
        plan.buffers, key=lambda item: (("DDR", "L2", "L1").index(item.memory), item.engine)
    ):
        levels[buffer.level].append(buffer)
    return tuple(_occupancy(level, buffers, spans, machine) for level, buffers in levels.items())


def _spans(plan: Plan, first: Mapping[int, int], last: Mapping[int, int]) -> dict[str, tuple[int, int]]:
    """When each buffer is held, by name; buffers that no task touches are missing."""
    spans: dict[str, tuple[int, int]] = {}
    for task in plan.tasks():
        if task.number not in first:
            continue
        start, end = first[task.number], last[task.number]
        for region in (*task.inputs, *task.outputs):
            known = spans.get(region.buffer.name, (start, end))
            spans[region.buffer.name] = min(known[0], start), max(known[1], end)
    return spans


def _occupancy(
    level: str, buffers: list[Buffer], spans: Mapping[str, tuple[int, int]], machine: Machine
) -> Occupancy:
    held = [Held(buffer, *spans[buffer.name]) for buffer in buffers if buffer.name in spans]
    steps = _steps(held)
    peak_at, peak = max(steps, key=lambda step: step[1], default=(0, 0))
    return Occupancy(
        level=level,
        peak=peak,
        peak_at=peak_at,
        capacity=machine.capacity(level.partition("[")[0]),
        declared=sum(buffer.size for buffer in buffers),
        holders=tuple(item for item in held if item.start <= peak_at < item.end),
        held=tuple(held),
        steps=steps,
    )


def _steps(held: list[Held]) -> tuple[tuple[int, int], ...]:
    """How many bytes are in use from which cycle on."""
    steps: list[tuple[int, int]] = []
    level = 0
    for cycle, begun, ended in changes((item.buffer.size, item.start, item.end) for item in held):
        level += sum(begun) - sum(ended)
        steps.append((cycle, level))
    return tuple(steps)
