"""Where the time of a run goes, by operator: the table behind `run --profile`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

from lamella.backend.watch import Watch

T = TypeVar("T")


@runtime_checkable
class Named(Protocol):
    """A step that calls an operator by its name."""

    operator: str


class Stopwatch:
    """Watches a run and adds up the seconds of its steps."""

    def __init__(self, inner: Watch) -> None:
        self._inner = inner
        self.seconds: dict[str, float] = {}
        """By operator, or by the kind of step."""
        self.counts: dict[str, int] = {}

    def __call__(self, items: Iterable[T], total: int, /) -> Iterator[T]:
        """The items as they come, each timed until the next one is asked for."""
        for item in self._inner(items, total):
            start = time.perf_counter()
            yield item
            self._add(_kind(item), time.perf_counter() - start)

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.counts[name] = self.counts.get(name, 0) + 1

    def to_json(self) -> dict[str, object]:
        """Seconds and counts by operator, the slowest first."""
        return {name: {"seconds": self.seconds[name], "count": self.counts[name]} for name in self._ranked()}

    def lines(self) -> Iterator[str]:
        """The same as a table."""
        whole = sum(self.seconds.values()) or 1.0
        for name in self._ranked():
            part = self.seconds[name]
            yield f"{part * 1000:>10.1f} ms {part / whole:>6.1%}  {self.counts[name]:>6} × {name}"

    def _ranked(self) -> list[str]:
        return sorted(self.seconds, key=lambda name: -self.seconds[name])


def _kind(step: object) -> str:
    """The operator of a step, or what kind of step it is; the tasks of a plan are all of one kind."""
    if isinstance(step, Named):
        return step.operator
    return "task" if isinstance(step, tuple) else type(step).__name__.lower()
