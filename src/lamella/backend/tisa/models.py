"""Models of tokenizers: byte pair encoding, word pieces, and unigram by Viterbi."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from lamella.backend.tisa.vocabulary import Vocabulary

# --- options of encoders, and byte pair encoding: the adjacent pair of the lowest rank merges first ---------


FALLBACK, FUSED, WHOLE = 1, 2, 4
"""Flags of ENCODE_OPTIONS: bytes for unknown characters, one token for a row of them, words of the vocabulary first."""


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """The operands of ENCODE_OPTIONS; `unknown` is the id for what has none, or None where it is left out."""

    flags: int
    longest: int
    unknown: int | None
    prefix: str = ""

    def has(self, flag: int) -> bool:
        """Whether a flag is set."""
        return bool(self.flags & flag)


def published_unknown(ids: Mapping[str, int]) -> int:
    """The id for unknown characters where nothing else is said."""
    return ids.get("<unk>", ids.get("[UNK]", 0))


def byte_ids(text: str, ids: Mapping[str, int]) -> list[int] | None:
    """The ids of the tokens `<0x41>` for the bytes of a text, or None where one is missing."""
    found = [ids.get(f"<0x{byte:02X}>") for byte in text.encode("utf-8", "replace")]
    known = [number for number in found if number is not None]
    return known if len(known) == len(found) else None


NEVER = 1 << 62
LONG = 400
"""Symbols from which on a heap is faster than looking at all pairs."""
_MARK = "▁"
_MARKED = re.compile(f"{_MARK}+[^{_MARK}]*|[^{_MARK}]+")


class BytePairs:
    """Merges by rank on small numbers, one for each text that can come up."""

    def __init__(self, vocabulary: Vocabulary, options: EncodeOptions | None, suffix: str) -> None:
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


# --- word pieces: longest match from the left ---------------------------------------------------------------


LONGEST_PIECE = 1024
"""Characters of a piece that is looked for."""


def lengths_of(tokens: Iterable[str]) -> tuple[int, ...]:
    """The lengths of some tokens, the longest first."""
    return tuple(sorted({len(token) for token in tokens if 0 < len(token) <= LONGEST_PIECE}, reverse=True))


class WordPieces:
    """Pieces that begin a word, and those that continue it behind a marker."""

    def __init__(self, vocabulary: Vocabulary, options: EncodeOptions | None, marker: str) -> None:
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


# --- unigram: the segmentation with the largest sum of scores -----------------------------------------------


LONGEST = 49
"""Characters of a piece that the published instruction looks for."""
PENALTY = 10.0
"""How much less likely than the least likely piece an unknown character is."""
NOWHERE = float("-inf")


class LikeliestPieces:
    """Scores by piece, with the lengths that pieces beginning with a character have."""

    def __init__(self, vocabulary: Vocabulary, options: EncodeOptions | None) -> None:
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
