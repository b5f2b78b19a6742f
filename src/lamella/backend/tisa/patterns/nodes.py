"""The pattern language on one page."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.backend.tisa.patterns.sets import Chars


class PatternError(Exception):
    """A pattern that is not taken; the reason continues a sentence that begins with it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class One:
    """One character of a set."""

    chars: Chars


@dataclass(frozen=True, slots=True)
class Row:
    """Parts one after another."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The first of some parts that fits."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part some times, without `high` any; an `eager` one takes what it can, a `final` one keeps it."""

    item: Node
    low: int
    high: int | None
    eager: bool = True
    final: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """The next character is of a set; at the end of the text there is none, which `end` takes or not."""

    chars: Chars
    end: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """The text begins here."""


Node = One | Row | Choice | Repeat | Look | Begin

EMPTY = Row(())
END = Look(Chars(), True)
