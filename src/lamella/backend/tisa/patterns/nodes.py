"""The pattern language on one page."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

# --- sets of characters as sorted ranges, and the classes of Unicode that patterns name ---------------------


LAST = 0x10FFFF
LAST_BASIC = 0xFFFF
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Chars:
    """A set of characters: ranges with both ends, in order, none touching the next."""

    ranges: tuple[Range, ...] = ()

    def __contains__(self, character: str) -> bool:
        code = ord(character)
        place = bisect_right(self.ranges, (code, LAST)) - 1
        return place >= 0 and code <= self.ranges[place][1]

    def __len__(self) -> int:
        return sum(end - start + 1 for start, end in self.ranges)

    def __or__(self, other: Chars) -> Chars:
        return merge((*self.ranges, *other.ranges))

    def __and__(self, other: Chars) -> Chars:
        return ~(~self | ~other)

    def __invert__(self) -> Chars:
        starts = [0, *(end + 1 for _, end in self.ranges)]
        ends = [*(start - 1 for start, _ in self.ranges), LAST]
        return Chars(tuple((a, b) for a, b in zip(starts, ends, strict=True) if a <= b))

    def within(self, other: Chars) -> bool:
        """Whether every character of this set is one of the other."""
        return not (self & ~other).ranges

    def meets(self, other: Chars) -> bool:
        """Whether the two sets share a character."""
        return bool((self & other).ranges)

    def up_to(self, last: int) -> Chars:
        """The characters that are not beyond a code point."""
        return Chars(tuple((start, min(end, last)) for start, end in self.ranges if start <= last))


def merge(ranges: Iterable[Range]) -> Chars:
    """The set of some ranges in any order."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return Chars(tuple(found))


def single(character: str) -> Chars:
    """The set of one character."""
    return Chars(((ord(character), ord(character)),))


def from_text(text: str) -> Chars:
    """The set of the characters of a text."""
    return merge((ord(item), ord(item)) for item in text)


# --- classes of Unicode -------------------------------------------------------------------------------------

_SCANNED = (range(0x40000), range(0xE0000, 0xE1000))
"""Where assigned characters lie, but for the private planes at the end."""


@cache
def _categories() -> Mapping[str, Chars]:
    """The characters of each general category."""
    found: dict[str, list[Range]] = {"Cn": [(0x40000, 0xDFFFF), (0xE1000, 0xEFFFF)]}
    found["Co"] = [(0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)]
    found["Cn"] += [(0xFFFFE, 0xFFFFF), (0x10FFFE, 0x10FFFF)]
    for scanned in _SCANNED:
        start, current = scanned.start, unicodedata.category(chr(scanned.start))
        for code, category in zip(scanned, map(unicodedata.category, map(chr, scanned)), strict=True):
            if category != current:
                found.setdefault(current, []).append((start, code - 1))
                start, current = code, category
        found.setdefault(current, []).append((start, scanned.stop - 1))
    return MappingProxyType({name: merge(ranges) for name, ranges in found.items()})


@cache
def category(name: str) -> Chars | None:
    """The characters of a general category such as `Lu`, or of a group of them such as `L`."""
    named = [item for item in _categories() if item == name or item[0] == name]
    ranges = [piece for item in named for piece in _categories()[item].ranges]
    return merge(ranges) if named else None


def categories(*names: str) -> Chars:
    """The characters of some general categories; those that do not exist have none."""
    return merge(piece for name in names for piece in (category(name) or Chars()).ranges)


SPACE = merge([(9, 13), (32, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)]) | merge(
    [(0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
)
"""The property White_Space."""
_CIRCLED = merge([(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)])


@cache
def word() -> Chars:
    """What `\\w` stands for: letters, marks, decimal digits, letter numbers, connectors, circled letters."""
    return categories("L", "M", "Nd", "Nl", "Pc") | _CIRCLED


@cache
def digit() -> Chars:
    """What `\\d` stands for: decimal digits."""
    return categories("Nd")


LARGEST_FOLDED = 4096
"""Sets larger than this are classes of Unicode, where both cases of a letter are in or out together."""


@cache
def _folds() -> Mapping[str, str]:
    """For each folded character those that fold to it, where there are others."""
    found: dict[str, str] = {}
    for character in map(chr, range(0x20000)):
        folded = character.casefold()
        if len(folded) == 1 and folded != character:
            found[folded] = found.get(folded, folded) + character
    return MappingProxyType(found)


def fold(chars: Chars) -> Chars:
    """The set with the other cases of its characters."""
    if len(chars) > LARGEST_FOLDED:
        return chars
    folded = {chr(code).casefold() for start, end in chars.ranges for code in range(start, end + 1)}
    return chars | from_text("".join(_folds().get(item, "") for item in folded))


@dataclass(frozen=True, slots=True)
class One:
    """One character of a set."""

    chars: Chars


@dataclass(frozen=True, slots=True)
class Concatenation:
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


Node = One | Concatenation | Choice | Repeat | Look | Begin

EMPTY = Concatenation(())
END = Look(Chars(), True)
