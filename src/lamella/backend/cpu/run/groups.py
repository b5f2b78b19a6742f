"""Arguments that are groups: their tables of addresses and sizes, built at each launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lamella.backend.arguments import Arrays, group_items
from lamella.backend.cpu.run.slots import (
    Integers,
    address_of,
    count_open,
    fill_table,
    open_entries,
    reach_of,
)
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.lang.tensor.nodes import Group, Parameter
from lamella.lang.tensor.rules import running as rules


@dataclass(frozen=True, slots=True)
class Tables:
    """The arrays of a group with their addresses, and what its memref type leaves open, a column for each."""

    given: Arrays
    addresses: Integers
    entries: Integers

    def slots(self, kind: Group) -> list[object]:
        """The slots of the group."""
        found: list[object] = [self.addresses.ctypes.data]
        found += [self.entries[:, column].ctypes.data for column in range(self.entries.shape[1])]
        found += [len(self.addresses)] if kind.size is None else []
        return found + ([self.given.offset] if kind.offset is None else [])


def group_format(kind: Group) -> str:
    """The letters of `struct` for the slots of a group."""
    return "q" * (1 + count_open(kind.memref) + (kind.size is None) + (kind.offset is None))


def make_tables(kind: Group, argument: object) -> Tables:
    """The tables of an argument whose layouts are verified."""
    given = group_items(kind, argument)
    count = count_open(kind.memref)
    rows = [open_entries(kind.memref, item) for item in given.items] if count else []
    # One more than there are: where a position leaves an empty group, its first address is read and never used.
    addresses = np.array([*(address_of(item) for item in given.items), 0], np.int64)[:-1]
    entries = fill_table(rows) if rows else np.zeros((max(1, len(addresses)), count), np.int64, order="F")
    return Tables(given, addresses, entries)


def bounds_of(tables: Tables) -> tuple[Integers, Integers]:
    """Where the arrays of a group begin and end in memory."""
    layouts = {(item.shape, item.strides, item.itemsize): reach_of(item) for item in tables.given.items}
    reaches = [layouts[item.shape, item.strides, item.itemsize] for item in tables.given.items]
    widths = [tables.given.offset * item.itemsize for item in tables.given.items]
    lows = tables.addresses + np.array(widths, np.int64)
    return lows, lows + np.array(reaches, np.int64)


def verify_offset(parameter: Parameter, given: Arrays) -> list[Diagnostic]:
    """What leaves the memory of its array when the offset moves it; machine code would not notice."""
    return [
        _moved(parameter, item, given.offset)
        for item in given.items
        if not reaches_offset(item, given.offset)
    ]


def reaches_offset(array: Array, offset: int) -> bool:
    """Whether the memory of an array holds it when an offset moves it on."""
    return not offset or not array.size or _last(array, offset) < _size_behind(array)


def _last(array: Array, offset: int) -> int:
    return offset + reach_of(array) // array.itemsize - 1


def _size_behind(array: Array) -> int:
    """The elements from the first one of an array to the end of the memory that it is a part of."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    first = (array.ctypes.data - owner.ctypes.data) // array.itemsize
    return int(owner.nbytes // array.itemsize - first)


def _moved(parameter: Parameter, array: Array, offset: int) -> Diagnostic:
    words = {"name": parameter.value.name, "low": offset, "high": _last(array, offset), "place": ""}
    return rules.OUT_OF_MEMORY.at(parameter.span, hint=None, labels=(), size=_size_behind(array), **words)
