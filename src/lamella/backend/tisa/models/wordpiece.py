"""Word pieces: the longest piece of the vocabulary from the left."""

from __future__ import annotations

from collections.abc import Iterable

from lamella.backend.tisa.models.options import Options, published_unknown
from lamella.backend.tisa.vocabulary import Vocabulary

LONGEST_PIECE = 1024
"""Characters of a piece that is looked for."""


def lengths_of(tokens: Iterable[str]) -> tuple[int, ...]:
    """The lengths of some tokens, the longest first."""
    return tuple(sorted({len(token) for token in tokens if 0 < len(token) <= LONGEST_PIECE}, reverse=True))


class WordPieces:
    """Pieces that begin a word, and those that continue it behind a marker."""

    def __init__(self, vocabulary: Vocabulary, options: Options | None, marker: str) -> None:
        ids = vocabulary.ids
        inner = {token[len(marker) :]: number for token, number in ids.items() if token.startswith(marker)}
        self._tables = (dict(ids), lengths_of(ids)), (inner, lengths_of(inner))
        self._options = options
        self._unknown = options.unknown if options else published_unknown(ids)

    def encode(self, word: str) -> list[int]:
        """The ids of a word; with options an unknown word is unknown as a whole."""
        unknown = [] if self._unknown is None else [self._unknown]
        if self._options and len(word) > self._options.longest:
            return unknown
        found: list[int] = []
        at = 0
        while at < len(word):
            size, number = self._longest(word, at)
            if number is None and self._options:
                return unknown
            found += unknown if number is None else [number]
            at += size
        return found

    def _longest(self, word: str, at: int) -> tuple[int, int | None]:
        """The size and the id of the longest piece at a place; one character without id where there is none."""
        table, sizes = self._tables[at > 0]
        left = len(word) - at
        for size in sizes:
            if size <= left:
                number = table.get(word[at : at + size])
                if number is not None:
                    return size, number
        return 1, None
