"""Launches that are ready to run: code, slots, and which of them are addresses of arrays."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from lamella.backend.cpu.jit import LoadedCode
from lamella.base.arrays import Array
from lamella.base.records import dataclass

from_address = ctypes.c_void_p.from_address


def _measure_head() -> int:
    """Where in an array object its address stands; 0 where it is not found."""
    trial, size = np.empty(3), object.__basicsize__
    return size if from_address(id(trial) + size).value == trial.ctypes.data else 0


HEAD = _measure_head()


def address_of(array: Array) -> int:
    """The address of the first element of an array.

    NumPy's own way takes a microsecond. The address is the first field behind the head of the object; that this is
    so is tested when the module is loaded.
    """
    address: int | None = from_address(id(array) + HEAD).value if HEAD else array.ctypes.data
    return address or 0


class ArraySlot(NamedTuple):
    """The slot that holds the address of an array: which argument it is, and what its address is a multiple of."""

    place: int
    slot: int
    alignment: int


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A launch that is proved, or tested while it runs: code, slots, and which of them are addresses of arrays."""

    code: LoadedCode
    """What the machine code lives as long as."""
    address: int
    local_bytes: int
    slots: bytes
    places: tuple[ArraySlot, ...]
    tests: Array | None = None
    """Where a test that fails leaves a number that is not 0; the array is the last argument."""
