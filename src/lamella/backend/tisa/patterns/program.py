"""A tree of a pattern as steps of a machine without a stack: ordered threads, as Thompson ran them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lamella.backend.tisa.patterns.nodes import Begin, Choice, Look, Node, One, PatternError, Repeat, Row
from lamella.backend.tisa.patterns.sets import Chars

MOST_STEPS = 4000
TAKE, FORK, LOOK, BEGIN, ACCEPT = range(5)


class Step(NamedTuple):
    """One step: `first` is the next one; of a fork it is preferred to `second`; a set is an index."""

    kind: int
    first: int = 0
    second: int = 0
    chars: int = 0
    end: bool = False


@dataclass
class Program:
    """The steps of an ordered choice of rules, and the sets that they test."""

    steps: list[Step] = field(default_factory=list)
    sets: dict[Chars, int] = field(default_factory=dict)
    start: int = 0

    def add(self, step: Step) -> int:
        """One more step."""
        if len(self.steps) >= MOST_STEPS:
            raise PatternError(f"needs more than {MOST_STEPS} steps")
        self.steps.append(step)
        return len(self.steps) - 1

    def index(self, chars: Chars) -> int:
        """The index of a set."""
        return self.sets.setdefault(chars, len(self.sets))

    def emit(self, node: Node, after: int) -> int:
        """The first step of a part behind which another step comes."""
        match node:
            case One(chars):
                return self.add(Step(TAKE, after, chars=self.index(chars)))
            case Look(chars, end):
                return self.add(Step(LOOK, after, chars=self.index(chars), end=end))
            case Begin():
                return self.add(Step(BEGIN, after))
            case Row(items):
                for item in reversed(items):
                    after = self.emit(item, after)
                return after
            case Choice(options):
                return self._fork([self.emit(item, after) for item in options])
            case Repeat():
                return self._repeat(node, after)

    def _fork(self, starts: Sequence[int]) -> int:
        start = starts[-1]
        for other in reversed(starts[:-1]):
            start = self.add(Step(FORK, other, start))
        return start

    def _repeat(self, node: Repeat, after: int) -> int:
        if node.high is None:
            after = self._loop(node, after)
        else:
            leave = after
            for _ in range(node.high - node.low):
                after = self._maybe(node, self.emit(node.item, after), leave)
        for _ in range(node.low):
            after = self.emit(node.item, after)
        return after

    def _maybe(self, node: Repeat, inside: int, leave: int) -> int:
        first, second = (inside, leave) if node.eager else (leave, inside)
        return self.add(Step(FORK, first, second))

    def _loop(self, node: Repeat, leave: int) -> int:
        fork = self.add(Step(FORK))
        inside = self.emit(node.item, fork)
        first, second = (inside, leave) if node.eager else (leave, inside)
        self.steps[fork] = Step(FORK, first, second)
        return fork


def build_program(rules: Sequence[Node]) -> Program:
    """The steps of rules of which the first that fits is taken; each accepts with its own number."""
    program = Program()
    program.add(Step(ACCEPT, -1))
    starts = []
    for number, rule in enumerate(rules):
        accept = program.add(Step(ACCEPT, number))
        starts.append(program.emit(rule, accept))
    program.start = program._fork(starts) if starts else 0
    return program
