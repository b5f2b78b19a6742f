"""The ticks of the schedule as steps of the run: they count the bytes that are really held, drop and preload."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lamella.backend.formula.tape import Slots, SlotStep
from lamella.backend.nacvm.preload import ParameterLoad, WeightReader
from lamella.backend.nacvm.schedule import DROP, MemoryMove, MemoryPlan
from lamella.lang.nac.nodes import Action, Command

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
        told = tuple((NOTED[item.action], item.target) for item in commands if item.action in NOTED)
        reader = self.reader

        def step(slots: Slots) -> None:
            for kind, target in told:
                reader.note(kind, index, target)

        return [step] if told else []

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
