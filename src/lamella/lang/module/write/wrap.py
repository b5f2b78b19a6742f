"""How a long line is broken: inside its brackets, one item on a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

INDENT = "  "
WIDTH = 100
OPENING = "([{"
CLOSING = ")]}"
SMALL = 12
"""Brackets around less than this are not worth breaking."""


class _Group(NamedTuple):
    """Brackets in a text that no other brackets enclose, and the commas right inside."""

    start: int
    end: int
    commas: tuple[int, ...]


def fits(text: str, level: int) -> bool:
    """Whether a text is short enough for one line."""
    return len(INDENT) * level + len(text) <= WIDTH


def wrap(text: str, level: int) -> list[str]:
    """A line of a text, or the lines it is broken into; inside of brackets the ends of lines mean nothing."""
    if fits(text, level):
        return [INDENT * level + text]
    groups = [group for group in _groups(text) if group.end - group.start > SMALL]
    if not groups:
        return [INDENT * level + text]
    group = max(groups, key=lambda item: item.end - item.start)
    return _broken(text, group, level)


def _broken(text: str, group: _Group, level: int) -> list[str]:
    """What stands before the brackets, the items inside, and what follows, each broken further if need be."""
    found = wrap(text[: group.start], level)
    found[-1] += text[group.start]
    places = (group.start, *group.commas, group.end)
    for place, begin in enumerate(places[:-1]):
        end = places[place + 1]
        comma = "," if end != group.end else ""
        found += wrap(text[begin + 1 : end].strip() + comma, level + 1)
    closing, *others = wrap(text[group.end + 1 :], level)
    return [*found, INDENT * level + text[group.end] + closing.removeprefix(INDENT * level), *others]


def _groups(text: str) -> Iterator[_Group]:
    """The outermost brackets of a text; those in strings are none."""
    depth, start, position = 0, 0, 0
    commas: list[int] = []
    while position < len(text):
        char = text[position]
        if char == '"':
            position = _string_end(text, position)
        elif char in OPENING:
            if depth == 0:
                start, commas = position, []
            depth += 1
        elif char in CLOSING:
            depth -= 1
            if depth == 0:
                yield _Group(start, position, tuple(commas))
        elif char == "," and depth == 1:
            commas.append(position)
        position += 1


def _string_end(text: str, start: int) -> int:
    """The place of the quote that closes a string."""
    position = start + 1
    while position < len(text) and text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position
