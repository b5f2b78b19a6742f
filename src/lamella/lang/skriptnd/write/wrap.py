"""How a long statement is broken into lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lamella.base.lines import INDENT
from lamella.lang.skriptnd.words import LEVELS, LOWERING_SIGNS

WIDTH = 100
SIGNS = frozenset((*LEVELS, *LOWERING_SIGNS, "?", "??", ":", "<-", "<>", "->", "|"))
NESTING = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
DEEPER = 10
IN_STRING = 10_000


class _Break(NamedTuple):
    """A space where a line may end; of two the one that costs less, and then the later one, is better."""

    place: int
    cost: int
    quote: str

    def width(self, start: int) -> int:
        """How long the line is that ends here; a string keeps its space and is closed."""
        return self.place - start + 2 * len(self.quote)


def wrap(text: str, level: int) -> list[str]:
    """A statement in lines of at most `WIDTH` where that can be, those behind the first indented once more.

    A line ends at a space outside all brackets rather than within them, at a comma rather than before an operator, and
    within a string only where nothing else is left: the string goes on as another one.
    """
    indent = INDENT * level
    if len(indent) + len(text) <= WIDTH:
        return [indent + text]
    found: list[str] = []
    start, opening = 0, ""
    breaks = _breaks(text)
    for chosen in _chosen(breaks, len(text), WIDTH - len(indent)):
        end = chosen.place + 1 if chosen.quote else chosen.place
        found.append(indent + opening + text[start:end] + chosen.quote)
        start, opening = chosen.place + 1, chosen.quote
        indent = INDENT * (level + 1)
    return [*found, indent + opening + text[start:]]


def _chosen(breaks: Iterator[_Break], length: int, room: int) -> Iterator[_Break]:
    """The places where the lines end."""
    start, room_left = 0, room
    ahead: list[_Break] = []
    upcoming = next(breaks, None)
    while length - start > room_left:
        while upcoming is not None and (upcoming.width(start) <= room_left or not ahead):
            ahead.append(upcoming)
            upcoming = next(breaks, None)
        if not ahead:
            return
        late = [item for item in ahead if item.place - start > room_left // 3] or ahead
        best = min(late, key=lambda item: (item.cost, -item.place))
        yield best
        ahead = [item for item in ahead if item.place > best.place]
        start, room_left = best.place + 1, room - len(INDENT) - len(best.quote)


def _breaks(text: str) -> Iterator[_Break]:
    """All places where a line may end, in order."""
    depth, position, length = 0, 0, len(text)
    while position < length:
        char = text[position]
        if char in "\"'":
            end = _string_end(text, position)
            yield from _string_breaks(text, position, end, depth)
            position = end
            continue
        depth += NESTING.get(char, 0)
        if char == " " and not _follows_sign(text, position):
            yield _Break(position, depth * DEEPER + _sign_cost(text, position + 1), "")
        position += 1


def _follows_sign(text: str, place: int) -> bool:
    """Whether an operator stands before a space: a line does not end with one."""
    start = max(0, place - 4)
    return text[max(text.rfind(" ", start, place) + 1, start) : place] in SIGNS


def _sign_cost(text: str, start: int) -> int:
    """A line rather ends before an operator that binds less tight."""
    end = text.find(" ", start, start + 4)
    word = text[start : end if end >= 0 else start]
    return LEVELS.get(word, 0) + (word == "?")


def _string_end(text: str, start: int) -> int:
    end = text.find(text[start], start + 1)
    while end > 0 and text[end - 1] == "\\":
        end = text.find(text[start], end + 1)
    return end + 1 if end > 0 else len(text)


def _string_breaks(text: str, start: int, end: int, depth: int) -> Iterator[_Break]:
    """The spaces of a string outside its holes."""
    is_hole = False
    for place in range(start + 1, end - 1):
        char = text[place]
        if char == "{" and text[place - 1] != "\\":
            is_hole = True
        elif char == "}":
            is_hole = False
        elif char == " " and not is_hole:
            yield _Break(place, IN_STRING + depth, text[start])
