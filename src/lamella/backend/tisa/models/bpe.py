"""Byte pair encoding: characters that merge, the pair of the lowest rank first."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from itertools import chain, pairwise

from lamella.backend.tisa.models.options import FALLBACK, FUSED, WHOLE, Options, byte_ids, published_unknown
from lamella.backend.tisa.vocabulary import Vocabulary

NEVER = 1 << 62
LONG = 400
"""Symbols from which on a heap is faster than looking at all pairs."""
_MARK = "▁"
_MARKED = re.compile(f"{_MARK}+[^{_MARK}]*|[^{_MARK}]+")


class BytePairs:
    """Merges by rank on small numbers, one for each text that can come up."""

    def __init__(self, vocabulary: Vocabulary, options: Options | None, suffix: str) -> None:
        self._ids, self._options, self._suffix = vocabulary.ids, options, suffix
        self._prefix = options.prefix if options else ""
        self._unknown = options.unknown if options else published_unknown(vocabulary.ids)
        texts = chain(
            vocabulary.ids, chain.from_iterable(vocabulary.merges), map(self._join, vocabulary.merges)
        )
        self._symbols = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        self._numbers = [vocabulary.ids.get(text, self._unknown) for text in self._symbols] + [self._unknown]
        self._nothing = len(self._symbols)
        self._size = len(self._symbols) + 1
        self._ranks: dict[int, int] = {}
        self._merged: list[int] = []
        for merge in vocabulary.merges:
            first, second = (self._symbols[text] for text in merge)
            self._ranks[first * self._size + second] = len(self._merged)
            self._merged.append(self._symbols[self._join(merge)])
        self._symbol_of_id = {number: self._symbols[text] for text, number in vocabulary.ids.items()}
        self.marked = self._keeps_marks(vocabulary)

    def _join(self, merge: tuple[str, str]) -> str:
        return merge[0] + merge[1][len(self._prefix) :]

    def _keeps_marks(self, vocabulary: Vocabulary) -> bool:
        """Whether nothing merges over the place before a mark of a space, so that texts can be cut there."""
        plain = not (self._prefix or self._suffix or (self._options and self._options.has(WHOLE)))
        crossing = (b.startswith(_MARK) and not a.endswith(_MARK) for a, b in vocabulary.merges)
        return plain and _MARK in vocabulary.ids and not any(crossing)

    @staticmethod
    def cut(text: str) -> list[str]:
        """A text at its marks of spaces."""
        return _MARKED.findall(text)

    def encode(self, word: str) -> list[int]:
        """The ids of a word."""
        if self._options and self._options.has(WHOLE) and word in self._ids:
            return [self._ids[word]]
        symbols = self._start(word)
        merge = self._merge if len(symbols) < LONG else self._merge_long
        numbers = map(self._numbers.__getitem__, merge(symbols))
        return [number for number in numbers if number is not None]

    def _start(self, word: str) -> list[int]:
        """The symbols of the characters of a word."""
        texts = list(word)
        if self._prefix:
            texts[1:] = [self._prefix + text for text in texts[1:]]
        if self._suffix and texts:
            texts[-1] += self._suffix
        found = [self._symbols.get(text) for text in texts]
        known = [number for number in found if number is not None]
        if len(known) == len(found):
            return known
        return (
            self._start_unknown(texts)
            if self._options
            else [self._nothing if n is None else n for n in found]
        )

    def _start_unknown(self, texts: Sequence[str]) -> list[int]:
        """As `tokenizers` does it: bytes where they have tokens do not end a row of unknown characters."""
        options = self._options
        found: list[int] = []
        pending = 0
        for text in texts:
            number = self._symbols.get(text) if text in self._ids else None
            if number is not None:
                found += [self._nothing] * pending + [number]
                pending = 0
                continue
            numbers = byte_ids(text, self._ids) if options and options.has(FALLBACK) else None
            if numbers is not None:
                found += [self._symbol_of_id[item] for item in numbers]
            elif pending and options and options.has(FUSED):
                continue
            else:
                found += [self._nothing] * pending
                pending = 1
        return found + [self._nothing] * pending

    def _merge(self, symbols: list[int]) -> list[int]:
        """The lowest pair, the first of them, until there is none."""
        size, ranks, merged = self._size, self._ranks, self._merged
        pairs = [ranks.get(a * size + b, NEVER) for a, b in pairwise(symbols)]
        while pairs:
            rank = min(pairs)
            if rank == NEVER:
                break
            at = pairs.index(rank)
            symbols[at] = merged[rank]
            del symbols[at + 1], pairs[at]
            if at:
                pairs[at - 1] = ranks.get(symbols[at - 1] * size + symbols[at], NEVER)
            if at < len(pairs):
                pairs[at] = ranks.get(symbols[at] * size + symbols[at + 1], NEVER)
        return symbols

    def _merge_long(self, symbols: list[int]) -> list[int]:
        """The same with a heap and links: for long words without a place to cut."""
        following = [*range(1, len(symbols)), -1]
        preceding = list(range(-1, len(symbols) - 1))
        heap = [
            (rank, at) for at in range(len(symbols) - 1) if (rank := self._rank(symbols, at, at + 1)) != NEVER
        ]
        heapq.heapify(heap)
        while heap:
            rank, at = heapq.heappop(heap)
            after = following[at]
            if after < 0 or symbols[at] < 0 or self._rank(symbols, at, after) != rank:
                continue
            symbols[at], symbols[after] = self._merged[rank], -1
            beyond = following[at] = following[after]
            if beyond >= 0:
                preceding[beyond] = at
            for first, second in ((preceding[at], at), (at, beyond)):
                if first >= 0 and second >= 0 and (new := self._rank(symbols, first, second)) != NEVER:
                    heapq.heappush(heap, (new, first))
        return [number for number in symbols if number >= 0]

    def _rank(self, symbols: list[int], first: int, second: int) -> int:
        return self._ranks.get(symbols[first] * self._size + symbols[second], NEVER)
