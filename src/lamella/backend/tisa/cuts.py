"""Instructions that cut texts: rules of a partition, splits, and tokens that are found before all others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lamella.backend.tisa.patterns import Matcher, Node
from lamella.backend.tisa.patterns.nodes import One, Repeat
from lamella.backend.tisa.patterns.sets import SPACE, word

Piece = str | int
"""A text that is still open, or an id that is settled."""
REMOVE, ISOLATE = 1, 2
REMOVED, ISOLATED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS = range(5)
"""What SPLIT does with matches."""
SPECIAL, STRIP_LEFT, STRIP_RIGHT, NORMALIZED, SINGLE_WORD = 1, 2, 4, 8, 16
"""Flags of added tokens."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A function that cuts texts into smaller ones."""

    apply: Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Settling:
    """A function that finds ids in texts, and leaves the texts between them open."""

    apply: Callable[[str], Sequence[Piece]]


# --- partition ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of PARTITION_RULES; a protected match is a token."""

    node: Node
    protected: bool = False
    behaviour: int = ISOLATE
    trim: str = ""


def partition(rules: Sequence[Rule], look_up: Callable[[str], int]) -> Cut | Settling:
    """PARTITION_RULES; `look_up` gives the ids of protected matches."""
    matcher = Matcher([rule.node for rule in rules])
    if all(rule == Rule(rule.node) for rule in rules):
        return Cut(matcher.cut)
    if len(rules) == 1 and rules[0] == Rule(rules[0].node, behaviour=REMOVE):
        return split(REMOVED, False, rules[0].node)

    def settle(text: str) -> list[Piece]:
        return list(_partition(text, rules, matcher, look_up))

    def cut(text: str) -> list[str]:
        return [piece for piece in settle(text) if isinstance(piece, str)]

    return Settling(settle) if any(rule.protected for rule in rules) else Cut(cut)


def _partition(
    text: str, rules: Sequence[Rule], matcher: Matcher, look_up: Callable[[str], int]
) -> Iterator[Piece]:
    at = 0
    for start, end, number in matcher.find(text):
        rule = rules[number]
        before = text[at:start]
        if rule.trim:
            before = before.removesuffix(rule.trim)
        if before:
            yield before
        if rule.behaviour != REMOVE:
            yield look_up(text[start:end].removeprefix(" ")) if rule.protected else text[start:end]
        at = end
    if at < len(text):
        yield text[at:]


# --- splits -------------------------------------------------------------------------------------------------


def split(behaviour: int, inverted: bool, node: Node) -> Cut:
    """SPLIT."""
    matcher = Matcher([node])
    if behaviour == ISOLATED or (behaviour == REMOVED and inverted):
        return Cut(matcher.matches if behaviour == REMOVED else matcher.cut)
    loop = node.item if isinstance(node, Repeat) and node.low < 2 and node.high is None else node
    if behaviour == REMOVED and isinstance(loop, One):
        return Cut(Matcher([Repeat(One(~loop.chars), 1, None)]).matches)

    def apply(text: str) -> list[str]:
        return [text[start:end] for start, end in _BEHAVIOURS[behaviour](_parts(text, matcher, inverted))]

    return Cut(apply)


Part = tuple[int, int, bool]


def _parts(text: str, matcher: Matcher, inverted: bool) -> list[Part]:
    """Matches and what lies between them."""
    parts, at = list[Part](), 0
    for start, end, _ in matcher.find(text):
        parts += [(at, start, inverted), (start, end, not inverted)]
        at = end
    return [part for part in (*parts, (at, len(text), inverted)) if part[0] < part[1]]


def _removed(parts: Sequence[Part]) -> list[tuple[int, int]]:
    return [(start, end) for start, end, match in parts if not match]


def _with_previous(parts: Sequence[Part]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    matched = False
    for start, end, match in parts:
        if match and not matched and found:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
        matched = match
    return found


def _with_next(parts: Sequence[Part]) -> list[tuple[int, int]]:
    turned = _with_previous([(-end, -start, match) for start, end, match in reversed(parts)])
    return [(-end, -start) for start, end in reversed(turned)]


def _contiguous(parts: Sequence[Part]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    matched = False
    for start, end, match in parts:
        if found and match == matched:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
        matched = match
    return found


_BEHAVIOURS = {
    REMOVED: _removed,
    WITH_PREVIOUS: _with_previous,
    WITH_NEXT: _with_next,
    CONTIGUOUS: _contiguous,
}


# --- added tokens -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Added:
    """A token of ADDED_TOKENS."""

    flags: int
    id: int
    text: str


class _Finder:
    """Finds added tokens, the longest at the leftmost place."""

    def __init__(self, tokens: Sequence[Added]) -> None:
        self._tokens = {token.text: token for token in tokens}
        lengths: dict[str, set[int]] = {}
        for text in self._tokens:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}
        self._starts = re.compile("[" + "".join(map(re.escape, sorted(lengths))) + "]")

    def find(self, text: str) -> Iterator[tuple[int, Added]]:
        """Places and tokens from left to right."""
        at = 0
        for found in self._starts.finditer(text):
            start = found.start()
            sizes = self._lengths[found[0]] if start >= at else ()
            token = next(filter(None, (self._tokens.get(text[start : start + size]) for size in sizes)), None)
            if token is not None:
                at = start + len(token.text)
                yield start, token


def added_tokens(tokens: Sequence[Added]) -> Settling:
    """ADDED_TOKENS."""
    if not tokens:
        return Settling(lambda text: [text])
    finder = _Finder(tokens)

    def apply(text: str) -> list[Piece]:
        pieces: list[Piece] = []
        at = 0
        for start, token in finder.find(text):
            end = start + len(token.text)
            if token.flags & SINGLE_WORD and not _alone(text, start, end):
                continue
            if token.flags & STRIP_LEFT:
                start = _skip_back(text, start, at)
            if token.flags & STRIP_RIGHT:
                end = _skip(text, end)
            pieces += [text[at:start], token.id] if at < start else [token.id]
            at = end
        return [*pieces, text[at:]] if at < len(text) else pieces

    return Settling(apply)


def _alone(text: str, start: int, end: int) -> bool:
    """Whether neither neighbour is a character of a word."""
    joined = word()
    return not (text[start - 1 : start] and text[start - 1] in joined) and not (
        end < len(text) and text[end] in joined
    )


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at


def _skip_back(text: str, at: int, least: int) -> int:
    while at > least and text[at - 1] in SPACE:
        at -= 1
    return at
