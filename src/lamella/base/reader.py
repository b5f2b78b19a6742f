"""Reading binary formats: a position in bytes, where nothing is taken before it is known to be there."""

from __future__ import annotations

import struct

from lamella.base.errors import InputError
from lamella.base.limits import OutOfRange, mul


class Reader:
    """Little-endian fields one after another; every failure is an InputError with the byte offset.

    A reader of a part of some bytes counts its positions from the start of them all.
    """

    __slots__ = ("_data", "end", "position")

    def __init__(self, data: bytes | memoryview, start: int = 0, end: int | None = None) -> None:
        self._data = memoryview(data).toreadonly().cast("B")
        self.end = len(self._data) if end is None else min(end, len(self._data))
        self.position = start

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self._data)

    @property
    def remaining(self) -> int:
        """Bytes not yet read."""
        return self.end - self.position

    def part(self, size: int, what: str = "a block") -> Reader:
        """A reader of the next bytes, which are read by it and not by this one."""
        start = self._need(size, what)
        return Reader(self._data, start, start + size)

    def _need(self, size: int, what: str) -> int:
        """Claim bytes and give the offset at which they begin."""
        start = self.position
        if size < 0 or size > self.remaining:
            raise InputError(f"{what} needs {size} bytes, {self.remaining} are left", start)
        self.position = start + size
        return start

    def _integer(self, size: int, signed: bool) -> int:
        start, end = self.position, self.position + size
        if end > self.end:
            self._need(size, f"{'i' if signed else 'u'}{8 * size}")
        self.position = end
        return int.from_bytes(self._data[start:end], "little", signed=signed)

    def u8(self) -> int:
        """An unsigned byte."""
        return self._integer(1, signed=False)

    def u16(self) -> int:
        """An unsigned 16-bit integer."""
        return self._integer(2, signed=False)

    def u32(self) -> int:
        """An unsigned 32-bit integer."""
        return self._integer(4, signed=False)

    def u64(self) -> int:
        """An unsigned 64-bit integer."""
        return self._integer(8, signed=False)

    def i8(self) -> int:
        """A signed byte."""
        return self._integer(1, signed=True)

    def i16(self) -> int:
        """A signed 16-bit integer."""
        return self._integer(2, signed=True)

    def i32(self) -> int:
        """A signed 32-bit integer."""
        return self._integer(4, signed=True)

    def i64(self) -> int:
        """A signed 64-bit integer."""
        return self._integer(8, signed=True)

    def f32(self) -> float:
        """A single-precision number."""
        value: float = struct.unpack_from("<f", self._data, self._need(4, "f32"))[0]
        return value

    def f64(self) -> float:
        """A double-precision number."""
        value: float = struct.unpack_from("<d", self._data, self._need(8, "f64"))[0]
        return value

    def take(self, size: int, what: str = "a block") -> bytes:
        """The next bytes."""
        start = self._need(size, what)
        return bytes(self._data[start : start + size])

    def view(self, size: int, what: str = "a block") -> memoryview:
        """The next bytes where they lie, without a copy."""
        start = self._need(size, what)
        return self._data[start : start + size]

    def integers(self, code: str, count: int, what: str = "a list") -> tuple[int, ...]:
        """Integers in a row, all of the type that `struct` calls by a letter."""
        start = self._need(count * struct.calcsize(f"<{code}"), what)
        return struct.unpack_from(f"<{count}{code}", self._data, start)

    def f32s(self, count: int, what: str = "a list") -> tuple[float, ...]:
        """Single-precision numbers in a row."""
        return struct.unpack_from(f"<{count}f", self._data, self._need(4 * count, what))

    def string(self, size: int, what: str = "a string") -> str:
        """Strict UTF-8 of a given number of bytes, without NUL."""
        start = self.position
        data = self.take(size, what)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as problem:
            raise InputError(f"{what} is not UTF-8", start + problem.start) from None
        if "\0" in text:
            raise InputError(f"{what} holds a NUL character", start + data.index(0))
        return text

    def count(self, number: int, each: int, what: str = "a list") -> int:
        """A number of items, once it is certain that that many of them can still follow."""
        try:
            fits = number >= 0 and mul(number, each) <= self.remaining
        except OutOfRange:
            fits = False
        if not fits:
            raise InputError(
                f"{what} of {number} items needs {each} bytes each, {self.remaining} bytes are left",
                self.position,
            )
        return number

    def expect(self, magic: bytes, what: str) -> None:
        """Take bytes that must be these."""
        start = self.position
        if self.take(len(magic), what) != magic:
            raise InputError(f"this is not {what}: the bytes {magic!r} are missing", start)

    def finish(self, what: str) -> None:
        """Refuse bytes behind the last field."""
        if self.remaining:
            raise InputError(f"{self.remaining} bytes follow the end of {what}", self.position)
