"""Trivia: the comments and blank lines of a text, each kept beside the node it belongs to, for round trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lamella.base.cursor import Comment, Cursor, Tokens
from lamella.base.diagnostic import Rule
from lamella.base.source import NO_TRIVIA, Source, Span, Trivia

BLANK = Trivia(blank=True)


class TriviaReader:
    """Hands out the comments of a text, in their order, to the nodes of the text, in theirs."""

    def __init__(self, source: Source, comments: Sequence[Comment]) -> None:
        self._text = source.text
        self._comments = comments
        self._index = 0
        self._beyond = len(source.text) + 1
        self._next = comments[0].start if comments else self._beyond
        self._seen = 0

    def take(self, start: int, end: int, ahead: int) -> Trivia:
        """The notes of a node from `start` to `end`, behind which the next token begins at `ahead`.

        Comments before the node stand above it, and so do those between its words; the one that follows on its last
        line stands behind it. An empty string among the lines above is a blank line.
        """
        blank = self._seen > 0 and self._apart(min(start, self._next))
        if self._next >= ahead:
            self._seen = end
            return BLANK if blank else NO_TRIVIA
        above = self._lines(start)
        if above and self._apart(start):
            above.append("")
        while self._next < end:
            above.append(self._comment())
        self._seen = end
        return Trivia(tuple(above), self._behind(end, ahead), blank)

    def close(self, start: int, end: int, ahead: int) -> Trivia:
        """The notes of the end of a block: no blank line unless a comment follows it."""
        found = self.take(start, end, ahead)
        above = found.above[:-1] if found.above and not found.above[-1] else found.above
        return replace(found, above=above, blank=found.blank and bool(above))

    def skip(self, start: int, end: int, ahead: int) -> Trivia:
        """The notes of a node that is kept as it is written: the comments between its words are part of it."""
        found = self.take(start, start, min(start + 1, ahead))
        while self._next < end:
            self._comment()
        self._seen = end
        return replace(found, behind=self._behind(end, ahead))

    def _apart(self, offset: int) -> bool:
        """Whether an empty line separates what was seen last from this place."""
        return self._text.count("\n", self._seen, offset) > 1

    def _comment(self) -> str:
        comment = self._comments[self._index]
        self._index += 1
        more = self._index < len(self._comments)
        self._next = self._comments[self._index].start if more else self._beyond
        self._seen = comment.start + len(comment.text)
        return comment.text.rstrip()

    def _lines(self, limit: int) -> list[str]:
        found: list[str] = []
        while self._next < limit:
            if found and self._apart(self._next):
                found.append("")
            found.append(self._comment())
        return found

    def _behind(self, end: int, ahead: int) -> str:
        gap = self._text[end : self._next] if self._next < ahead else "\n"
        return "" if "\n" in gap or "\r" in gap else self._comment()


class TriviaCursor(Cursor):
    """A cursor that gives each node the comments beside it."""

    def __init__(self, source: Source, tokens: Tokens, syntax: Rule, bad: Rule) -> None:
        super().__init__(source, tokens, syntax, bad)
        self.margin = TriviaReader(source, tokens.comments)

    def settle(self, first: int) -> tuple[Span, Trivia]:
        """The span and the notes of a node that has just been read."""
        span = self.span_from(first)
        return span, self.margin.take(span.start, span.end, self.starts[self.index])
