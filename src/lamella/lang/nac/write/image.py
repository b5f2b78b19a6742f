"""The bytes of a file while they are written: fields are checked, and large blocks are not copied."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.source import Span
from lamella.lang.nac.nodes import Data
from lamella.lang.nac.rules import writing as rules

_LARGE = 4096
"""Blocks from this size on stay where they are until the file is written."""
_RANGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        **{code: (0, (1 << bits) - 1) for code, bits in (("B", 8), ("H", 16), ("I", 32), ("Q", 64))},
        **{code: (-(1 << bits - 1), (1 << bits - 1) - 1) for code, bits in (("h", 16), ("i", 32), ("q", 64))},
    }
)
"""What the integers hold that `struct` calls by a letter."""


class Image:
    """Pieces one behind the other; what a field cannot hold is a finding, and a zero in its place."""

    def __init__(self) -> None:
        self.findings: list[Diagnostic] = []
        self.section = "the header"
        self._pieces: list[Data] = []
        self._buffer = bytearray()
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes up to here."""
        return self._size + len(self._buffer)

    def pieces(self) -> tuple[Data, ...]:
        """All bytes in order."""
        self._flush()
        return tuple(self._pieces)

    def _flush(self) -> None:
        if self._buffer:
            self._pieces.append(bytes(self._buffer))
            self._size += len(self._buffer)
            self._buffer = bytearray()

    def begin(self, tag: str) -> int:
        """Begin a section with its tag; gives its offset."""
        start = self.size
        self.section = tag.strip()
        self._buffer += tag.encode()
        return start

    def report(self, rule: Rule, span: Span, **values: object) -> None:
        """A finding about a node."""
        self.findings.append(rule.at(span, hint=None, labels=(), **values))

    def block(self, data: Data) -> None:
        """Bytes as they are."""
        view = memoryview(data)
        view = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
        if len(view) < _LARGE:
            self._buffer += view
        else:
            self._flush()
            self._pieces.append(view)
            self._size += len(view)

    def number(self, code: str, value: int, what: str, span: Span) -> None:
        """An integer of the type that `struct` calls by a letter."""
        self._buffer += struct.pack(f"<{code}", value if self._fits(code, value, what, span) else 0)

    def numbers(self, code: str, values: tuple[int, ...], what: str, span: Span) -> None:
        """Integers in a row."""
        low, high = _RANGES[code]
        if values and (min(values) < low or max(values) > high):
            for index, value in enumerate(values):
                self._fits(code, value, f"{what}[{index}]", span)
        else:
            self._buffer += struct.pack(f"<{len(values)}{code}", *values)

    def text(self, code: str, text: str, what: str, span: Span) -> None:
        """The length of a text in bytes, then its bytes."""
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError:
            self.report(rules.UNWRITABLE_TEXT, span, what=what, problem="is not Unicode text")
            data = b""
        if 0 in data:
            self.report(rules.UNWRITABLE_TEXT, span, what=what, problem="holds a NUL character")
        self.number(code, len(data), f"the length of {what}", span)
        self.block(data)

    def _fits(self, code: str, value: int, what: str, span: Span) -> bool:
        low, high = _RANGES[code]
        if low <= value <= high:
            return True
        shown = value if value.bit_length() <= 128 else f"a {value.bit_length()}-bit number"
        values = {"what": what, "value": shown, "section": self.section, "low": low, "high": high}
        self.report(rules.FIELD_RANGE, span, **values)
        return False
