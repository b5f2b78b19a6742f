"""Source texts and places in them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from functools import cached_property
from typing import NamedTuple

from lamella.base.records import dataclass


class Source:
    """A named text whose offsets can be given as lines and columns."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def __repr__(self) -> str:
        # The same in every process: what is kept of a graph is found by how it is written.
        return f"Source({self.name!r}, {len(self.text)} characters)"

    @cached_property
    def line_starts(self) -> list[int]:
        """Offsets at which the lines begin; a line ends with a newline alone."""
        starts = [0]
        position = self.text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.text.find("\n", position + 1)
        return starts

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1, columns in code points."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def tell(self, offset: int) -> str:
        """An offset as messages name it."""
        line, column = self.place(offset)
        return f"{line}:{column}"

    def line(self, number: int) -> str:
        """The text of one line without its newline."""
        starts = self.line_starts
        end = starts[number] - 1 if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r")


class Binary(Source):
    """A named file of bytes; offsets into it count bytes, and it has no lines to show."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "")

    def tell(self, offset: int) -> str:
        """An offset as messages name it."""
        return f"byte {offset}"


class EditedSource(Source):
    """A text that an editor shows: what it was cut into is asked for again, for its colours."""

    def __init__(self, name: str, text: str, earlier: EditedSource | None = None) -> None:
        super().__init__(name, text)
        self.tokens: object = None
        """What the lexer of its language last cut the whole text into."""
        while earlier is not None and earlier.tokens is None:
            earlier = earlier.earlier
        self.earlier: EditedSource | None = earlier
        """The text before it was changed: what stayed needs not be cut again."""


class ShippedSource(Source):
    """A text that comes with the package: a model reads it, and did not write it."""


EMPTY_SOURCE = Source("<nowhere>", "")


class Span(NamedTuple):
    """The half-open range of offsets that something takes in its source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        """First line, from 1."""
        return self.source.place(self.start)[0]

    @property
    def column(self) -> int:
        """First column, from 1."""
        return self.source.place(self.start)[1]

    @property
    def text(self) -> str:
        """The source text covered."""
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """The range from the start of this span to the end of another."""
        return Span(self.source, self.start, max(self.end, other.end))


NOWHERE = Span(EMPTY_SOURCE, 0, 0)


def where() -> Span:
    """The span field of a node: carried, never compared."""
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    return span


@dataclass(frozen=True, slots=True)
class Trivia:
    """What a formatter keeps beside a node: comment lines above it, the comment behind it, a blank line before it.

    An empty string among the comment lines is a blank line. `last` are the comments at the end of a block.
    """

    above: tuple[str, ...] = ()
    behind: str = ""
    blank: bool = False
    last: tuple[str, ...] = ()


NO_TRIVIA = Trivia()


def beside() -> Trivia:
    """The notes field of a node: carried, never compared."""
    found: Trivia = field(default=NO_TRIVIA, compare=False, repr=False)
    return found
