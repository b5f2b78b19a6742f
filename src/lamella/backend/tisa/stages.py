"""Stages of an encoder: normalisation, splitting, added tokens, joined to one function with a cache of pieces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from types import MappingProxyType
from typing import NamedTuple

from lamella.backend.tisa.patterns import Matcher, Node, parse_pattern
from lamella.backend.tisa.patterns.nodes import SPACE, One, Repeat, word
from lamella.lang.nac.assembly.nodes import StepOperand

# --- instructions that change texts: normal forms, replacements, what is put before them --------------------


Text = Callable[[str], str]
_FORMS: Mapping[str, Text] = MappingProxyType(
    {
        "NFC": partial(unicodedata.normalize, "NFC"),
        "NFD": partial(unicodedata.normalize, "NFD"),
        "NFKC": partial(unicodedata.normalize, "NFKC"),
        "NFKD": partial(unicodedata.normalize, "NFKD"),
    }
)
REPLACE, SURROUND = 0, 1
"""What REPLACE_PATTERN does with its value: it stands instead of a match, or on both sides of it."""


@dataclass(frozen=True, slots=True)
class TextChange:
    """A function of texts; one that changes each character by itself can be joined with the next such one."""

    apply: Text
    single: bool = False
    start: bool = False
    """Whether only the part that begins a text is changed."""


class _Characters(dict[int, str]):
    """What each character becomes, found out when it first comes up."""

    def __init__(self, change: Text) -> None:
        super().__init__()
        self._change = change

    def __missing__(self, code: int) -> str:
        found = self[code] = self._change(chr(code))
        return found


def fuse(changes: Sequence[TextChange]) -> list[TextChange]:
    """The same changes, neighbours that change single characters made one."""
    found: list[TextChange] = []
    for single, group in groupby(changes, lambda change: change.single):
        row = list(group)
        found += [characterwise(*(change.apply for change in row))] if single and len(row) > 1 else row
    return found


def characterwise(*steps: Text) -> TextChange:
    """A change of each character by itself, one step after another."""

    def change(character: str) -> str:
        for step in steps:
            character = step(character)
        return character

    table = _Characters(change)
    return TextChange(lambda text: text.translate(table), single=True)


def lower() -> TextChange:
    """LOWERCASE."""
    return TextChange(str.lower)


def normalize(form: str) -> TextChange:
    """UNICODE_NORM."""
    return TextChange(_FORMS[form])


def replace(old: str, new: str) -> TextChange:
    """REPLACE."""
    return TextChange(lambda text: text.replace(old, new), single=len(old) == 1)


def drop_categories(names: Sequence[str]) -> TextChange:
    """FILTER_CATEGORY; `L` stands for all categories of letters."""
    dropped = frozenset(names)

    def change(character: str) -> str:
        name = unicodedata.category(character)
        return "" if name in dropped or name[0] in dropped else character

    return characterwise(change)


def replace_pattern(mode: int, node: Node, value: str) -> TextChange:
    """REPLACE_PATTERN."""

    def changed(match: str) -> str:
        return value if mode == REPLACE else f"{value}{match}{value}"

    if isinstance(node, One):
        chars = node.chars
        return characterwise(lambda item: changed(item) if item in chars else item)
    matcher = Matcher([node])
    return TextChange(lambda text: matcher.replace(text, changed))


def prepend(value: str, always: bool = False, start: bool = False) -> TextChange:
    """PREPEND and PREPEND_WHERE; nothing is put before an empty text."""

    def change(text: str) -> str:
        return value + text if text and (always or not text.startswith(value)) else text

    return TextChange(change, start=start)


def byte_alphabet() -> tuple[str, ...]:
    """The character that stands for each byte: printable ones for themselves, the others from U+0100 on."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    named = {byte: chr(byte) for byte in shown} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}
    return tuple(named[byte] for byte in range(256))


def encode_bytes() -> TextChange:
    """BYTE_ENCODE."""
    alphabet = {ord(bytes([byte]).decode("latin-1")): item for byte, item in enumerate(byte_alphabet())}
    return TextChange(lambda text: text.encode("utf-8", "replace").decode("latin-1").translate(alphabet))


Piece = str | int
"""A text that is still open, or an id that is settled."""
REMOVE, ISOLATE = 1, 2
REMOVED, ISOLATED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS = range(5)
"""What SPLIT does with matches."""
SPECIAL, STRIP_LEFT, STRIP_RIGHT, NORMALIZED, SINGLE_WORD = 1, 2, 4, 8, 16
"""Flags of added tokens."""


@dataclass(frozen=True, slots=True)
class Cutter:
    """A function that cuts texts into smaller ones."""

    apply: Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Settling:
    """A function that finds ids in texts, and leaves the texts between them open."""

    apply: Callable[[str], Sequence[Piece]]


# --- partition ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """A rule of PARTITION_RULES; a protected match is a token."""

    node: Node
    protected: bool = False
    behaviour: int = ISOLATE
    trim: str = ""


def partition(rules: Sequence[PartitionRule], look_up: Callable[[str], int]) -> Cutter | Settling:
    """PARTITION_RULES; `look_up` gives the ids of protected matches."""
    matcher = Matcher([rule.node for rule in rules])
    if all(rule == PartitionRule(rule.node) for rule in rules):
        return Cutter(matcher.cut)
    if len(rules) == 1 and rules[0] == PartitionRule(rules[0].node, behaviour=REMOVE):
        return split(REMOVED, False, rules[0].node)

    def settle(text: str) -> list[Piece]:
        return list(_partition(text, rules, matcher, look_up))

    def cut(text: str) -> list[str]:
        return [piece for piece in settle(text) if isinstance(piece, str)]

    return Settling(settle) if any(rule.protected for rule in rules) else Cutter(cut)


def _partition(
    text: str, rules: Sequence[PartitionRule], matcher: Matcher, look_up: Callable[[str], int]
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


def split(behaviour: int, inverted: bool, node: Node) -> Cutter:
    """SPLIT."""
    matcher = Matcher([node])
    if behaviour == ISOLATED or (behaviour == REMOVED and inverted):
        return Cutter(matcher.matches if behaviour == REMOVED else matcher.cut)
    loop = node.item if isinstance(node, Repeat) and node.low < 2 and node.high is None else node
    if behaviour == REMOVED and isinstance(loop, One):
        return Cutter(Matcher([Repeat(One(~loop.chars), 1, None)]).matches)

    def apply(text: str) -> list[str]:
        return [text[start:end] for start, end in _BEHAVIOURS[behaviour](_parts(text, matcher, inverted))]

    return Cutter(apply)


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
class AddedToken:
    """A token of ADDED_TOKENS."""

    flags: int
    id: int
    text: str


class _Finder:
    """Finds added tokens, the longest at the leftmost place."""

    def __init__(self, tokens: Sequence[AddedToken]) -> None:
        self._tokens = {token.text: token for token in tokens}
        lengths: dict[str, set[int]] = {}
        for text in self._tokens:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}
        self._starts = re.compile("[" + "".join(map(re.escape, sorted(lengths))) + "]")

    def find(self, text: str) -> Iterator[tuple[int, AddedToken]]:
        """Places and tokens from left to right."""
        at = 0
        for found in self._starts.finditer(text):
            start = found.start()
            sizes = self._lengths[found[0]] if start >= at else ()
            token = next(filter(None, (self._tokens.get(text[start : start + size]) for size in sizes)), None)
            if token is not None:
                at = start + len(token.text)
                yield start, token


def added_tokens(tokens: Sequence[AddedToken]) -> Settling:
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


# --- the table of stages -------------------------------------------------------------------------------------


Operands = tuple[StepOperand, ...]
Stage = TextChange | Cutter | Settling


def _number(operand: object) -> int:
    return operand if isinstance(operand, int) else 0


def _pattern(operand: StepOperand) -> Node:
    return parse_pattern(str(operand))


STAGES: Mapping[str, Callable[[Operands], Stage]] = MappingProxyType(
    {
        "LOWERCASE": lambda _: lower(),
        "UNICODE_NORM": lambda given: normalize(str(given[0])),
        "REPLACE": lambda given: replace(str(given[0]), str(given[1])),
        "FILTER_CATEGORY": lambda given: drop_categories([str(item) for item in given]),
        "PREPEND": lambda given: prepend(str(given[0])),
        "PREPEND_WHERE": lambda given: prepend(
            str(given[1]), bool(_number(given[0]) & 1), bool(_number(given[0]) & 2)
        ),
        "REPLACE_PATTERN": lambda given: replace_pattern(
            _number(given[0]), _pattern(given[1]), str(given[2])
        ),
        "BYTE_ENCODE": lambda _: encode_bytes(),
        "SPLIT": lambda given: split(_number(given[0]), bool(given[1]), _pattern(given[2])),
    }
)
"""Stages that need nothing but the operands of their instruction."""


# --- stages joined to one function: pieces of a text are encoded once and remembered ------------------------


Encode = Callable[[str], Sequence[int]]
MOST_KEPT = 1 << 16
LONGEST_KEPT = 128
"""Pieces that are remembered, and their characters."""
MOST_IDS_KEPT = 4 * LONGEST_KEPT


class _PieceCache(dict[str, Sequence[int]]):
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


def join(stages: Sequence[TextChange | Cutter | Settling], encode: Encode) -> Encode:
    """The whole way from a text to ids."""
    ends = _Ends(encode, encode)
    for stage in reversed(stages):
        ends = _before_change(stage, ends) if isinstance(stage, TextChange) else _before_cut(stage, ends)
    return ends.first


def _before_change(change: TextChange, ends: _Ends) -> _Ends:
    first = _then(change, ends.first)
    if change.start:
        return _Ends(first, ends.rest)
    return _Ends(first, first if ends.rest is ends.first else _then(change, ends.rest))


def _then(change: TextChange, encode: Encode) -> Encode:
    apply = change.apply
    return lambda text: encode(apply(text))


def _before_cut(cut: Cutter | Settling, ends: _Ends) -> _Ends:
    if isinstance(cut, Settling):
        rest = _settled(cut, ends.rest, ends.rest)
        return _Ends(rest if ends.first is ends.rest else _settled(cut, ends.first, ends.rest), rest)
    memory = _PieceCache(ends.rest)
    rest = _remembered(cut, memory)
    return _Ends(rest if ends.first is ends.rest else _opened(cut, ends.first, memory), rest)


def _remembered(cut: Cutter, memory: _PieceCache) -> Encode:
    look_up, apply = memory.__getitem__, cut.apply
    return lambda text: list(chain.from_iterable(map(look_up, apply(text))))


def _opened(cut: Cutter, first: Encode, memory: _PieceCache) -> Encode:
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
