"""Attributes: what a program adds to a parameter, a function or an instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.source import Span, where


@dataclass(frozen=True, slots=True)
class Entry:
    """`key = value` of a dictionary; a key that is not one of the language's words was written as a string."""

    key: str
    value: Attribute
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Dictionary:
    """`{key = value, …}`; the order of the text means nothing, so the parser sorts the entries by key."""

    entries: tuple[Entry, ...] = ()
    span: Span = where()

    def find(self, key: str) -> Attribute | None:
        """The value of a key; None where it is absent."""
        return next((item.value for item in self.entries if item.key == key), None)


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    value: str


Attribute: TypeAlias = bool | int | Text | tuple["Attribute", ...] | Dictionary
KEYS = ("alignment", "shape_gcd", "stride_gcd", "subgroup_size", "unroll", "work_group_size")
