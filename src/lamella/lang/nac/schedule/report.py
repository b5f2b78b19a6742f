"""What a memory schedule does for a program, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lamella.lang.nac.check.memory.peak import Peak, peak_bytes
from lamella.lang.nac.nodes import Action, File

_NAMED: frozenset[int] = frozenset(Action)


@dataclass(frozen=True, slots=True)
class ScheduleReport:
    """The memory that a program needs with and without its schedule, and the commands by action.

    `distances` counts, by ticks, how far PRELOADs stand before their loads.
    """

    peak: Peak
    unscheduled: int
    commands: Mapping[Action, int]
    distances: Mapping[int, int]

    @property
    def nearest(self) -> int:
        """The shortest way from a PRELOAD to its load, 0 without any."""
        return min(self.distances, default=0)

    @property
    def farthest(self) -> int:
        """The longest way from a PRELOAD to its load, 0 without any."""
        return max(self.distances, default=0)

    @property
    def mean(self) -> float:
        """The mean way from a PRELOAD to its load, 0 without any."""
        count = sum(self.distances.values())
        return sum(ticks * times for ticks, times in self.distances.items()) / count if count else 0.0

    def lines(self) -> Iterator[str]:
        """The report for a person."""
        saved = self.unscheduled - self.peak.bytes
        part = f" ({saved / self.unscheduled:.0%} less)" if saved > 0 else ""
        yield f"peak memory: {self.peak.bytes} bytes at tick {self.peak.tick}"
        yield f"without the schedule: {self.unscheduled} bytes{part}"
        yield "commands: " + (", ".join(self._counted()) or "none")
        if self.distances:
            span = f"{self.nearest} to {self.farthest} ticks"
            yield f"preloaded {span} before the load, {self.mean:.1f} on average"

    def _counted(self) -> Iterator[str]:
        return (f"{count} {action.name}" for action, count in sorted(self.commands.items()))


def describe_schedule(file: File, sizes: Mapping[int, int]) -> ScheduleReport:
    """Follow a schedule, where the result of each instruction has a size in bytes; unknown actions do nothing."""
    commands: Counter[Action] = Counter()
    distances: Counter[int] = Counter()
    for tick in file.schedule:
        commands.update(Action(item.action) for item in tick.commands if item.action in _NAMED)
        preloads = (item.target for item in tick.commands if item.action == Action.PRELOAD)
        distances.update(target - tick.index for target in preloads)
    unscheduled = peak_bytes(replace(file, schedule=()), sizes).bytes
    return ScheduleReport(peak_bytes(file, sizes), unscheduled, commands, distances)
