"""Strings as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

UNIT = re.compile(r"\\[\"']|[^\"'\\]+|[\s\S]")
MARKS = frozenset("\"'")


def quote(text: str) -> str:
    """A string; where it holds both kinds of quotes, as several adjacent literals."""
    return quote_parts([(text, False)])


def quote_parts(parts: Iterable[tuple[str, bool]]) -> str:
    """A string of texts and holes, of which each says whether it is a hole; a hole is never divided."""
    literals: list[list[str]] = [[]]
    forbidden: list[frozenset[str]] = [frozenset()]
    for unit, marks in _units(parts):
        if forbidden[-1] | marks == MARKS and literals[-1]:
            literals.append([])
            forbidden.append(frozenset())
        literals[-1].append(unit)
        forbidden[-1] |= marks
    pairs = zip(literals, forbidden, strict=True)
    return " ".join(_literal("".join(units), "'" if '"' in marks else '"') for units, marks in pairs)


def _literal(text: str, mark: str) -> str:
    return f"{mark}{text}{mark}"


def _units(parts: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, frozenset[str]]]:
    """What may not be divided, each with the quotes that cannot enclose it."""
    for text, is_hole in parts:
        for unit in [text] if is_hole else UNIT.findall(text):
            is_escape = not is_hole and unit.startswith("\\")
            yield unit, frozenset() if is_escape else MARKS.intersection(unit)
