"""Symbols: what is not known before the run, with all that is known about it, and proofs from that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lamella.base.affine import OpenInterval
from lamella.base.records import dataclass
from lamella.lang.tensor.check.memory.forms.affine import ZERO, Affine

MOST_STEPS = 96
"""Steps of one proof, so that a program is checked in linear time."""

FREE, GROUP, RANGED, UNKNOWN = "free", "group", "ranged", "unknown"
NOBODY: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Symbol:
    """An integer of the run.

    A free one may be anything between its bounds, for whoever launches the kernel chooses it. A ranged one takes each
    value from `first` to `last`. The others are bounded at best.
    """

    name: str
    kind: str = UNKNOWN
    low: int | None = None
    high: int | None = None
    first: Affine = ZERO
    last: Affine = ZERO
    choices: tuple[Affine, ...] = ()
    """Where not empty: forms one of which it equals."""
    depends: frozenset[int] = NOBODY
    """The symbols that tell work-items apart and on which it depends."""
    shown: Affine | None = None
    """What is shown of it: a loop variable, where the symbol is the number of the trip."""


class Symbols:
    """The symbols of a function, and what is known to be 0 or more."""

    def __init__(self) -> None:
        self.table: list[Symbol] = []
        self._ends: list[OpenInterval] = []
        self._facts: list[list[Affine]] = []
        self._assumed: dict[int, list[Affine]] = {}
        self._trail: list[list[Affine]] = []
        """What each assumption added, the last one at the end."""
        self._steps = 0

    def add(self, symbol: Symbol) -> int:
        """Take in a symbol; constant bounds become facts about it."""
        number = len(self.table)
        self.table.append(symbol)
        self._ends.append((symbol.low, symbol.high))
        self._facts.append([])
        if symbol.low is not None:
            self.state(Affine(-symbol.low, ((number, 1),)))
        if symbol.high is not None:
            self.state(Affine(symbol.high, ((number, -1),)))
        return number

    def name(self, form: Affine, name: str) -> None:
        """Call a symbol that has no name yet by the value it is."""
        if form.constant == 0 and len(form.terms) == 1 and form.terms[0][1] == 1:
            number = form.terms[0][0]
            if not self.table[number].name:
                self.table[number] = replace(self.table[number], name=name)

    def state(self, fact: Affine) -> None:
        """A form is 0 or more, always."""
        if fact.terms:
            self._facts[fact.terms[-1][0]].append(fact.tightened())

    def assume(self, fact: Affine) -> None:
        """A form is 0 or more, until that is taken back; with it what it says about an older symbol alone."""
        added = [fact.tightened(), *self._consequences(fact.tightened())] if fact.terms else []
        for item in added:
            self._assumed.setdefault(item.terms[-1][0], []).append(item)
        self._trail.append(added)

    def retract(self) -> None:
        """Take back what was assumed last."""
        for item in reversed(self._trail.pop()):
            self._assumed[item.terms[-1][0]].pop()

    def _consequences(self, fact: Affine) -> list[Affine]:
        """Bounds of one older symbol that follow from an assumption and what is stated about its newest symbol.

        A proof eliminates the newest symbol first, by one fact, and then no longer knows that the symbol had another
        end: of `2*q >= id` and `q <= 1`, the first is used for `q`, and that `id <= 2` would be lost.
        """
        number, coefficient = fact.terms[-1]
        found = []
        for known in self._facts[number]:
            theirs = known.terms[-1][1]
            if (theirs > 0) != (coefficient > 0):
                rest = fact.times(abs(theirs)).plus(known, abs(coefficient)).tightened()
                if len(rest.terms) == 1 and not self._is_plain(rest):
                    found.append(rest)
        return found

    def _is_plain(self, form: Affine) -> bool:
        """Whether constant bounds of the symbols alone show that a form is 0 or more."""
        low = self.interval(form)[0]
        return low is not None and low >= 0

    def interval(self, form: Affine) -> OpenInterval:
        """Constants between which a form lies; None where there is none."""
        return form.open_bounds(self._ends)

    def depends(self, forms: Iterable[Affine]) -> frozenset[int]:
        """The symbols that tell work-items apart and on which forms depend."""
        return NOBODY.union(*(self.table[item].depends for form in forms for item, _ in form.terms))

    def proves(self, form: Affine, assuming: bool = True) -> bool:
        """Whether a form is 0 or more for certain, by what is stated and, unless asked otherwise, what is assumed."""
        self._steps = MOST_STEPS
        return self._search(form.tightened(), assuming)

    def refutes(self, form: Affine, assuming: bool = True) -> bool:
        """Whether a form is less than 0 for certain."""
        return self.proves(Affine(-1) - form, assuming)

    def _search(self, form: Affine, assuming: bool) -> bool:
        """Eliminate the newest symbol by each fact about it: a fact never speaks of newer ones."""
        if self._is_plain(form):
            return True
        self._steps -= 1
        if not form.terms or self._steps < 0:
            return False
        number, coefficient = form.terms[-1]
        for fact in self._known(number, assuming):
            theirs = fact.terms[-1][1]
            if (theirs > 0) == (coefficient > 0):
                rest = form.times(abs(theirs)).plus(fact, -abs(coefficient))
                if self._search(rest.tightened(), assuming):
                    return True
        choices = self.table[number].choices
        return bool(choices) and all(self._search(form.replace(number, item), assuming) for item in choices)

    def _known(self, number: int, assuming: bool) -> Iterable[Affine]:
        return [*(self._assumed.get(number, ()) if assuming else ()), *self._facts[number]]

    def assumed_about(self, number: int) -> list[Affine]:
        """What is assumed about a symbol as the newest one of a form."""
        return self._assumed.get(number, [])

    def show(self, form: Affine) -> str:
        """A form as a sentence shows it."""
        text = ""
        for number, coefficient in form.terms:
            name = self.table[number].name
            part = name if abs(coefficient) == 1 else f"{abs(coefficient)}*{name}"
            text += (" - " if coefficient < 0 else " + ") + part
        if form.constant or not text:
            text += f" {'-' if form.constant < 0 else '+'} {abs(form.constant)}"
        return text[3:] if text.startswith(" + ") else text[1:].replace("- ", "-", 1)
