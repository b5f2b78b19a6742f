"""Little-endian 32-bit words: how the binary form writes numbers, and a table of the texts that it names."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from lamella.base.errors import InputError
from lamella.base.reader import Reader

WORD = 4


class Words:
    """Words one after another; 64-bit numbers take two, the low one first."""

    def __init__(self) -> None:
        self.data = bytearray()

    def u32(self, *values: int) -> None:
        """Unsigned words."""
        self.data += struct.pack(f"<{len(values)}I", *values)

    def i64(self, values: Iterable[int]) -> None:
        """Signed numbers of two words each."""
        numbers = tuple(values)
        self.data += struct.pack(f"<{len(numbers)}q", *numbers)

    def f64(self, values: Iterable[float]) -> None:
        """Doubles of two words each."""
        numbers = tuple(values)
        self.data += struct.pack(f"<{len(numbers)}d", *numbers)

    def text(self, text: str) -> None:
        """The length in bytes, then UTF-8, filled up with zeros to a whole word."""
        data = text.encode("utf-8")
        self.u32(len(data))
        self.data += data + b"\0" * (-len(data) % WORD)


class TextTable:
    """Texts by number, in the order in which they were first asked for."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text."""
        return self.numbers.setdefault(text, len(self.numbers))


class WordReader:
    """Takes what `Words` wrote; every failure is an InputError with the byte offset."""

    def __init__(self, reader: Reader, texts: tuple[str, ...] = ()) -> None:
        self.reader = reader
        self.texts = texts

    def u32(self) -> int:
        """An unsigned word."""
        return self.reader.u32()

    def count(self, each: int, what: str) -> int:
        """A word that says how many things follow, each of at least so many bytes."""
        return self.reader.count(self.reader.u32(), each, what)

    def i64s(self, count: int) -> tuple[int, ...]:
        """Signed numbers of two words each."""
        data = self.reader.take(8 * self.reader.count(count, 8, "numbers"), "numbers")
        return struct.unpack(f"<{count}q", data)

    def f64s(self, count: int) -> tuple[float, ...]:
        """Doubles of two words each."""
        data = self.reader.take(8 * self.reader.count(count, 8, "numbers"), "numbers")
        return struct.unpack(f"<{count}d", data)

    def text(self) -> str:
        """A text of the table itself."""
        size = self.reader.u32()
        text = self.reader.string(size)
        if self.reader.take(-size % WORD, "padding").strip(b"\0"):
            raise self.wrong("padding is not zero")
        return text

    def named(self) -> str:
        """A text by its number in the table."""
        return self.text_at(self.reader.u32())

    def text_at(self, number: int) -> str:
        """The text of a number that was read."""
        if number >= len(self.texts):
            raise self.wrong(f"text {number} of {len(self.texts)} does not exist")
        return self.texts[number]

    def pick(self, number: int, among: tuple[str, ...], what: str) -> str:
        """A name by its number."""
        if number >= len(among):
            raise self.wrong(f"{number} is not the number of {what}")
        return among[number]

    def wrong(self, message: str) -> InputError:
        """An error at the present place."""
        return InputError(message, self.reader.position)
