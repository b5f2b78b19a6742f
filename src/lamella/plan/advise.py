"""Advice: changes of a program that make it faster, each tried out.

Every proposal is written, read and checked again, verified and simulated. It is kept when the program stays free of
errors, has no warning more than before, and takes fewer cycles, or as many with fewer bytes moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from lamella.base.diagnostic import WARNING, LamellaError, errors
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.lang.nem import check, write
from lamella.lang.nem.nodes import Document
from lamella.lang.nem.resolved import Plan, Task
from lamella.lang.nem.words import MOVES
from lamella.plan.passes.propose import Key, Place, Proposal, propose
from lamella.plan.passes.rewrite import walk
from lamella.plan.timing import simulate
from lamella.plan.timing.bounds import CycleBound
from lamella.plan.verify import verify

MOST_TRIALS, FEWEST_TRIALS = 60, 6
STATEMENTS = 20_000
"""Statements that all trials together may read: a large program gets fewer trials, so that advice takes seconds."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that pays, with the numbers before and after it; `line` is a line of the text before it."""

    title: str
    why: str
    line: int
    before_cycles: int
    after_cycles: int
    before_bytes: int
    after_bytes: int
    document: Document

    @property
    def gain(self) -> tuple[int, int]:
        """Cycles and moved bytes that are saved."""
        return self.before_cycles - self.after_cycles, self.before_bytes - self.after_bytes


@dataclass(frozen=True, slots=True)
class Fixed:
    """A document with everything done that pays, and what was done, in order."""

    document: Document
    done: tuple[Advice, ...]


def advise(
    source: Source,
    path: Path | None = None,
    device: str | None = None,
    limits: Limits = DEFAULT,
    root: Path | None = None,
) -> list[Advice]:
    """Single changes that pay and, where it is more than one of them, all that `fix` does; the largest gain first.

    A program with errors gets no advice.
    """
    trials = _Trials(path, device, limits, root)
    start = trials.read(source)
    if start is None:
        return []
    trials.allow(start)
    found = _worthwhile(trials.improve(start, set()))
    trials.allow(start)
    together = _merge(trials.climb(start))
    if len(together) > 1:
        found.append(_join(together))
    return sorted(found, key=lambda item: item.gain, reverse=True)


def fix(
    source: Source,
    path: Path | None = None,
    device: str | None = None,
    limits: Limits = DEFAULT,
    root: Path | None = None,
) -> Fixed | None:
    """The program changed until nothing pays any more; None for a program with errors."""
    trials = _Trials(path, device, limits, root)
    start = trials.read(source)
    if start is None:
        return None
    trials.allow(start)
    steps = list(trials.climb(start))
    last = steps[-1].state if steps else start
    return Fixed(last.document, tuple(_merge(steps)))


def _join(steps: list[Advice]) -> Advice:
    title = "; ".join(step.title for step in steps)
    return _from(steps[0], replace(steps[-1], title=title, why="together", line=steps[0].line))


def _from(first: Advice, last: Advice) -> Advice:
    """The last of several steps, counted from before the first."""
    return replace(last, before_cycles=first.before_cycles, before_bytes=first.before_bytes)


def _merge(steps: Iterable[_Improvement]) -> list[Advice]:
    """Steps one after the other, those on one place as one."""
    found: list[Advice] = []
    place: Place | None = None
    for step in steps:
        same = bool(found) and step.place == place
        place = step.place
        found.append(_from(found.pop(), step.advice) if same else step.advice)
    return found


def _worthwhile(steps: Iterable[_Improvement]) -> list[Advice]:
    """Of the steps on one place, which grow, only those that give more than the smaller ones."""
    found: list[Advice] = []
    best: dict[Place, tuple[int, int]] = {}
    for step in steps:
        if step.advice.gain > best.get(step.place, (0, 0)):
            best[step.place] = step.advice.gain
            found.append(step.advice)
    return found


# --- trials -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CheckedProgram:
    """A program that has no errors, with what is compared."""

    document: Document
    plan: Plan
    cycles: int
    moved: int
    warnings: Counter[str]
    binding: CycleBound

    def is_better(self, other: _CheckedProgram) -> bool:
        """Whether it takes fewer cycles, or as many with fewer bytes, and warns of nothing new."""
        gained = (self.cycles, self.moved) < (other.cycles, other.moved)
        return gained and self.warnings <= other.warnings


@dataclass(frozen=True, slots=True)
class _Improvement:
    """An improvement of one place, by kind and number, and where it leads."""

    place: Place
    advice: Advice
    state: _CheckedProgram


class _Trials:
    """Reads programs again; each text once, and only so many."""

    def __init__(self, path: Path | None, device: str | None, limits: Limits, root: Path | None) -> None:
        self._path, self._device, self._limits, self._root = path, device, limits, root
        self._known: dict[str, _CheckedProgram | None] = {}
        self._name = ""
        self._left = 0

    def allow(self, start: _CheckedProgram) -> None:
        """Begin a search: as many trials as a program of this size may take."""
        statements = sum(1 for _ in walk(start.document))
        self._left = max(FEWEST_TRIALS, min(MOST_TRIALS, STATEMENTS // max(1, statements)))

    def read(self, source: Source) -> _CheckedProgram | None:
        """The program in a text, judged; None where it has errors or cannot be simulated."""
        self._name = source.name
        checked = check(source, self._path, self._device, self._limits, self._root)
        if checked.plan is None or not checked.complete or errors(checked.findings):
            return None
        found = [*checked.findings, *verify(checked.plan, self._limits)]
        if errors(found):
            return None
        try:
            report = simulate(checked.plan, self._limits, detail=0)
        except LamellaError:
            return None
        warnings = Counter(item.code for item in found if item.severity == WARNING)
        moved = _moved_bytes(checked.plan)
        return _CheckedProgram(
            checked.library.document, checked.plan, report.cycles, moved, warnings, report.binding
        )

    def improve(self, state: _CheckedProgram, failed: set[Key]) -> Iterator[_Improvement]:
        """The proposals that are better than a program; those that are not are added to `failed` and not tried."""
        wrong: set[Place] = set()
        for proposal in propose(state.document, state.plan, self._limits):
            if self._left <= 0:
                return
            if proposal.key in failed:
                continue
            # What has errors with so many iterations in flight has them with more.
            after = None if proposal.place in wrong else self._try(proposal.document)
            if after is None:
                wrong.add(proposal.place)
            if after is not None and after.is_better(state):
                yield _Improvement(proposal.place, _advice(proposal, state, after), after)
            else:
                failed.add(proposal.key)

    def climb(self, state: _CheckedProgram) -> Iterator[_Improvement]:
        """Take every improvement as it is found; what failed is tried again after other things have changed."""
        failed: set[Key] = set()
        changed = True
        while changed:
            changed = False
            failed.clear()
            while (step := next(self.improve(state, failed), None)) is not None:
                yield step
                state, changed = step.state, True

    def _try(self, document: Document) -> _CheckedProgram | None:
        self._left -= 1
        text = write(document)
        if text not in self._known:
            self._known[text] = self.read(Source(self._name, text))
        return self._known[text]


def _advice(proposal: Proposal, before: _CheckedProgram, after: _CheckedProgram) -> Advice:
    return Advice(
        proposal.title,
        f"{proposal.why}; {_limit_of(after.binding)}",
        proposal.line,
        before.cycles,
        after.cycles,
        before.moved,
        after.moved,
        after.document,
    )


def _limit_of(bound: CycleBound) -> str:
    """What no schedule of the changed program can beat."""
    what = f"{bound.name.replace('_', ' ')}, {bound.what}," if bound.what else bound.name.replace("_", " ")
    return f"then the {what} is binding: {bound.cycles:,} cycles at least"


def _moved_bytes(plan: Plan) -> int:
    """The bytes that all transfers and stores move."""
    return sum(
        item.inputs[0].extent * prod(loop.trips for loop in around)
        for item, around in plan.walk()
        if isinstance(item, Task) and item.opcode in MOVES
    )
