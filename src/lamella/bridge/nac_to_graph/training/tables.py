"""The tables of a file while instructions of another one are put into its ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Generic, TypeVar

from lamella.lang.nac.check.tables import read_tables
from lamella.lang.nac.nodes import (
    FIRST_REGULAR,
    INPUT,
    Constant,
    ConstantType,
    ConstantValue,
    File,
    Instruction,
    Operation,
    Parameter,
    Signature,
    Tensor,
)
from lamella.lang.nac.operations import LIFTED, PARAMETER

K = TypeVar("K")


class _Ids(Generic[K]):
    """Ids by what they stand for; what has none gets the next free one."""

    def __init__(self, known: Mapping[K, int], taken: Iterable[int], first: int = 1) -> None:
        self._known = dict(known)
        self._taken = set(taken)
        self._free = count(first)
        self.new: list[tuple[int, K]] = []

    def take(self, key: K) -> int:
        """The id of something."""
        if key not in self._known:
            number = next(item for item in self._free if item not in self._taken)
            self._known[key] = number
            self.new.append((number, key))
        return self._known[key]


class MergedTables:
    """The ids of a file, with new ones for what it has no id for yet."""

    def __init__(self, file: File) -> None:
        self._file = file
        known = read_tables(file)
        numbers = sorted({*known.standard, *known.operations}, reverse=True)
        names = {known.name_of(number) or "": number for number in numbers}
        codes = {item.codes: item.id for item in reversed(file.signatures) if item.id}
        values = {_key(item.type, item.value): item.id for item in reversed(file.constants)}
        self._operations = _Ids(names, numbers, FIRST_REGULAR)
        self._signatures = _Ids(codes, known.signatures)
        self._constants = _Ids(values, known.constants)
        self._values: dict[tuple[ConstantType, str], ConstantValue] = {}
        self._parameters = _Ids({item.name: item.id for item in file.parameters}, known.parameters)
        self._names = {item.name for item in file.parameters}
        self._tensors: list[Tensor] = []

    def operation(self, name: str) -> int:
        """The id of an operation."""
        return self._operations.take(name)

    def signature(self, codes: str) -> int:
        """The id of a signature."""
        return self._signatures.take(codes)

    def constant(self, type_: ConstantType, value: ConstantValue) -> int:
        """The id of a constant."""
        key = _key(type_, value)
        self._values[key] = value
        return self._constants.take(key)

    def parameter(self, name: str, tensor: Tensor) -> Parameter:
        """A new parameter, under a name that nothing has."""
        found = fresh_name(name, self._names)
        self._names.add(found)
        number = self._parameters.take(found)
        self._tensors.append(replace(tensor, parameter=number))
        return Parameter(number, found)

    def file(self) -> File:
        """The file with all that is new."""
        file = self._file
        constants = (Constant(number, key[0], self._values[key]) for number, key in self._constants.new)
        return replace(
            file,
            operations=(*file.operations, *(Operation(*item) for item in self._operations.new)),
            signatures=(*file.signatures, *(Signature(*item) for item in self._signatures.new)),
            constants=(*file.constants, *constants),
            parameters=(*file.parameters, *(Parameter(*item) for item in self._parameters.new)),
            tensors=(*file.tensors, *self._tensors),
        )


def _key(type_: ConstantType, value: ConstantValue) -> tuple[ConstantType, str]:
    """What equal constants share: numbers that are written alike are equal to the bit."""
    return type_, repr(value)


def fresh_name(stem: str, taken: Collection[str]) -> str:
    """A name like this one that nothing has."""
    names = (stem if number == 0 else f"{stem}_{number}" for number in count())
    return next(name for name in names if name not in taken)


class Restating:
    """Puts the instructions of one file into the ids of another."""

    def __init__(self, source: File, tables: MergedTables) -> None:
        self._known = read_tables(source)
        self._tables = tables
        stored = {item.parameter: item for item in reversed(source.tensors)}
        self.parameters = {
            item.id: tables.parameter(item.name, stored[item.id])
            for item in source.parameters
            if item.id in stored
        }
        """What the parameters of the one file are in the other."""

    def restate(self, item: Instruction) -> Instruction:
        """An instruction in the new ids; blocks and outputs have none."""
        if item.operation >= FIRST_REGULAR:
            signature = self._known.signatures.get(item.variant) if item.variant else None
            return replace(
                item,
                operation=self._tables.operation(self._known.name_of(item.operation) or ""),
                variant=0 if signature is None else self._tables.signature(signature.codes),
                constants=tuple(map(self._constant, item.constants)),
            )
        if (item.operation, item.variant) == (INPUT, PARAMETER):
            return replace(item, constants=(self.parameters[item.constants[0]].id,))
        if (item.operation, item.variant) == (INPUT, LIFTED):
            return replace(item, constants=tuple(map(self._constant, item.constants)))
        return item

    def _constant(self, number: int) -> int:
        found = self._known.constants[number]
        return self._tables.constant(found.type, found.value)
