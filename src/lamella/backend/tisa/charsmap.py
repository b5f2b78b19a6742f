"""CHARSMAP: the table by which sentencepiece changes characters, a trie in one array with the texts behind it."""

from __future__ import annotations

from lamella.backend.tisa.changes import Change, characterwise
from lamella.backend.tisa.patterns import Matcher, parse_pattern
from lamella.base.errors import InputError
from lamella.base.reader import Reader

LONGEST_CLUSTER = 5
"""Bytes of a character with its marks that is looked up as a whole."""
LONGEST_TEXT = 256
_CLUSTER = r"\r\n|[^\p{Cc}\p{Zl}\p{Zp}\p{M}][\p{M}\x{200C}\x{200D}]+"
_VALUE, _LABEL = (1 << 31) - 1, (1 << 31) | 0xFF


class CharacterMap:
    """Texts by the keys that begin a text."""

    def __init__(self, data: bytes | memoryview) -> None:
        reader = Reader(data)
        size = reader.u32()
        if size % 4:
            raise InputError(f"a trie of {size} bytes has no whole units", 0)
        self._units = reader.integers("I", reader.count(size // 4, 4, "a trie"), "a trie")
        self._texts = bytes(reader.view(reader.remaining))
        texts = self._texts.split(b"\0")
        if max(map(len, texts)) > LONGEST_TEXT:
            raise InputError(f"a text has more than {LONGEST_TEXT} bytes", 4 + size)
        self.longest = max(len(text.decode("utf-8", "replace")) for text in texts)

    def find(self, chunk: str) -> str | None:
        """The text of the shortest key with which a chunk begins."""
        node, units = 0, self._units
        unit = units[0] if units else 0
        node ^= _offset(unit)
        for byte in chunk.encode("utf-8", "replace"):
            node ^= byte
            if not byte or node >= len(units) or units[node] & _LABEL != byte:
                return None
            unit = units[node]
            node ^= _offset(unit)
            if unit >> 8 & 1:
                return self._text(units[node] & _VALUE) if node < len(units) else None
        return None

    def _text(self, start: int) -> str:
        end = self._texts.find(b"\0", start)
        return self._texts[start : end if end >= 0 else None].decode("utf-8", "replace")

    def change(self) -> Change:
        """The change of whole texts: characters with their marks first, then characters."""
        clusters = Matcher([parse_pattern(_CLUSTER)])
        single = characterwise(self._character).apply

        def apply(text: str) -> str:
            pieces, at = list[str](), 0
            for start, end, _ in clusters.find(text) if not text.isascii() or "\r\n" in text else ():
                found = self._cluster(text[start:end])
                pieces += [single(text[at:start]), single(text[start:end]) if found is None else found]
                at = end
            return "".join(pieces) + single(text[at:])

        return Change(apply)

    def _character(self, character: str) -> str:
        found = self.find(character)
        return character if found is None else found

    def _cluster(self, cluster: str) -> str | None:
        short = len(cluster.encode("utf-8", "replace")) <= LONGEST_CLUSTER
        return self.find(cluster) if short else None


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)
