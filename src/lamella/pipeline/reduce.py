"""The smallest text that still fails in the same way: hierarchical delta debugging over the lines of a program.

A line with those below it that are indented deeper, and what closes them, is one piece. Pieces are taken away level by
level (`ddmin`), then a definition `a = f(b)` at a time is bypassed: its line goes, and `b` stands where `a` stood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field

from lamella.base.ddmin import ddmin

Fails = Callable[[str], bool]
MOST_TRIES = 2000
"""Texts that are tried in all."""
CLOSING = re.compile(r"\s*(?:[)}\]]|endloop\b)")
DEFINED = re.compile(r"\s*(?:let\s+)?(\w+)\s*=[^=(]*\(\s*(?:\w+\s*=\s*)?([A-Za-z_]\w*)\b")
"""A definition, and the first name that it reads."""
CODES = re.compile(r"error\[([A-Z]+\d+)\]")


@dataclass(eq=False, slots=True)
class Piece:
    """A line, the pieces inside of it, and the line that closes them."""

    line: str
    inner: list[Piece] = field(default_factory=list)
    end: str | None = None

    def lines(self, kept: Callable[[Piece], bool]) -> Iterator[str]:
        """Its text without pieces that are not kept."""
        yield self.line
        for item in self.inner:
            if kept(item):
                yield from item.lines(kept)
        if self.end is not None:
            yield self.end


def reduce_text(text: str, fails: Fails) -> str:
    """A text that fails and of which nothing more can be taken away, or not within the tries."""
    known: dict[str, bool] = {}

    def tried(candidate: str) -> bool:
        if candidate not in known:
            known[candidate] = len(known) < MOST_TRIES and fails(candidate)
        return known[candidate]

    before = None
    while before != text and len(known) < MOST_TRIES:
        before = text
        text = _without_definitions(_without_pieces(text, tried), tried)
    return text


def cut_pieces(text: str) -> Piece:
    """A text as a tree of pieces, by how far its lines are indented."""
    root = Piece("")
    open_ones: list[tuple[int, Piece]] = [(-1, root)]
    for line in text.splitlines():
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        while open_ones[-1][0] > indent:
            open_ones.pop()
        last = open_ones[-1][1]
        if CLOSING.match(line) and open_ones[-1][0] == indent and last.end is None:
            last.end = line
            continue
        if open_ones[-1][0] == indent:
            open_ones.pop()
        piece = Piece(line)
        open_ones[-1][1].inner.append(piece)
        open_ones.append((indent, piece))
    return root


def _text_of(root: Piece, dropped: Container[Piece]) -> str:
    return "".join(f"{line}\n" for line in list(root.lines(lambda item: item not in dropped))[1:])


def _without_pieces(text: str, fails: Fails) -> str:
    """The text without the pieces that it fails without, from the outermost to the innermost."""
    root = cut_pieces(text)
    level, dropped = root.inner, frozenset[Piece]()
    if _text_of(root, dropped) != text and not fails(_text_of(root, dropped)):
        return text  # blank lines, or how it is indented, matter
    while level:
        dropped = _dropped_of(root, level, dropped, fails)
        level = [inner for item in level if item not in dropped for inner in item.inner]
    return _text_of(root, dropped)


def _dropped_of(
    root: Piece, level: Sequence[Piece], before: frozenset[Piece], fails: Fails
) -> frozenset[Piece]:
    """Pieces that were dropped before, with those of a level that can go too."""

    def without(kept: Sequence[Piece]) -> frozenset[Piece]:
        return before | (frozenset(level) - frozenset(kept))

    def still_fails(kept: Sequence[Piece]) -> bool:
        return fails(_text_of(root, without(kept)))

    return without([] if still_fails([]) else ddmin(level, still_fails))


def _without_definitions(text: str, fails: Fails) -> str:
    """The text without definitions in whose place what they read can stand, last ones first."""
    lines = text.splitlines(keepends=True)
    place = len(lines) - 1
    while place >= 0:
        match = DEFINED.match(lines[place])
        if match is not None and match[1] != match[2]:
            used = re.compile(rf"\b{match[1]}\b")
            shorter = [*lines[:place], *(used.sub(match[2], line) for line in lines[place + 1 :])]
            if fails("".join(shorter)):
                lines = shorter
        place -= 1
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class Failure:
    """How a command failed: its status, and the codes of the errors that it printed, or its last words."""

    status: int
    codes: tuple[str, ...]
    words: str = ""

    @staticmethod
    def of(status: int, printed: str) -> Failure:
        """The failure of a command that printed this."""
        codes = tuple(dict.fromkeys(CODES.findall(printed)))
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        # names of files and numbers change as a text shrinks
        words = "" if codes or not lines else re.sub(r"\S*[/\\]\S*|\d+", "…", lines[-1])[:200]
        return Failure(status, codes, words)

    def is_like(self, other: Failure) -> bool:
        """Whether this is the other failure, or a part of it: its first error, and none that it had not."""
        if self.status != other.status or not other.codes:
            return self == other
        return other.codes[0] in self.codes and set(self.codes) <= set(other.codes)

    def __str__(self) -> str:
        return f"status {self.status}" + (f", {', '.join(self.codes)}" if self.codes else "")
