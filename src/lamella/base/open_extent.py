"""Extents that a graph leaves open, with the numbers of one call.

Kernels are written for these numbers. The mark is a hint and nothing else: where it is found, a kernel is written so
that its text differs for other numbers in constants alone, and its machine code serves those too
(`kernels/open_numbers.py`); where it got lost, a kernel is written for its number.
"""

from __future__ import annotations

from typing import cast


class OpenExtent(int):
    """An extent that another call may have another number for; integers that are computed of it are marked too."""

    __slots__ = ()

    def __add__(self, other: int) -> int:
        return _marked(int.__add__(self, other))

    def __radd__(self, other: int) -> int:
        return _marked(int.__radd__(self, other))

    def __sub__(self, other: int) -> int:
        return _marked(int.__sub__(self, other))

    def __rsub__(self, other: int) -> int:
        return _marked(int.__rsub__(self, other))

    def __mul__(self, other: int) -> int:
        return _marked(int.__mul__(self, other))

    def __rmul__(self, other: int) -> int:
        return _marked(int.__rmul__(self, other))

    def __floordiv__(self, other: int) -> int:
        return _marked(int.__floordiv__(self, other))

    def __rfloordiv__(self, other: int) -> int:
        return _marked(int.__rfloordiv__(self, other))

    def __mod__(self, other: int) -> int:
        return _marked(int.__mod__(self, other))

    def __rmod__(self, other: int) -> int:
        return _marked(int.__rmod__(self, other))

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[int, int]:
        return other // self, other % self

    def __neg__(self) -> int:
        return _marked(int.__neg__(self))


def _marked(value: object) -> int:
    # What an integer does not compute with is `NotImplemented`, and left to the other operand.
    return OpenExtent(value) if isinstance(value, int) else cast(int, value)


def is_open(extent: object) -> bool:
    """Whether another call may have another number for an extent."""
    return isinstance(extent, OpenExtent)
