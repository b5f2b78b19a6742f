"""Names that are nearly right: the one that was probably meant.

One measure for every language: how many letters must be put in, left out, replaced or exchanged with their neighbour. A
name of one or two letters is near to nothing, so that no suggestion is absurd.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

LONGEST = 60
"""Longer names are not compared."""
MOST_NAMES = 1000
"""Names that one is compared with at most."""
MOST_GUESSES = 20
"""Names of one text that are compared; in one that is misspelt from end to end the others go without."""


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The known names that were probably meant, the likeliest first: other cases, then fewer mistakes."""
    allowed = _allowed(name)
    if not name or len(name) > LONGEST:
        return []
    found: list[tuple[int, int, int, str]] = []
    folded = name.casefold()
    for place, other in enumerate(dict.fromkeys(islice(known, MOST_NAMES))):
        if other == name or abs(len(other) - len(name)) > allowed:
            continue
        far = 0 if other.casefold() == folded else distance(folded, other.casefold(), allowed)
        if far <= allowed:
            found.append((far, -_shared(folded, other.casefold()), place, other))
    return [item[-1] for item in sorted(found)[:count]]


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """A hint with the name that was probably meant, behind what stands before it; empty where none is near."""
    near = nearest(name, known)
    return f"did you mean '{prefix}{near[0]}'?" if near else ""


def list_known(name: str, known: Iterable[str], title: str = "there are:") -> str:
    """A hint for a name that nothing has: the one that was probably meant, and all that there are."""
    names = list(known)
    return f"{did_you_mean(name, names)} {title} {', '.join(names) or 'none'}".lstrip()


def _shared(left: str, right: str) -> int:
    """How many letters two words begin with alike: few mistakes are made at the start of a word."""
    return next(
        (place for place, (one, other) in enumerate(zip(left, right, strict=False)) if one != other),
        min(len(left), len(right)),
    )


def _allowed(name: str) -> int:
    """How many mistakes a name of a length may have: one in five letters, three in the longest."""
    return 0 if len(name) <= 2 else 1 if len(name) <= 5 else 2 if len(name) <= 9 else 3


def distance(left: str, right: str, most: int) -> int:
    """How many letters are put in, left out, replaced or exchanged between two words; beyond `most`, `most + 1`.

    Only a band around the diagonal is computed: further out there are more mistakes than are asked for.
    """
    far = most + 1
    if abs(len(left) - len(right)) > most:
        return far
    earlier = [far] * (len(right) + 1)
    before = [column if column <= most else far for column in range(len(right) + 1)]
    for place, letter in enumerate(left, 1):
        row = [far] * (len(right) + 1)
        row[0] = min(place, far)
        for column in range(max(1, place - most), min(len(right), place + most) + 1):
            other = right[column - 1]
            found = min(before[column] + 1, row[column - 1] + 1, before[column - 1] + (letter != other))
            if place > 1 and column > 1 and letter == right[column - 2] and left[place - 2] == other:
                found = min(found, earlier[column - 2] + 1)
            row[column] = min(found, far)
        if min(row) == far and min(before) == far:
            return far
        earlier, before = before, row
    return before[-1]
