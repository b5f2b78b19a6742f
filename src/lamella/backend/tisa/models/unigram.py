"""The likeliest pieces: those whose scores have the largest sum."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.backend.tisa.models.options import FALLBACK, Options, byte_ids, published_unknown
from lamella.backend.tisa.models.wordpiece import lengths_of
from lamella.backend.tisa.vocabulary import Vocabulary

LONGEST = 49
"""Characters of a piece that the published instruction looks for."""
PENALTY = 10.0
"""How much less likely than the least likely piece an unknown character is."""
NOWHERE = float("-inf")


class LikeliestPieces:
    """Scores by piece, with the lengths that pieces beginning with a character have."""

    def __init__(self, vocabulary: Vocabulary, options: Options | None) -> None:
        self._ids, self._options = vocabulary.ids, options
        most = max(map(len, vocabulary.ids), default=0) if options else LONGEST
        self._scores = {
            text: vocabulary.scores.get(text, 0.0) for text in vocabulary.ids if len(text) <= most
        }
        starts: dict[str, list[str]] = {}
        for token in self._scores:
            starts.setdefault(token[:1], []).append(token)
        self._sizes = {first: tuple(reversed(lengths_of(tokens))) for first, tokens in starts.items()}
        self._worst = min(self._scores.values(), default=0.0) - PENALTY
        self._unknown = options.unknown if options else published_unknown(vocabulary.ids)

    def encode(self, word: str) -> list[int]:
        """The ids of a word."""
        pieces = self._best(word)
        if self._options is None:
            return self._published(word, pieces)
        found: list[int] = []
        for piece in _fuse(pieces, self._scores):
            found += self._look_up(piece)
        return found

    def _published(self, word: str, pieces: Sequence[str]) -> list[int]:
        """Characters one by one where no pieces cover the word."""
        known = all(piece in self._ids for piece in pieces)
        unknown = published_unknown(self._ids)
        return [self._ids.get(piece, unknown) for piece in (pieces if known else word)]

    def _look_up(self, piece: str) -> list[int]:
        number = self._ids.get(piece)
        if number is not None:
            return [number]
        fallback = self._options is not None and self._options.has(FALLBACK)
        numbers = byte_ids(piece, self._ids) if fallback else None
        if numbers is not None:
            return numbers
        return [] if self._unknown is None else [self._unknown]

    def _best(self, word: str) -> list[str]:
        """The pieces of the best way through a word; a character that is no piece has the worst score."""
        scores, table = [0.0] + [NOWHERE] * len(word), self._scores
        origins = [-1] * (len(word) + 1)
        for at, first in enumerate(word):
            here, alone = scores[at], False
            for size in self._sizes.get(first, ()):
                score = table.get(word[at : at + size]) if at + size <= len(word) else None
                if score is not None:
                    alone = alone or size == 1
                    if origins[at + size] < 0 or here + score > scores[at + size]:
                        scores[at + size], origins[at + size] = here + score, at
            if not alone and (origins[at + 1] < 0 or here + self._worst > scores[at + 1]):
                scores[at + 1], origins[at + 1] = here + self._worst, at
        return _walk_back(word, origins)


def _walk_back(word: str, origins: Sequence[int]) -> list[str]:
    pieces, end = [], len(word)
    while end > 0:
        pieces.append(word[origins[end] : end])
        end = origins[end]
    return pieces[::-1]


def _fuse(pieces: Sequence[str], known: dict[str, float]) -> list[str]:
    """Unknown pieces in a row are one."""
    found: list[str] = []
    fusing = False
    for piece in pieces:
        unknown = piece not in known
        if unknown and fusing:
            found[-1] += piece
        else:
            found.append(piece)
        fusing = unknown
    return found
