"""Where the time of a run goes: by launch, and by operation for what is not launched."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from lamella.graph.nodes import Operation
from lamella.kernels.launches import LaunchTime

T = TypeVar("T")


class LaunchProfile:
    """Progress of a run that keeps the time of each launch, and of each step that launches nothing by a list."""

    def __init__(self) -> None:
        self.times: list[LaunchTime] = []

    def __call__(self, items: Iterable[T], total: int, /) -> Iterator[T]:
        """The items as they come, each timed until the next one is asked for, unless it told its launches."""
        for item in items:
            before, start = len(self.times), time.perf_counter()
            yield item
            if len(self.times) == before:
                self.times.append(_time_of(item, time.perf_counter() - start))

    def record(self, launch: LaunchTime, /) -> None:
        """A launch of the step that runs now took its time."""
        self.times.append(launch)


def _time_of(step: object, seconds: float) -> LaunchTime:
    if isinstance(step, Operation):
        return LaunchTime(step.operator, "", seconds, origin=step.origin)
    return LaunchTime(type(step).__name__.lower(), "", seconds)
