"""Symbolic extents from the text that they are written as: `n`, `2 * n + 1`, `((n + 1) / 2)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lamella.base import dim
from lamella.base.dim import Extent, Truth
from lamella.base.limits import LARGEST

LONGEST = 10_000
"""Characters of one extent."""
DEEPEST = 64
"""Parentheses inside each other."""
_TOKEN = re.compile(r"\s*(\d{1,19}|[^\W\d][\w.~]*(?:\[\d+\])*|<<|>>|[-+*/\\%()])")
_SIGNS: Mapping[str, Callable[[Extent, Extent], Extent]] = MappingProxyType(
    {
        **{"/": dim.floor_divide, "\\": dim.ceil_divide, "%": dim.remainder},
        **{"<<": dim.smaller, ">>": dim.larger},
    }
)

COMPARISONS: Mapping[str, Callable[[Extent, Extent], Truth]] = MappingProxyType(
    {"==": dim.equal, "<": dim.less, "<=": dim.less_equal, "!=": lambda a, b: dim.negate(dim.equal(a, b))}
)
"""What two extents may be compared by."""
Ranges = Mapping[str, tuple[int, int]]


def read_extent(text: str, ranges: Ranges) -> Extent:
    """The extent that a text says; ValueError or ArithmeticError where it says none."""
    if text in ranges:
        return _symbol(text, ranges)
    if len(text) > LONGEST:
        raise ValueError("too long")
    reader = _Reader(text, ranges)
    found = reader.sum(0)
    if reader.next:
        raise ValueError(f"unexpected '{reader.next}'")
    return found


def _symbol(name: str, ranges: Ranges) -> Extent:
    low, high = ranges.get(name, (0, LARGEST))
    return dim.symbol(name, high, low)


class _Reader:
    """Reads an extent word by word."""

    def __init__(self, text: str, ranges: Ranges) -> None:
        self._text = text.rstrip()
        self._ranges = ranges
        self._place = 0
        self.next = ""
        self._step()

    def _step(self) -> str:
        """The current word; the one behind it becomes the current one, an empty one at the end."""
        word = self.next
        match = _TOKEN.match(self._text, self._place)
        if match is None and self._place < len(self._text):
            raise ValueError(f"unexpected '{self._text[self._place : self._place + 20]}'")
        self.next = "" if match is None else match[1]
        self._place = len(self._text) if match is None else match.end()
        return word

    def sum(self, depth: int) -> Extent:
        """Products with signs between them."""
        found: Extent = 0
        sign = self._step() if self.next in ("+", "-") else "+"
        while True:
            term = self._product(depth)
            found = dim.add(found, term) if sign == "+" else dim.sub(found, term)
            if self.next not in ("+", "-"):
                return found
            sign = self._step()

    def _product(self, depth: int) -> Extent:
        found = self._factor(depth)
        while self.next == "*":
            self._step()
            found = dim.mul(found, self._factor(depth))
        return found

    def _factor(self, depth: int) -> Extent:
        word = self._step()
        if word == "(":
            return self._inner(depth + 1)
        if word.isdigit():
            return int(word)
        if not word or not (word[0].isalpha() or word[0] == "_"):
            raise ValueError(f"unexpected '{word or 'end'}'")
        return _symbol(word, self._ranges)

    def _inner(self, depth: int) -> Extent:
        """What stands in parentheses: a sum, or sums with a sign between them that no polynomial has."""
        if depth > DEEPEST:
            raise ValueError("too many parentheses inside each other")
        found = self.sum(depth)
        while self.next in _SIGNS:
            rule = _SIGNS[self._step()]
            found = rule(found, self.sum(depth))
        if self._step() != ")":
            raise ValueError("a parenthesis is not closed")
        return found
