"""Patterns of tokenizers in linear time: by Python's own matcher where that is proved, else by an automaton."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from lamella.backend.tisa.patterns.automaton import Automaton, Found
from lamella.backend.tisa.patterns.nodes import Node, PatternError
from lamella.backend.tisa.patterns.parse import parse_pattern
from lamella.backend.tisa.patterns.program import build_program
from lamella.backend.tisa.patterns.proof import branches_of, runs_linear
from lamella.backend.tisa.patterns.sets import LAST, LAST_BASIC
from lamella.backend.tisa.patterns.settle import settle
from lamella.backend.tisa.patterns.translate import translate

__all__ = ["Found", "Matcher", "Node", "PatternError", "parse_pattern"]

_ASTRAL = re.compile(f"[{chr(LAST_BASIC + 1)}-{chr(LAST)}]")
MOST_GROUPS = 1000


class Matcher:
    """An ordered choice of patterns; the leftmost match is taken, at one place that of the first pattern."""

    def __init__(self, rules: Sequence[Node]) -> None:
        self._rules = rules
        self.linear = runs_linear(rules) and len(rules) <= MOST_GROUPS
        """Whether Python's own matcher does the work."""
        self._automaton = None if self.linear else Automaton(build_program([settle(rule) for rule in rules]))
        self._compiled: dict[tuple[int, bool], re.Pattern[str]] = {}

    def find(self, text: str) -> list[Found]:
        """The matches from left to right: start, end, number of the pattern."""
        if self._automaton is not None:
            return self._automaton.find(text)
        matches = self._pattern(text, numbered=True).finditer(text)
        return [(*found.span(), (found.lastindex or 1) - 1) for found in matches]

    def matches(self, text: str) -> list[str]:
        """The matches as texts."""
        if self._automaton is None:
            found: list[str] = self._pattern(text, numbered=False).findall(text)
            return found
        return [text[start:end] for start, end, _ in self.find(text)]

    def cut(self, text: str) -> list[str]:
        """The text in pieces: matches, and what lies between them."""
        if self._automaton is None:
            pieces = self.matches(text)
            # nothing lies between matches that have all characters
            if len("".join(pieces)) == len(text):
                return pieces
        return self._cut(text, lambda piece: piece)

    def replace(self, text: str, change: Callable[[str], str]) -> str:
        """The text with each match changed."""
        if self._automaton is None:
            return self._pattern(text, numbered=False).sub(lambda found: change(found[0]), text)
        return "".join(self._cut(text, change))

    def _cut(self, text: str, change: Callable[[str], str]) -> list[str]:
        pieces, at = [], 0
        for start, end, _ in self.find(text):
            pieces += [text[at:start], change(text[start:end])]
            at = end
        return [piece for piece in (*pieces, text[at:]) if piece]

    def _pattern(self, text: str, numbered: bool) -> re.Pattern[str]:
        """The compiled patterns; sets without characters beyond the basic plane are much faster."""
        last = LAST_BASIC if text.isascii() or not _ASTRAL.search(text) else LAST
        known = self._compiled.get((last, numbered))
        if known is None:
            mark = "(" if numbered else "(?:"
            rules = ["|".join(translate(item, last) for item in branches_of(rule)) for rule in self._rules]
            words = "|".join(f"{mark}{rule})" for rule in rules) if len(rules) > 1 else rules[0]
            known = self._compiled[last, numbered] = re.compile(words)
        return known
