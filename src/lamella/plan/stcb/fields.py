"""JSON values taken one by one: each is of the kind that is asked for, or the stream is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from lamella.base.limits import LARGEST, SMALLEST
from lamella.plan.stcb.nodes import bad_stream

Json = object
T = TypeVar("T")


class Fields:
    """An object whose fields are taken one by one; what is left over is an error."""

    def __init__(self, value: Json, what: str) -> None:
        if not isinstance(value, dict):
            raise bad_stream(f"{what} is not an object")
        self.fields: dict[str, Json] = dict(value)
        self.what = what

    def take(self, name: str, read: Callable[[Json, str], T]) -> T:
        """A field that must be there."""
        if name not in self.fields:
            raise bad_stream(f"{self.what} has no '{name}'")
        return read(self.fields.pop(name), f"'{name}' of {self.what}")

    def take_or(self, name: str, read: Callable[[Json, str], T], default: T) -> T:
        """A field that may be left out."""
        return self.take(name, read) if name in self.fields else default

    def only(self, name: str, read: Callable[[Json, str], T]) -> T:
        """The one field of the object."""
        found = self.take(name, read)
        self.finish()
        return found

    def finish(self) -> None:
        """Refuse fields that nobody knows."""
        for name in self.fields:
            raise bad_stream(f"{self.what} has an unknown field '{name[:80]}'")


def any_value(value: Json, what: str) -> Json:
    """Whatever it is."""
    return value


def text(value: Json, what: str) -> str:
    """A string that can be written as UTF-8, without NUL."""
    if not isinstance(value, str) or "\0" in value or not _is_unicode(value):
        raise bad_stream(f"{what} is not a text")
    return value


def _is_unicode(value: str) -> bool:
    """Whether a text can be written as UTF-8: JSON can name half of a surrogate pair."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def integer(value: Json, what: str) -> int:
    """A signed 64-bit integer."""
    if not isinstance(value, int) or isinstance(value, bool) or not SMALLEST <= value <= LARGEST:
        raise bad_stream(f"{what} is not a 64-bit integer")
    return value


def natural(value: Json, what: str) -> int:
    """A 64-bit integer that is not negative."""
    found = integer(value, what)
    if found < 0:
        raise bad_stream(f"{what} is {found}; it must not be negative")
    return found


def number(value: Json, what: str) -> float:
    """A finite number that is written as one, with a point or an exponent."""
    if not isinstance(value, float) or not math.isfinite(value):
        raise bad_stream(f"{what} is not a finite number with a point")
    return value


def true(value: Json, what: str) -> bool:
    """A flag: where it is not set it is left out."""
    if value is not True:
        raise bad_stream(f"{what} is true or left out")
    return True


def items(value: Json, what: str) -> list[Json]:
    """A list of anything."""
    if not isinstance(value, list):
        raise bad_stream(f"{what} is not a list")
    return value


def integers(value: Json, what: str) -> tuple[int, ...]:
    """A list of 64-bit integers."""
    return tuple(integer(item, what) for item in items(value, what))


def index_or_none(value: Json, what: str) -> int | None:
    """A place in a table, or null."""
    return None if value is None else natural(value, what)


def text_or_none(value: Json, what: str) -> str | None:
    """A string, or null."""
    return None if value is None else text(value, what)
