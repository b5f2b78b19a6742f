"""The program under construction: moves and computations on byte ranges, with their dependences derived.

A generator appends steps in the order in which they may be issued and says which bytes each one touches. The order that
the hazard rules ask for is derived here: a step waits for every earlier one with which it shares bytes, one of them
writing, unless a chain of tokens, a `wait` or the join of a loop already orders the two. So a generator cannot forget a
dependence; the checker proves the same once more on the text.

Between iterations of a loop nothing is derived: rings have as many slots as iterations are in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lamella.lang.nem.resolved import AttributeValue, TensorType

OWN = "<"
"""How the names of our own buffers begin, which no program can use; the text gives them others."""
L1_BUFFER = f"{OWN}l1_"
L2_BUFFER = f"{OWN}l2"


def l1_buffer(engine: int) -> str:
    """The arena of an engine."""
    return f"{L1_BUFFER}{engine}"


@dataclass(frozen=True, slots=True)
class AffineAddress:
    """`start + step · i + slot · (i mod slots)` bytes in iteration i; `name` is a constant that equals `named`."""

    start: int
    step: int = 0
    slot: int = 0
    slots: int = 1
    name: str = ""
    named: int = 0

    def bounds(self, trips: int) -> tuple[int, int]:
        """The smallest and the largest offset over all iterations."""
        reach = self.step * (trips - 1)
        return self.start + min(0, reach), self.start + max(0, reach) + self.slot * (
            min(self.slots, trips) - 1
        )

    def moves_like(self, other: AffineAddress) -> bool:
        """Whether the distance of two offsets is the same in every iteration."""
        ring = (self.slot, self.slots) if self.slot else (0, 1)
        theirs = (other.slot, other.slots) if other.slot else (0, 1)
        return self.step == other.step and ring == theirs


@dataclass(frozen=True, slots=True)
class Bytes:
    """A range of a buffer that a step touches, typed where it computes on it; with a name it is declared."""

    buffer: str
    place: AffineAddress
    extent: int
    type: TensorType | None = None
    name: str = ""


@dataclass(slots=True, eq=False)
class Step:
    """One task: its opcode, the bytes it touches, and what the text says beside it."""

    opcode: str
    inputs: tuple[Bytes, ...]
    outputs: tuple[Bytes, ...]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    label: str = ""
    comments: tuple[str, ...] = ()
    number: int = -1
    deps: list[Step] = field(default_factory=list)
    awaited: bool = False
    sequencer: int = 0
    unit: str = ""
    """The unit that runs it, where that is not the default one."""
    turn: int = 0
    """The instance of that unit; in a loop the iterations take turns."""
    turns: int = 1
    after: list[Step] = field(default_factory=list)
    """Steps that it waits for beside those whose bytes it shares."""
    origin: int = -1
    """The number of the task of the selected plan that it computes or moves data for."""

    @property
    def engine(self) -> int:
        """The engine whose L1 it touches; moves between DDR and L2 count for their sequencer."""
        touched = (item.buffer for item in (*self.inputs, *self.outputs))
        return next(
            (int(name[len(L1_BUFFER) :]) for name in touched if name.startswith(L1_BUFFER)), self.sequencer
        )

    @property
    def on_l1(self) -> bool:
        """Whether it touches L1."""
        return any(item.buffer.startswith(L1_BUFFER) for item in (*self.inputs, *self.outputs))


@dataclass(slots=True, eq=False)
class Repeat:
    """A loop over `trips` iterations, at most `window` in flight."""

    trips: int
    window: int
    body: list[Step]
    comments: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Barrier:
    """A `wait`: frees the tokens of tasks whose later users stand behind it."""

    steps: list[Step]


@dataclass(slots=True, eq=False)
class Settle:
    """The end of a group of steps: what follows waits for all of them, so that their tokens are free."""

    steps: list[Step]


Line: TypeAlias = Step | Repeat | Barrier
Draft: TypeAlias = Step | Repeat | Settle


# --- dependences ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Access:
    low: int
    high: int
    write: bool
    step: Step


class _Deriver:
    """Walks a program in order; `closed` are bit sets of the steps that are complete when a step is."""

    def __init__(self) -> None:
        self.touched: dict[str, list[_Access]] = {}
        self.closed: dict[int, int] = {}
        self.gate = 0
        self.count = 0

    def take(self, line: Draft) -> None:
        """Derive the dependences of the next line."""
        if isinstance(line, Settle):
            line.steps = self._last(line.steps)
            for step in line.steps:
                self.gate |= self.closed[step.number]
            return
        if isinstance(line, Step):
            self._number(line)
            self._depend(line, [*self._conflicts(line, 1), *line.after])
            self._record(line)
            return
        for step in line.body:
            self._number(step)
        for position, step in enumerate(line.body):
            inner = [other for other in line.body[:position] if _meet_in_iteration(other, step, line.trips)]
            self._depend(step, [*self._conflicts(step, line.trips), *inner])
        for step in line.body:
            self.gate |= self.closed.pop(step.number)

    def _last(self, steps: Sequence[Step]) -> list[Step]:
        """The steps after which all are complete."""
        found: list[Step] = []
        covered = self.gate
        for step in sorted(steps, key=lambda item: -item.number):
            if not covered >> step.number & 1:
                found.append(step)
                covered |= self.closed[step.number]
        return found[::-1]

    def _number(self, step: Step) -> None:
        step.number = self.count
        self.count += 1

    def _conflicts(self, step: Step, trips: int) -> list[Step]:
        found: dict[int, Step] = {}
        for access in _accesses(step, trips):
            kept = self.touched.get(access[0], [])
            kept[:] = [item for item in kept if not self.gate >> item.step.number & 1]
            for item in kept:
                if item.low < access[2] and access[1] < item.high and (item.write or access[3]):
                    found[item.step.number] = item.step
        return list(found.values())

    def _depend(self, step: Step, others: Sequence[Step]) -> None:
        """Keep the dependences that no other one implies: later steps first, for they close over earlier ones."""
        covered = self.gate
        for other in sorted(others, key=lambda item: -item.number):
            if not covered >> other.number & 1:
                step.deps.append(other)
                covered |= self.closed[other.number]
        step.deps.sort(key=lambda item: item.number)
        self.closed[step.number] = covered | 1 << step.number

    def _record(self, step: Step) -> None:
        for buffer, low, high, write in _accesses(step, 1):
            kept = self.touched.setdefault(buffer, [])
            if write:
                kept[:] = [item for item in kept if not (low <= item.low and item.high <= high)]
            kept.append(_Access(low, high, write, step))


def _accesses(step: Step, trips: int) -> Iterator[tuple[str, int, int, bool]]:
    for write, ranges in ((False, step.inputs), (True, step.outputs)):
        for item in ranges:
            low, high = item.place.bounds(trips)
            yield item.buffer, low, high + item.extent, write


def _meet_in_iteration(early: Step, late: Step, trips: int) -> bool:
    """Whether two steps of a loop body touch common bytes in one iteration, one of them writing."""
    for one, first in (*((item, False) for item in early.inputs), *((item, True) for item in early.outputs)):
        for two, second in (
            *((item, False) for item in late.inputs),
            *((item, True) for item in late.outputs),
        ):
            if one.buffer == two.buffer and (first or second) and _overlap(one, two, trips):
                return True
    return False


def _overlap(one: Bytes, two: Bytes, trips: int) -> bool:
    if one.place.moves_like(two.place):
        return (
            one.place.start < two.place.start + two.extent and two.place.start < one.place.start + one.extent
        )
    low, high = one.place.bounds(trips)
    other_low, other_high = two.place.bounds(trips)
    return low < other_high + two.extent and other_low < high + one.extent


# --- tokens ---------------------------------------------------------------------------------------------------


def order(lines: Sequence[Draft], tokens: int) -> list[Line]:
    """Lines with their dependences, and with waits where more than `tokens` tokens of an engine would be live."""
    deriver = _Deriver()
    for line in lines:
        deriver.take(line)
    uses = _uses(lines)
    found: list[Line] = []
    live: dict[int, dict[int, Step]] = {}
    for position, line in enumerate(lines):
        for own in live.values():
            for number in [number for number in own if uses[number] < position]:
                del own[number]
        if isinstance(line, Repeat):
            _narrow(line, tokens, {engine: len(own) for engine, own in live.items()}, uses)
        demand = _demand(line, uses)
        waited: list[Step] = []
        for engine, own in live.items():
            room = max(0, tokens - demand.get(engine, 0))
            if len(own) > room:
                # Those that are asked for soonest are nearly complete: to wait for them costs the least.
                soonest = sorted(own.values(), key=lambda step: (uses[step.number], step.number))
                waited += soonest[: len(own) - room]
        if waited:
            found.append(Barrier(waited))
            _forget(lines[position : 1 + max(uses[step.number] for step in waited)], waited)
            for step in waited:
                del live[step.engine][step.number]
        if isinstance(line, Settle):
            found += [Barrier(line.steps)] if line.steps else []
            continue
        if isinstance(line, Step) and uses.get(line.number, -1) > position:
            live.setdefault(line.engine, {})[line.number] = line
        found.append(line)
    _mark_awaited(found)
    return found


LEAST_WINDOW = 3
"""Iterations in flight that a loop keeps, however few tokens others leave it; of all that there are it has no more."""


def _narrow(line: Repeat, tokens: int, taken: Mapping[int, int], uses: Mapping[int, int]) -> None:
    """Let a loop have fewer iterations in flight where their tokens would have to be waited for.

    What holds the other tokens may be weights of much later stages, which take far longer than the loop.
    """
    demand = _demand(line, uses)
    for engine, count in demand.items():
        each = count // max(1, min(line.window, line.trips))
        room = tokens - taken.get(engine, 0)
        if count > room and each:
            least = min(LEAST_WINDOW, max(1, tokens // each))
            line.window = min(line.window, max(least, room // each))


def steps_of(line: Draft | Line) -> list[Step]:
    """The steps of a line."""
    if isinstance(line, Step):
        return [line]
    return line.body if isinstance(line, Repeat) else []


def _uses(lines: Sequence[Draft]) -> dict[int, int]:
    """The position of the last line that waits for each step."""
    found: dict[int, int] = {}
    for position, line in enumerate(lines):
        awaited = [other for step in steps_of(line) for other in step.deps]
        for other in line.steps if isinstance(line, Settle) else awaited:
            found[other.number] = max(position, found.get(other.number, -1))
    return found


def _demand(line: Draft, uses: Mapping[int, int]) -> dict[int, int]:
    """Tokens that a line adds on each engine: its own, or those of the iterations in flight."""
    if isinstance(line, Step):
        return {line.engine: 1} if line.number in uses else {}
    if isinstance(line, Settle):
        return {}
    begun = {step.number: position for position, step in enumerate(line.body)}
    ends = {
        other.number: position
        for position, step in enumerate(line.body)
        for other in step.deps
        if other.number in begun
    }
    found: dict[int, int] = {}
    for position in range(len(line.body)):
        alive = Counter(
            line.body[begun[number]].engine
            for number, end in ends.items()
            if begun[number] <= position <= end
        )
        for engine, count in alive.items():
            found[engine] = max(found.get(engine, 0), count * min(line.window, line.trips))
    return found


def _forget(lines: Sequence[Draft], waited: Sequence[Step]) -> None:
    numbers = {step.number for step in waited}
    for line in lines:
        if isinstance(line, Settle):
            line.steps = [step for step in line.steps if step.number not in numbers]
        for step in steps_of(line):
            step.deps = [other for other in step.deps if other.number not in numbers]


def _mark_awaited(lines: Sequence[Line]) -> None:
    for line in lines:
        awaited = [other for step in steps_of(line) for other in step.deps]
        for other in line.steps if isinstance(line, Barrier) else awaited:
            other.awaited = True
