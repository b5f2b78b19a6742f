"""All matches of a pattern in time that grows with the text alone, whatever the pattern.

The states of the automaton are ordered lists of threads, made when they are first needed. A match may end long before
the automaton knows it; what was read in vain is remembered by state and place, and no later match reads it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamella.backend.tisa.patterns.nodes import PatternError
from lamella.backend.tisa.patterns.program import ACCEPT, BEGIN, FORK, LOOK, TAKE, Program
from lamella.backend.tisa.patterns.sets import Chars

Found = tuple[int, int, int]
"""Start, end and the number of the rule."""

AT_END = -1
NOTHING = -1
SHORT = 16
"""Characters read in vain that are not worth remembering."""
MOST_STATES = 10_000
_WIDTH = 2 * MOST_STATES
MOST_VAIN = 4_000_000
"""Places and states that are remembered as read in vain."""
FREE_WORK, WORK_EACH = 2_000_000, 400
"""Steps that building states may take for any text, and for each character of it."""


class _Classes(dict[str, int]):
    """Characters by the sets that hold them: those of one class are alike to the pattern."""

    def __init__(self, sets: Sequence[Chars]) -> None:
        super().__init__()
        self.sets = sets
        self.members: dict[tuple[int, ...], int] = {}

    def __missing__(self, character: str) -> int:
        held = tuple(place for place, chars in enumerate(self.sets) if character in chars)
        number = self.members.setdefault(held, len(self.members))
        self[character] = number
        return number


class Automaton:
    """A program, and the states that it has needed so far."""

    def __init__(self, program: Program) -> None:
        self._steps = program.steps
        self._classes = _Classes(list(program.sets))
        self._cores: dict[tuple[int, ...], int] = {}
        self._threads: list[tuple[int, ...]] = []
        self._moves: list[dict[int, tuple[int, int]]] = []
        self._dead = self._state(())
        self._starts = self._state((1, program.start)), self._state((0, program.start))
        self._work = 0

    def find(self, text: str) -> list[Found]:
        """The matches from left to right that take a character at least, none within another."""
        classes = [self._classes[item] for item in text]
        self._work = FREE_WORK + WORK_EACH * len(text)
        found: list[Found] = []
        vain: set[int] = set()
        position = 0
        while position < len(classes):
            end, rule = self._match(classes, position, vain)
            if end > position:
                found.append((position, end, rule))
            position = max(end, position + 1)
        return found

    def _match(self, classes: list[int], start: int, vain: set[int]) -> tuple[int, int]:
        """Where the match at a place ends, and its rule."""
        end, rule, position = start, NOTHING, start
        state = self._starts[start > 0]
        trail: list[int] = []
        while state != self._dead and (mark := position * _WIDTH + state) not in vain:
            trail.append(mark)
            at_end = position == len(classes)
            accepted, state = self._move(state, AT_END if at_end else classes[position])
            if accepted != NOTHING:
                end, rule, trail = position, accepted, []
            if at_end:
                break
            position += 1
        if len(trail) > SHORT:
            vain.update(trail)
            if len(vain) > MOST_VAIN:
                raise PatternError("reads too far ahead in this text")
        return end, rule

    def _move(self, state: int, kind: int) -> tuple[int, int]:
        """What is accepted before a character of a class, and the state behind it."""
        known = self._moves[state].get(kind)
        if known is None:
            known = self._moves[state][kind] = self._compute(self._threads[state], kind)
        return known

    def _compute(self, core: tuple[int, ...], kind: int) -> tuple[int, int]:
        held = frozenset(next((key for key, number in self._classes.members.items() if number == kind), ()))
        begin, stack = bool(core[0]), list(reversed(core[1:]))
        seen: set[int] = set()
        after: dict[int, None] = {}
        accepted = NOTHING
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            step = self._steps[number]
            if step.kind == ACCEPT:
                accepted = step.first
                break
            if step.kind == TAKE:
                if kind != AT_END and step.chars in held:
                    after[step.first] = None
            elif step.kind == FORK:
                stack += (step.second, step.first)
            elif self._holds(step.kind, begin, step.end if kind == AT_END else step.chars in held):
                stack.append(step.first)
        self._spend(len(seen))
        return accepted, self._state((0, *after) if after else ())

    @staticmethod
    def _holds(kind: int, begin: bool, looked: bool) -> bool:
        return begin if kind == BEGIN else kind == LOOK and looked

    def _spend(self, steps: int) -> None:
        self._work -= steps
        if self._work < 0 or len(self._threads) > MOST_STATES:
            raise PatternError("needs more states for this text than are made")

    def _state(self, core: tuple[int, ...]) -> int:
        """The number of a state: whether the text begins here, and its threads in order."""
        number = self._cores.setdefault(core, len(self._threads))
        if number == len(self._threads):
            self._threads.append(core)
            self._moves.append({})
        return number
