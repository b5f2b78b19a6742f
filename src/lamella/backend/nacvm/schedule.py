"""The memory schedule followed before the run: what each tick drops and preloads, and which results come too late.

Which result is there at which instruction depends on the schedule alone, so the run itself tests nothing. A result
that is neither saved nor forwarded stays until it is freed, as all do in a file without a schedule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lamella.backend.formula.tape import Slots, SlotStep
from lamella.backend.nacvm.preload import ParameterLoad, WeightReader
from lamella.lang.nac.check.memory.flow import UseRanges, is_load, read_flow
from lamella.lang.nac.check.memory.schedule import LAST_TICK
from lamella.lang.nac.nodes import INPUT, OUTPUT, Action, Command, File

DROP, PRELOAD = "drop", "preload"
NEVER_USED = "is used by nobody"


class MemoryMove(NamedTuple):
    """What a tick does to memory: it drops a result, or begins to preload one."""

    kind: str
    target: int


class MissingArgument(NamedTuple):
    """An argument of an instruction whose result is gone by then, and why."""

    argument: int
    source: int
    reason: str


@dataclass(slots=True)
class MemoryPlan:
    """For each instruction what its tick does, the first argument that is missing, and what it asks of memory."""

    moves: list[list[MemoryMove]] = field(default_factory=list)
    missing: dict[int, MissingArgument] = field(default_factory=dict)
    preloaded: set[int] = field(default_factory=set)
    alive: list[int] = field(default_factory=list)
    """The bytes that are alive while an instruction gives its result, by the sizes of results."""


def follow(file: File, sizes: Mapping[int, int], count: int) -> MemoryPlan:
    """Follow the schedule of the first instructions of a file, whose results have these sizes in bytes."""
    memory = _ScheduledMemory(file, read_flow(file.instructions[:count]), sizes)
    commands: Mapping[int, Sequence[Command]] = {tick.index: tick.commands for tick in file.schedule}
    for index in range(count):
        memory.execute(index)
        memory.plan.moves.append([])
        if file.schedule:
            memory.obey(index, commands.get(index, ()))
    return memory.plan


@dataclass(slots=True)
class _ScheduledMemory:
    """What is there while the schedule is followed."""

    file: File
    flow: UseRanges
    sizes: Mapping[int, int]
    plan: MemoryPlan = field(default_factory=MemoryPlan)
    alive: set[int] = field(default_factory=set)
    bytes: int = 0
    saved: set[int] = field(default_factory=set)
    forwarded: dict[int, int] = field(default_factory=dict)
    arriving: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    gone: dict[int, str] = field(default_factory=dict)

    def execute(self, index: int) -> None:
        """Look for the arguments of an instruction and make room for its result."""
        for argument, offset in enumerate(self.file.instructions[index].offsets):
            reason = self._reason(index, index + offset) if offset < 0 else None
            if reason is not None and index not in self.plan.missing:
                self.plan.missing[index] = MissingArgument(argument, index + offset, reason)
        self._begin(index)
        self.plan.alive.append(self.bytes)

    def _reason(self, index: int, source: int) -> str | None:
        """Why a result is not there for an instruction; None where it is."""
        if source in self.gone:
            return self.gone[source]
        if source in self.saved or self._stays(source) or not self.file.schedule:
            return None
        target = self.forwarded.get(source, index)
        return None if target == index else f"is forwarded to instruction {target}"

    def _stays(self, index: int) -> bool:
        """Whether a result is kept without a command: inputs are, and what no tick can name."""
        return self.file.instructions[index].operation == INPUT or index > LAST_TICK

    def obey(self, index: int, commands: Sequence[Command]) -> None:
        """What was forwarded here ends, then the commands; a result that nobody uses ends with its tick."""
        for source in self.arriving.pop(index, ()):
            if source not in self.saved:
                self._end(source, index, f"was forwarded to instruction {index}")
        for command in commands:
            self._obey(index, command)
        if index not in self.saved and self.flow.last[index] < 0:
            self._end(index, index, NEVER_USED)

    def _obey(self, index: int, command: Command) -> None:
        target = command.target
        if command.action in (Action.SAVE_RESULT, Action.SAVE_FOR_GRAD):
            self.saved.add(index)
        elif command.action == Action.FORWARD and target > index:
            self.forwarded[index] = target
            self.arriving[target].append(index)
        elif command.action == Action.FREE and target <= index:
            self._end(target, index, f"was freed at tick {index}")
        elif command.action == Action.PRELOAD and self._is_ahead(index, target):
            self.plan.preloaded.add(target)
            self.plan.moves[index].append(MemoryMove(PRELOAD, target))
            self._begin(target)

    def _is_ahead(self, index: int, target: int) -> bool:
        """Whether a preload is the first of a load that is still to come."""
        known = index < target < len(self.flow.last) and target not in self.plan.preloaded
        return known and is_load(self.file.instructions[target])

    def _begin(self, index: int) -> None:
        if index not in self.alive:
            self.alive.add(index)
            self.bytes += self.sizes.get(index, 0)

    def _end(self, index: int, tick: int, reason: str) -> None:
        if index in self.alive and self.file.instructions[index].operation != OUTPUT:
            self.alive.remove(index)
            self.bytes -= self.sizes.get(index, 0)
            self.gone[index] = reason
            self.plan.moves[tick].append(MemoryMove(DROP, index))


# --- the ticks of the schedule as steps of the run: count the live bytes, drop, preload ----------------------


NOTED: Mapping[int, str] = {
    Action.SAVE_RESULT: "save",
    Action.SAVE_FOR_GRAD: "save",
    Action.FREE: "free",
    Action.FORWARD: "forward",
}


@dataclass(slots=True)
class ByteAccount:
    """The bytes of the results that are held now, and the most of the call."""

    now: int = 0
    most: int = 0

    def add(self, size: int) -> None:
        """Hold more."""
        self.now += size
        if self.now > self.most:
            self.most = self.now


@dataclass(slots=True)
class Ticks:
    """Makes the steps that follow instructions; results made since the last of them are counted with the next."""

    plan: MemoryPlan
    sizes: Mapping[int, int]
    tuples: frozenset[int]
    account: ByteAccount
    reader: WeightReader
    loads: Mapping[int, ParameterLoad]
    owners: Collection[int] = ()
    """Instructions whose results come where their blocks join."""
    made: list[int] = field(default_factory=list)

    def follow(self, index: int) -> list[SlotStep]:
        """What the tick of an instruction does; nothing where it only keeps results."""
        if self.sizes.get(index) and index not in self.plan.preloaded and index not in self.owners:
            self.made.append(index)
        moves = self.plan.moves[index]
        if not moves:
            return []
        made, self.made = tuple(self.made), []
        named = {*made, *(move.target for move in moves)}
        if (
            not self.owners
            and all(move.kind == DROP and self.sizes.get(move.target) for move in moves)
            and not (named & self.tuples)
        ):
            return [_drop(made, tuple(move.target for move in moves), self.account)]
        return [self._obey(index, made, moves)]

    def _obey(self, index: int, made: Sequence[int], moves: Sequence[MemoryMove]) -> SlotStep:
        """A tick of any commands, in their order."""
        account, reader, fixed, counted = self.account, self.reader, tuple(moves), tuple(made)
        loads, sizes = self.loads, self.sizes

        def step(slots: Slots) -> None:
            account.add(sum(held_bytes(slots[place]) for place in counted))
            for kind, target in fixed:
                if kind == DROP:
                    account.now -= held_bytes(slots[target]) if target in sizes else 0
                    slots[target] = None
                else:
                    account.add(sizes.get(target, 0))
                    reader.start(loads[target], index)

        return step

    def flush(self) -> list[SlotStep]:
        """Count what was made so far: what follows may not run."""
        made, self.made = tuple(self.made), []
        account = self.account

        def step(slots: Slots) -> None:
            account.add(sum(held_bytes(slots[place]) for place in made))

        return [step] if made else []

    def join(self, index: int) -> None:
        """The result of an instruction is there, now that its blocks are over."""
        if self.sizes.get(index):
            self.made.append(index)

    def note(self, index: int, commands: Iterable[Command]) -> list[SlotStep]:
        """A step that tells the trace what the commands of a tick do."""
        noted = tuple((NOTED[item.action], item.target) for item in commands if item.action in NOTED)
        reader = self.reader

        def step(slots: Slots) -> None:
            for kind, target in noted:
                reader.note(kind, index, target)

        return [step] if noted else []

    def count_rest(self, slots: Slots) -> None:
        """Count the results that no tick came after."""
        self.account.add(sum(held_bytes(slots[place]) for place in self.made))


def _drop(made: tuple[int, ...], targets: tuple[int, ...], account: ByteAccount) -> SlotStep:
    """A tick that drops arrays: the usual one, and so without detours."""
    if len(made) == 1 and len(targets) == 1:
        return _drop_one(made[0], targets[0], account)

    def step(slots: Slots) -> None:
        now = account.now
        for place in made:
            now += slots[place].nbytes
        if now > account.most:
            account.most = now
        for place in targets:
            now -= slots[place].nbytes
            slots[place] = None
        account.now = now

    return step


def _drop_one(made: int, target: int, account: ByteAccount) -> SlotStep:
    def step(slots: Slots) -> None:
        now = account.now + slots[made].nbytes
        if now > account.most:
            account.most = now
        account.now = now - slots[target].nbytes
        slots[target] = None

    return step


def held_bytes(held: object) -> int:
    """The bytes of an array, or of all arrays of a tuple."""
    if isinstance(held, tuple):
        return sum(held_bytes(item) for item in held)
    return held.nbytes if isinstance(held, np.ndarray) else 0
