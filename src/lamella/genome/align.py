"""Two sequences side by side, with gaps where one has what the other has not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from lamella.base.errors import InputError
from lamella.genome.sequence import Genome

Aligned: TypeAlias = "list[tuple[int | None, int | None]]"
MOST = 1 << 25
"""Pairs of instructions that are weighed at most."""
SAME, AKIN, OTHER, GAP = 3, 1, -2, -1
"""What a pair is worth: equal, of one kind with other letters or windows, of other kinds; and a gap."""


def align(one: Genome, other: Genome) -> Aligned:
    """The best pairing of two sequences in their order (Needleman and Wunsch)."""
    first, second = ([str(item) for item in side.instructions] for side in (one, other))
    if len(first) * len(second) > MOST:
        raise InputError(
            f"sequences of {len(first)} and {len(second)} instructions are too long to align",
            hint="`lamella genome near` compares models of any length",
        )
    return align_words(first, second)


def align_words(first: Sequence[str], second: Sequence[str]) -> Aligned:
    """The pairing of words that is worth most."""
    known: dict[tuple[str, str], int] = {}
    best = np.zeros((len(first) + 1, len(second) + 1), dtype=np.int32)
    best[:, 0] = GAP * np.arange(len(first) + 1)
    best[0] = GAP * np.arange(len(second) + 1)
    steps = GAP * np.arange(len(second) + 1)
    for row, word in enumerate(first, 1):
        worth = np.array([_worth(word, item, known) for item in second], dtype=np.int32)
        straight = np.concatenate(
            ([best[row, 0]], np.maximum(best[row - 1, :-1] + worth, best[row - 1, 1:] + GAP))
        )
        # gaps along the row: the best start, each step further worth one gap
        best[row] = np.maximum.accumulate(straight - steps) + steps
    return _trace(first, second, best, known)


def _worth(one: str, other: str, known: dict[tuple[str, str], int]) -> int:
    found = known.get((one, other))
    if found is None:
        akin = _kind(one) == _kind(other)
        found = known[one, other] = SAME if one == other else AKIN if akin else OTHER
    return found


def _kind(word: str) -> str:
    """An instruction without its letters and the size of its window."""
    return word.rpartition("·")[2].rstrip("0123456789x")


def _trace(
    first: Sequence[str], second: Sequence[str], best: np.ndarray, known: dict[tuple[str, str], int]
) -> Aligned:
    row, column = len(first), len(second)
    found: Aligned = []
    while row or column:
        here = best[row, column]
        if (
            row
            and column
            and here == best[row - 1, column - 1] + _worth(first[row - 1], second[column - 1], known)
        ):
            row, column = row - 1, column - 1
            found.append((row, column))
        elif row and here == best[row - 1, column] + GAP:
            row -= 1
            found.append((row, None))
        else:
            column -= 1
            found.append((None, column))
    return found[::-1]


def lines_of(one: Genome, other: Genome, pairs: Aligned) -> list[str]:
    """The pairing as a listing; stretches that are written again and again are written once, and counted."""
    left = [None if a is None else str(one.instructions[a]) for a, _ in pairs]
    right = [None if b is None else str(other.instructions[b]) for _, b in pairs]
    rows = list(zip(left, right, strict=True))
    width = max((len(item) for item in left if item), default=0)
    found: list[str] = []
    for start, length, times in _stretches(rows):
        for a, b in rows[start : start + length]:
            mark = "=" if a == b else "~" if a and b else "-" if a else "+"
            found.append(f"{mark} {a or '':{width}}  {b or ''}".rstrip())
        if times > 1:
            found.append(f"  … these {length} again, {times} times in all")
    return found


def _stretches(rows: Sequence[object]) -> list[tuple[int, int, int]]:
    """The rows as stretches, each with its start, its length and how often it follows itself."""
    found: list[tuple[int, int, int]] = []
    place = 0
    while place < len(rows):
        length, times = _longest_repeat(rows, place)
        found.append((place, length, times))
        place += length * times
    return found


def _longest_repeat(rows: Sequence[object], place: int) -> tuple[int, int]:
    """The stretch from a place on that repeats itself and saves most rows; one row where none does."""
    best = (1, 1)
    for length in range(1, min(200, (len(rows) - place) // 2) + 1):
        times = 1
        while rows[place : place + length] == rows[place + times * length : place + (times + 1) * length]:
            times += 1
        if length * (times - 1) > best[0] * (best[1] - 1) and (length > 2 or times > 3):
            best = (length, times)
    return best
