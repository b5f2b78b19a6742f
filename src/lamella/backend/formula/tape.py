"""Straight-line code of array functions: what an instruction does, as a list of prepared Python callables.

Values live in numbered slots of one list. A tape numbers the values it makes by itself; when it is bound to slots,
values that are not used any more lend their slot to later ones, so that a step holds no more than it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NewType, TypeAlias

from lamella.base.arrays import Array
from lamella.base.records import dataclass

Slots: TypeAlias = list[Any]
"""Arrays, tuples of them and None, by number."""
SlotStep: TypeAlias = Callable[[Slots], None]
Function: TypeAlias = Callable[..., Any]
Register = NewType("Register", int)
SMALL = 1 << 14
"""Bytes of a value that need not be dropped at once."""


@dataclass(frozen=True, slots=True)
class Action:
    """One function with the values it takes and the one it gives."""

    function: Function
    operands: tuple[Register, ...]
    result: Register


@dataclass(slots=True)
class Tape:
    """The actions of one instruction; `given` are values that stand in slots, `literals` those known before."""

    actions: list[Action] = field(default_factory=list)
    given: dict[Register, int] = field(default_factory=dict)
    literals: dict[Register, Array] = field(default_factory=dict)
    views: dict[Register, Register] = field(default_factory=dict)
    """Values that may share the memory of others."""
    transposed: dict[Register, tuple[Register, tuple[int, ...]]] = field(default_factory=dict)
    """Values that are others with their dimensions in another order."""
    finite: set[Register] = field(default_factory=set)
    """Values that must be finite for the tape to be right."""
    largest: int = 0
    """The bytes of the largest value that is made on the way or read."""
    count: int = 0
    _reads: dict[int, Register] = field(default_factory=dict)
    """The values of slots: `given` the other way round, so that a pack of many tensors is read in linear time."""

    def note(self, size: int) -> None:
        """Remember how large a value is."""
        self.largest = max(self.largest, size)

    def read(self, slot: int) -> Register:
        """A value that stands in a slot."""
        found = self._reads.get(slot)
        if found is None:
            found = self._reads[slot] = self._take()
            self.given[found] = slot
        return found

    def literal(self, array: Array) -> Register:
        """A value that is known before the run."""
        found = self._take()
        self.literals[found] = array
        return found

    def do(self, function: Function, *operands: Register) -> Register:
        """Apply a function when the tape runs."""
        found = self._take()
        self.actions.append(Action(function, operands, found))
        return found

    def source(self, register: Register) -> int | None:
        """The slot whose array a value may share memory with."""
        while register in self.views:
            register = self.views[register]
        return self.given.get(register)

    def _take(self) -> Register:
        self.count += 1
        return Register(self.count - 1)


@dataclass(slots=True)
class SlotAllocator:
    """The slots behind those of the results: values known before the run, then places for what comes and goes."""

    template: Slots
    spare: list[int] = field(default_factory=list)
    """Places that every instruction uses again."""

    def keep(self, array: Array) -> int:
        """A slot whose value is there from the start."""
        self.template.append(array)
        return len(self.template) - 1

    def lend(self, taken: set[int]) -> int:
        """A place that is not taken."""
        found = next((slot for slot in self.spare if slot not in taken), None)
        if found is None:
            self.template.append(None)
            found = len(self.template) - 1
            self.spare.append(found)
        taken.add(found)
        return found


def bind(tape: Tape, result: Register | None, slot: int, room: SlotAllocator) -> list[SlotStep]:
    """The steps of a tape that leave one of its values in a slot, and nothing large anywhere else."""
    actions = _needed(tape, result)
    places = dict(tape.given)
    used = {register for action in actions for register in action.operands} | {result}
    places |= {register: room.keep(array) for register, array in tape.literals.items() if register in used}
    last = {register: number for number, action in enumerate(actions) for register in action.operands}
    taken: set[int] = set()
    lent: set[int] = set()
    steps: list[SlotStep] = []
    for number, action in enumerate(actions):
        operands = [places[register] for register in action.operands]
        # An operand that ends here lends its place to the result: it is read before the result is written.
        for register in action.operands:
            if last[register] == number and register != result and places[register] in taken:
                taken.discard(places[register])
        places[action.result] = slot if action.result == result else room.lend(taken)
        lent |= taken
        steps.append(make_step(action.function, operands, places[action.result]))
    if result is not None and (not actions or actions[-1].result != result):
        steps.append(_move(places[result], slot))
    # What is small may wait until the next instruction takes its place.
    return [*steps, clear(sorted(lent))] if lent and tape.largest > SMALL else steps


def _needed(tape: Tape, result: Register | None) -> list[Action]:
    """The actions without those that nothing needs; checks give values that nothing needs, but must be done."""
    wanted = {result}
    found: list[Action] = []
    # Dead-code elimination: backwards, since an action can only be needed by a later one.
    for action in reversed(tape.actions):
        if action.result in wanted or result is None:
            found.append(action)
            wanted.update(action.operands)
    return found[::-1]


def make_step(function: Function, operands: Sequence[int], result: int) -> SlotStep:
    """One call of a function on slots."""
    if len(operands) == 1:
        return _unary(function, operands[0], result)
    if len(operands) == 2:
        return _binary(function, operands[0], operands[1], result)
    places = tuple(operands)

    def step(slots: Slots) -> None:
        slots[result] = function(*[slots[place] for place in places])

    return step


def _unary(function: Function, operand: int, result: int) -> SlotStep:
    def step(slots: Slots) -> None:
        slots[result] = function(slots[operand])

    return step


def _binary(function: Function, left: int, right: int, result: int) -> SlotStep:
    def step(slots: Slots) -> None:
        slots[result] = function(slots[left], slots[right])

    return step


def _move(source: int, target: int) -> SlotStep:
    def step(slots: Slots) -> None:
        slots[target] = slots[source]

    return step


def clear(places: Sequence[int]) -> SlotStep:
    """A step that empties slots."""
    fixed = tuple(places)

    def step(slots: Slots) -> None:
        for place in fixed:
            slots[place] = None

    return step
