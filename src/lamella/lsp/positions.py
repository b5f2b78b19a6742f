"""Places as editors count them: lines from 0, and in a line the units of UTF-16 (or of what was agreed on)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

UTF8, UTF16, UTF32 = "utf-8", "utf-16", "utf-32"
_BREAKS = re.compile(r"\r\n|\n|\r")


class LineTable:
    """The lines of a text; unlike those of a `Source`, a lone carriage return ends one, as the protocol says."""

    def __init__(self, text: str, encoding: str = UTF16) -> None:
        self.text = text
        self.encoding = encoding
        self._starts = [0, *(match.end() for match in _BREAKS.finditer(text))]
        self._is_plain = encoding == UTF32 or text.isascii()

    def place(self, offset: int) -> tuple[int, int]:
        """Line and character of an offset in code points."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset) - 1
        start = self._starts[line]
        return line, offset - start if self._is_plain else self._units(self.text[start:offset])

    def stretches(self, items: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
        """Line, character and width of stretches of single lines, by their offsets, in order."""
        line, starts = 0, [*self._starts, len(self.text) + 1]
        for first, last in items:
            while starts[line + 1] <= first:
                line += 1
            start = starts[line]
            if self._is_plain:
                yield line, first - start, last - first
            else:
                yield line, self._units(self.text[start:first]), self._units(self.text[first:last])

    def offset(self, line: int, character: int) -> int:
        """The offset of a place; one beyond the end of its line is that end, one inside a character its start."""
        if line >= len(self._starts):
            return len(self.text)
        start, end = self._starts[line], self._end(line)
        if self._is_plain:
            return min(start + character, end)
        position, left = start, character
        while position < end and left >= (width := self._units(self.text[position])):
            left -= width
            position += 1
        return position

    def _end(self, line: int) -> int:
        """The offset where a line ends, its break left out."""
        if line + 1 >= len(self._starts):
            return len(self.text)
        end = self._starts[line + 1]
        return end - (2 if self.text.endswith("\r\n", 0, end) else 1)

    def _units(self, text: str) -> int:
        if self.encoding == UTF8:
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text) + sum(character > "\uffff" for character in text)
