"""Symbol tables of the assembly text: names and values stand for ids wherever that is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from lamella.base.source import Span
from lamella.lang.nac.nodes import (
    Constant,
    ConstantType,
    ConstantValue,
    File,
    Operation,
    Parameter,
    Signature,
)
from lamella.lang.nac.operations import FIRST_CUSTOM, LAST, standard_operations

R = TypeVar("R")
LAST_CONSTANT = 32767
"""The largest id of a constant or a parameter that field C can hold."""


class AssemblyTable(Generic[R]):
    """Records with ids and meanings; a meaning stands for the first record that has it.

    A meaning without a record gets one, under the next id that is free.
    """

    def __init__(self, first: int, last: int, make: Callable[[int, str, Span], R]) -> None:
        self.last = last
        self.added: dict[int, R] = {}
        self._next = first
        self._make = make
        self._ids: dict[str, int] = {}
        self._meanings: dict[int, str] = {}

    def fill(self, records: Iterable[tuple[int, str]]) -> None:
        """Take the records of a file, id and meaning each."""
        for number, meaning in records:
            self._ids.setdefault(meaning, number)
            self._meanings.setdefault(number, meaning)

    def meaning(self, number: int) -> str | None:
        """What an id stands for, if the meaning stands for that id in turn."""
        meaning = self._meanings.get(number)
        return meaning if meaning is not None and self._ids[meaning] == number else None

    def codes(self, number: int) -> str | None:
        """What an id stands for, whichever other ids stand for the same."""
        return self._meanings.get(number)

    def find(self, meaning: str) -> int | None:
        """The id of a meaning that has one."""
        return self._ids.get(meaning)

    def id_of(self, meaning: str, span: Span, first: int = 0) -> int | None:
        """The id of a meaning, a new one where it has none; None where no id is left."""
        found = self._ids.get(meaning)
        return self._add(meaning, span, first) if found is None else found

    def _add(self, meaning: str, span: Span, first: int) -> int | None:
        number = first if first and first not in self._meanings else self._free()
        if number > self.last:
            return None
        self._ids[meaning] = number
        self._meanings[number] = meaning
        self.added[number] = self._make(number, meaning, span)
        return number

    def _free(self) -> int:
        while self._next in self._meanings:
            self._next += 1
        return self._next

    def sorted(self) -> tuple[R, ...]:
        """The records that were added, by id."""
        return tuple(self.added[number] for number in sorted(self.added))


def constant_key(type_: ConstantType, value: ConstantValue) -> str:
    """What tells a constant from all others: 1, 1.0 and true are three, and so are 0.0 and -0.0 two."""
    return f"{type_.value} {value!r}"


class AssemblyTables:
    """The four tables that instructions refer to, and the standard operations of the file's version."""

    def __init__(self, version: str) -> None:
        self.operations = AssemblyTable(FIRST_CUSTOM, LAST, Operation)
        self.signatures = AssemblyTable(1, LAST, Signature)
        self.parameters = AssemblyTable(1, LAST_CONSTANT, Parameter)
        self.values: dict[str, ConstantValue] = {}
        self.types: dict[str, ConstantType] = {}
        self.constants = AssemblyTable(2, LAST_CONSTANT, self._constant)
        self.standard: Mapping[int, str] = standard_names(version)
        self._standard_ids = {name: number for number, name in self.standard.items()}

    def _constant(self, number: int, key: str, span: Span) -> Constant:
        return Constant(number, self.types[key], self.values[key], span)

    def fill(self, file: File) -> None:
        """Take the tables of a file."""
        self.operations.fill((item.id, item.name) for item in file.operations)
        self.signatures.fill((item.id, item.codes) for item in file.signatures)
        self.parameters.fill((item.id, item.name) for item in file.parameters)
        for item in file.constants:
            self.learn(item.type, item.value)
        self.constants.fill((item.id, constant_key(item.type, item.value)) for item in file.constants)

    def learn(self, type_: ConstantType, value: ConstantValue) -> str:
        """Remember a value and give its key."""
        key = constant_key(type_, value)
        self.types.setdefault(key, type_)
        self.values.setdefault(key, value)
        return key

    def operation_id(self, name: str, span: Span) -> int | None:
        """The id of an operation: the file's own table is stronger than the standard one."""
        found = self.operations.find(name)
        if found is not None:
            return found
        standard = self._standard_ids.get(name)
        if standard is not None and self.operations.codes(standard) is None:
            return standard
        return self.operations.id_of(name, span)

    def operation_name(self, number: int) -> str | None:
        """The name that stands for an operation id, if it does so exactly."""
        if self.operations.codes(number) is not None:
            return self.operations.meaning(number)
        name = self.standard.get(number)
        return name if name is not None and self.operations.find(name) is None else None

    def constant_id(self, type_: ConstantType, value: ConstantValue, span: Span) -> int | None:
        """The id of a constant; null is 1 where that id is free."""
        return self.constants.id_of(self.learn(type_, value), span, int(type_ is ConstantType.NULL))


def standard_names(version: str) -> Mapping[int, str]:
    """The names of operations that need no record."""
    return {number: operation.name for number, operation in standard_operations(version).items()}
