"""Peak memory: the most bytes of live results while a schedule is followed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lamella.lang.nac.check.memory.flow import UseRanges, read_flow
from lamella.lang.nac.nodes import Action, Command, File


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The most bytes that are alive at once, and the first tick at which they are."""

    bytes: int
    tick: int
    held: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """The most bytes that are alive at each tick."""


def peak_bytes(file: File, sizes: Mapping[int, int]) -> PeakMemory:
    """Follow the schedule of a checked file, where the result of each instruction has a size in bytes.

    A result lives from its instruction on, a preloaded parameter from its PRELOAD on. It ends with its FREE, with its
    one user where it was forwarded, and at once where nothing uses or saves it. Commands run in their order, after
    the instruction of their tick. Instructions without a size take no memory.
    """
    commands: dict[int, tuple[Command, ...]] = {tick.index: tick.commands for tick in file.schedule}
    memory = _LiveResults(sizes, read_flow(file.instructions))
    held = []
    for index in range(len(file.instructions)):
        memory.high = memory.now
        memory.execute(index)
        memory.obey(index, commands.get(index, ()))
        held.append(memory.high)
    return PeakMemory(memory.most, memory.tick, tuple(held))


@dataclass(slots=True)
class _LiveResults:
    """What is alive while the schedule is followed."""

    sizes: Mapping[int, int]
    flow: UseRanges
    alive: set[int] = field(default_factory=set)
    arriving: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """For an instruction, the results that are forwarded to it."""
    now: int = 0
    high: int = 0
    """The most at this tick."""
    most: int = 0
    tick: int = 0

    def execute(self, index: int) -> None:
        """Make room for a result, then let go of what was forwarded to its instruction."""
        self.begin(index, index)
        for source in self.arriving.pop(index, ()):
            self.end(source)

    def obey(self, index: int, commands: Iterable[Command]) -> None:
        """The commands of a tick; a result that nobody wants ends with it."""
        wanted = self.flow.last[index] >= 0
        for command in commands:
            wanted = wanted or command.action in (Action.SAVE_RESULT, Action.SAVE_FOR_GRAD)
            if command.action == Action.FREE:
                self.end(command.target)
            elif command.action == Action.PRELOAD:
                self.begin(command.target, index)
            elif command.action == Action.FORWARD:
                self.arriving[command.target].append(index)
        if not wanted:
            self.end(index)

    def begin(self, result: int, tick: int) -> None:
        """Keep a result, unless it is there already."""
        if result not in self.alive:
            self.alive.add(result)
            self.now += self.sizes.get(result, 0)
            self.high = max(self.high, self.now)
        if self.now > self.most:
            self.most, self.tick = self.now, tick

    def end(self, result: int) -> None:
        """Let go of a result, if it is there."""
        if result in self.alive:
            self.alive.remove(result)
            self.now -= self.sizes.get(result, 0)
