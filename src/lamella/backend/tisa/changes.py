"""Instructions that change texts: normal forms, replacements, what is put before them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from types import MappingProxyType

from lamella.backend.tisa.patterns import Matcher, Node
from lamella.backend.tisa.patterns.nodes import One

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
class Change:
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


def fuse(changes: Sequence[Change]) -> list[Change]:
    """The same changes, neighbours that change single characters made one."""
    found: list[Change] = []
    for single, group in groupby(changes, lambda change: change.single):
        row = list(group)
        found += [characterwise(*(change.apply for change in row))] if single and len(row) > 1 else row
    return found


def characterwise(*steps: Text) -> Change:
    """A change of each character by itself, one step after another."""

    def change(character: str) -> str:
        for step in steps:
            character = step(character)
        return character

    table = _Characters(change)
    return Change(lambda text: text.translate(table), single=True)


def lower() -> Change:
    """LOWERCASE."""
    return Change(str.lower)


def normalize(form: str) -> Change:
    """UNICODE_NORM."""
    return Change(_FORMS[form])


def replace(old: str, new: str) -> Change:
    """REPLACE."""
    return Change(lambda text: text.replace(old, new), single=len(old) == 1)


def drop_categories(names: Sequence[str]) -> Change:
    """FILTER_CATEGORY; `L` stands for all categories of letters."""
    dropped = frozenset(names)

    def change(character: str) -> str:
        name = unicodedata.category(character)
        return "" if name in dropped or name[0] in dropped else character

    return characterwise(change)


def replace_pattern(mode: int, node: Node, value: str) -> Change:
    """REPLACE_PATTERN."""

    def changed(match: str) -> str:
        return value if mode == REPLACE else f"{value}{match}{value}"

    if isinstance(node, One):
        chars = node.chars
        return characterwise(lambda item: changed(item) if item in chars else item)
    matcher = Matcher([node])
    return Change(lambda text: matcher.replace(text, changed))


def prepend(value: str, always: bool = False, start: bool = False) -> Change:
    """PREPEND and PREPEND_WHERE; nothing is put before an empty text."""

    def change(text: str) -> str:
        return value + text if text and (always or not text.startswith(value)) else text

    return Change(change, start=start)


def byte_alphabet() -> tuple[str, ...]:
    """The character that stands for each byte: printable ones for themselves, the others from U+0100 on."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    named = {byte: chr(byte) for byte in shown} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}
    return tuple(named[byte] for byte in range(256))


def encode_bytes() -> Change:
    """BYTE_ENCODE."""
    alphabet = {ord(bytes([byte]).decode("latin-1")): item for byte, item in enumerate(byte_alphabet())}
    return Change(lambda text: text.encode("utf-8", "replace").decode("latin-1").translate(alphabet))
