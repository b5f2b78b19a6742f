"""Stages joined to one function: pieces of a text are encoded once and remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from lamella.backend.tisa.changes import Change
from lamella.backend.tisa.cuts import Cut, Settling

Encode = Callable[[str], Sequence[int]]
MOST_KEPT = 1 << 16
LONGEST_KEPT = 128
"""Pieces that are remembered, and their characters."""
MOST_IDS_KEPT = 4 * LONGEST_KEPT


class _Memory(dict[str, Sequence[int]]):
    """The ids of pieces; when it is full it begins anew."""

    def __init__(self, encode: Encode) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, piece: str) -> Sequence[int]:
        found = self._encode(piece)
        if len(piece) <= LONGEST_KEPT and len(found) <= MOST_IDS_KEPT:
            if len(self) >= MOST_KEPT:
                self.clear()
            self[piece] = tuple(found)
        return found


class _Ends(NamedTuple):
    """How the part that begins a text is encoded, and how all others are."""

    first: Encode
    rest: Encode


def join(stages: Sequence[Change | Cut | Settling], encode: Encode) -> Encode:
    """The whole way from a text to ids."""
    ends = _Ends(encode, encode)
    for stage in reversed(stages):
        ends = _before_change(stage, ends) if isinstance(stage, Change) else _before_cut(stage, ends)
    return ends.first


def _before_change(change: Change, ends: _Ends) -> _Ends:
    first = _then(change, ends.first)
    if change.start:
        return _Ends(first, ends.rest)
    return _Ends(first, first if ends.rest is ends.first else _then(change, ends.rest))


def _then(change: Change, encode: Encode) -> Encode:
    apply = change.apply
    return lambda text: encode(apply(text))


def _before_cut(cut: Cut | Settling, ends: _Ends) -> _Ends:
    if isinstance(cut, Settling):
        rest = _settled(cut, ends.rest, ends.rest)
        return _Ends(rest if ends.first is ends.rest else _settled(cut, ends.first, ends.rest), rest)
    memory = _Memory(ends.rest)
    rest = _remembered(cut, memory)
    return _Ends(rest if ends.first is ends.rest else _opened(cut, ends.first, memory), rest)


def _remembered(cut: Cut, memory: _Memory) -> Encode:
    look_up, apply = memory.__getitem__, cut.apply
    return lambda text: list(chain.from_iterable(map(look_up, apply(text))))


def _opened(cut: Cut, first: Encode, memory: _Memory) -> Encode:
    """The first piece has a way of its own."""

    def encode(text: str) -> list[int]:
        pieces = cut.apply(text)
        found = list(first(pieces[0])) if pieces else []
        for piece in pieces[1:]:
            found += memory[piece]
        return found

    return encode


def _settled(cut: Settling, first: Encode, rest: Encode) -> Encode:
    """Ids stay as they are."""

    def encode(text: str) -> list[int]:
        found: list[int] = []
        for place, piece in enumerate(cut.apply(text)):
            if isinstance(piece, int):
                found.append(piece)
            else:
                found += rest(piece) if place else first(piece)
        return found

    return encode
