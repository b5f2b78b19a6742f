"""The memory schedule that we write: who is saved, forwarded, preloaded and freed at which tick."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from lamella.lang.nac.check.memory.flow import UseRanges, is_load, read_flow
from lamella.lang.nac.check.memory.peak import PeakMemory, peak_bytes
from lamella.lang.nac.check.memory.schedule import LAST_TICK
from lamella.lang.nac.nodes import INPUT, Action, Command, File, Tick
from lamella.lang.nac.regions import InstructionBlock

# --- A complete memory schedule, as version 1.6 words it: no FREE and no PRELOAD is lost --------------------


# --- how early a weight may be preloaded: as long as the program needs no more memory for it than -----------


class LiveRanges:
    """When results are alive, in moments: each tick has one while it executes and one after its commands."""

    __slots__ = ("begin", "end")

    def __init__(self, count: int) -> None:
        self.begin = [self.executing(index) for index in range(count)]
        self.end = [2 * count] * count

    @staticmethod
    def executing(tick: int) -> int:
        """The moment at which an instruction has made its result."""
        return 2 * tick

    @staticmethod
    def settled(tick: int) -> int:
        """The moment after the commands of a tick."""
        return 2 * tick + 1


class LiveBytes:
    """The bytes that are alive at each moment."""

    __slots__ = ("alive", "most", "sizes")

    def __init__(self, sizes: Mapping[int, int], lives: LiveRanges) -> None:
        changes = [0] * (2 * len(lives.begin) + 1)
        for index, (begin, end) in enumerate(zip(lives.begin, lives.end, strict=True)):
            size = sizes.get(index, 0)
            changes[begin] += size
            changes[end] -= size
        self.alive = list(accumulate(changes))
        self.most = max(self.alive)
        self.sizes = sizes

    def advance(self, run: range, window: Sequence[int]) -> int:
        """Preload a run of loads as early as the memory allows; the tick, which is one of `window`, nearest first."""
        size = sum(self.sizes.get(load, 0) for load in run)
        chosen = window[0]
        for tick in window[1:]:
            between = range(LiveRanges.settled(tick), LiveRanges.settled(chosen))
            if any(self.alive[moment] + size > self.most for moment in between):
                break
            for moment in between:
                self.alive[moment] += size
            chosen = tick
        return chosen


MOST_COMMANDS = 255
"""Commands that one tick can hold."""
_STEPS, _COMPUTING = 12, 3
"""How far a PRELOAD stands before its loads: ticks in all, and ticks that compute."""


def plan_memory(file: File, sizes: Mapping[int, int] | None = None) -> tuple[Tick, ...]:
    """The schedule of a checked program; none where a tick cannot name every instruction.

    `sizes` are the bytes of results by instruction. Where they are not given those of the weights in the file count.
    """
    if len(file.instructions) > LAST_TICK + 1:
        return ()
    program = _ScheduledProgram(
        file, read_flow(file.instructions), [is_load(item) for item in file.instructions]
    )
    plan = _CommandPlan()
    program.keep(plan)
    program.free(plan)
    program.preload(plan, LiveBytes(stored_sizes(file) if sizes is None else sizes, program.lives(plan)))
    return plan.ticks()


def stored_sizes(file: File) -> dict[int, int]:
    """The bytes of the weights that stand in a file itself, by the instructions that load them."""
    stored = {item.parameter: len(item.data) for item in file.tensors}
    loads = ((index, item) for index, item in enumerate(file.instructions) if is_load(item))
    named = ((index, number) for index, item in loads for number in item.constants[:1])
    return {index: stored[number] for index, number in named if number in stored}


@dataclass(frozen=True, slots=True)
class _CommandPlan:
    """The commands so far, by tick; `kept` has the one that says where a tick's own result goes."""

    kept: dict[int, Command] = field(default_factory=dict)
    freed: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    preloaded: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def room(self, tick: int) -> int:
        """How many commands a tick still takes."""
        return MOST_COMMANDS - (tick in self.kept) - len(self.freed[tick]) - len(self.preloaded[tick])

    def ticks(self) -> tuple[Tick, ...]:
        """The records of the section."""
        used = {*self.kept, *self.freed, *self.preloaded}
        found = ((tick, tuple(self._commands(tick))) for tick in sorted(used))
        return tuple(Tick(tick, commands) for tick, commands in found if commands)

    def _commands(self, tick: int) -> Iterator[Command]:
        """In the order FORWARD, FREE, SAVE_RESULT, PRELOAD, targets ascending."""
        kept = self.kept.get(tick)
        if kept is not None and kept.action == Action.FORWARD:
            yield kept
        yield from (Command(Action.FREE, target) for target in sorted(self.freed[tick]))
        if kept is not None and kept.action == Action.SAVE_RESULT:
            yield kept
        yield from (Command(Action.PRELOAD, target) for target in sorted(self.preloaded[tick]))


class _Waiting:
    """Results that wait for a FREE: those from before a block wait behind it, since it may not run."""

    def __init__(self) -> None:
        self.open: list[InstructionBlock] = []
        self.starts: list[int] = [0]
        self.results: list[list[int]] = [[]]

    def enter(self, block: InstructionBlock | None) -> None:
        """Come to an instruction of a block: others end before it, and it may begin."""
        while self.open and self.open[-1] is not block and not _holds(self.open[-1], block):
            self.open.pop()
            self.starts.pop()
            left = self.results.pop()
            self.results[-1] += left
        if block is not None and (not self.open or self.open[-1] is not block):
            self.open.append(block)
            self.starts.append(block.start)
            self.results.append([])

    def add(self, found: Sequence[int]) -> None:
        """Results that are free from now on, each in the block that it belongs to."""
        for index in found:
            self.results[bisect_right(self.starts, index) - 1].append(index)

    def take(self, room: int) -> list[int]:
        """As many as there is room for."""
        waiting = self.results[-1]
        found, self.results[-1] = waiting[:room], waiting[room:]
        return found


def _holds(outer: InstructionBlock, inner: InstructionBlock | None) -> bool:
    return inner is not None and outer.start <= inner.start and inner.stop <= outer.stop


@dataclass(frozen=True, slots=True)
class _ScheduledProgram:
    """A program and who uses what in it."""

    file: File
    flow: UseRanges
    loads: Sequence[bool]
    """Whether an instruction loads a parameter."""

    def keep(self, plan: _CommandPlan) -> None:
        """FORWARD or SAVE_RESULT for each computed result that is used."""
        computing = -1  # the next tick behind this one that does not load
        for index in reversed(range(len(self.loads))):
            user = self.flow.last[index]
            if user >= 0 and self.file.instructions[index].operation != INPUT:
                alone = user == self.flow.first[index] == computing and index not in self.flow.outputs
                action, target = (Action.FORWARD, user) if alone else (Action.SAVE_RESULT, index)
                plan.kept[index] = Command(action, target)
            computing = computing if self.loads[index] else index

    def free(self, plan: _CommandPlan) -> None:
        """FREE for all that is saved or loaded and no output, in the order of last uses."""
        due: defaultdict[int, list[int]] = defaultdict(list)
        for index in range(len(self.loads)):
            if self._is_owned(plan, index):
                due[max(index, self.flow.last[index]) + 1].append(index)
        last = max((tick for tick, load in enumerate(self.loads) if not load), default=-1)
        waiting = _Waiting()
        for tick, load in enumerate(self.loads):
            waiting.enter(self.flow.blocks.at(tick))
            waiting.add(due[tick])
            if not load or tick > last:
                # One place is for a PRELOAD: a FREE can wait, the first load of a run cannot.
                room = plan.room(tick) - any(self.loads[tick + 1 : tick + 2])
                plan.freed[tick] = waiting.take(room)

    def _is_owned(self, plan: _CommandPlan, index: int) -> bool:
        """Whether the memory of a result is the schedule's to free."""
        kept = plan.kept.get(index)
        saved = kept is not None and kept.action == Action.SAVE_RESULT
        return (saved or self.loads[index]) and index not in self.flow.outputs

    def preload(self, plan: _CommandPlan, memory: LiveBytes) -> None:
        """PRELOAD for each run of loads behind the first computing tick."""
        before: dict[int, int] = {}  # by blocks the last tick that carries a PRELOAD
        for run in self._runs():
            block = self.flow.blocks.inside[run.start]
            window = self._window(run.start, before.get(block, -1))
            if not window:
                continue
            chosen = memory.advance(run, window)
            computing = (tick for tick in range(chosen, run.start) if self._computes(tick, run.start))
            before[block] = _place(plan, run, (*computing, *run))

    def _runs(self) -> Iterator[range]:
        """Maximal runs of loads, without one at the very start."""
        start = None
        for tick, load in enumerate((*self.loads, False)):
            if load and start is None:
                start = tick
            elif not load and start is not None:
                if start > 0 and start != self.flow.blocks.start(start):
                    yield range(start, tick)
                start = None

    def _window(self, start: int, before: int) -> list[int]:
        """The computing ticks at which a run can be preloaded, the nearest first."""
        blocks, found = self.flow.blocks, list[int]()
        tick, left = start - 1, _STEPS
        while tick > before and tick >= blocks.start(start) and left and len(found) < _COMPUTING:
            inner = blocks.at(tick)
            if inner is not None and inner.start > blocks.start(start):
                tick = inner.owner  # blocks that are over, and may not have run
                continue
            if not self.loads[tick]:
                found.append(tick)
            tick, left = tick - 1, left - 1
        return found

    def _computes(self, tick: int, load: int) -> bool:
        """Whether a tick computes something whenever a load is executed, and only then."""
        inside = self.flow.blocks.inside
        return not self.loads[tick] and inside[tick] == inside[load]

    def lives(self, plan: _CommandPlan) -> LiveRanges:
        """When each result begins and ends, each run preloaded as late as can be."""
        lives = LiveRanges(len(self.loads))
        for run in self._runs():
            window = self._window(run.start, -1)
            for load in run if window else ():
                lives.begin[load] = LiveRanges.settled(window[0])
        for index, command in plan.kept.items():
            if command.action == Action.FORWARD:
                lives.end[index] = LiveRanges.settled(command.target)
        for tick, targets in plan.freed.items():
            for target in targets:
                lives.end[target] = LiveRanges.settled(tick)
        for index, last in enumerate(self.flow.last):
            if last < 0:
                lives.end[index] = LiveRanges.executing(index + 1)
        return lives


def _place(plan: _CommandPlan, run: range, ticks: Sequence[int]) -> int:
    """Put the PRELOADs of a run at the first of these ticks that have room; the last tick that got one."""
    place = 0
    for load in run:
        while plan.room(ticks[place]) <= 0:
            place += 1
        plan.preloaded[ticks[place]].append(load)
    return ticks[place]


# --- what a memory schedule does for a program, in numbers --------------------------------------------------


_NAMED: frozenset[int] = frozenset(Action)


@dataclass(frozen=True, slots=True)
class ScheduleReport:
    """The memory that a program needs with and without its schedule, and the commands by action.

    `distances` counts, by ticks, how far PRELOADs stand before their loads.
    """

    peak: PeakMemory
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


__all__ = ["ScheduleReport", "describe_schedule", "plan_memory"]
