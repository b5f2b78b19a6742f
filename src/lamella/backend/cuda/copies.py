"""Device copies of host arrays: weights that launches read, states that they update in place (coherence).

What launches change is copied back when somebody asks for it; until then the device has the newer values.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod
from typing import cast

import numpy as np

from lamella.backend.cpu.run.memory import empty_array
from lamella.backend.cpu.run.prepared import address_of
from lamella.backend.cuda.arrays import BorrowedMemory, DeviceArray, DeviceMemory, lies_on_device, to_device
from lamella.backend.cuda.driver import call, device, own_stream
from lamella.backend.cuda.nvtx import RangeMarks
from lamella.backend.cuda.transfers import DeviceTransfers, Download, Upload
from lamella.base.arrays import Array, DType, uniform_value
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.records import dataclass


@dataclass(slots=True)
class _Copy:
    """An array and its memory on the device."""

    array: weakref.ref[Array]
    memory: DeviceMemory
    is_same: bool = True
    """Whether the device has what the host has, or something newer."""
    is_newer: bool = False
    stays: bool = False
    """Whether the host never reads it: launches made it for others."""
    lent: DeviceArray | None = None
    """The array for which it stands, where an output is to go to one of the device."""


@dataclass(slots=True)
class DeviceCopies:
    """The device copies of an executable's arrays, which all its launch lists share; one is freed with its array."""

    version: int = 0
    """Another one where a copy is no longer what it was."""
    transfers: DeviceTransfers = field(default_factory=DeviceTransfers)
    """Copies beside the launches, and memory that they have used."""
    marks: RangeMarks = field(default_factory=RangeMarks)
    """The ranges that a run shows to who profiles it."""
    _held: dict[int, _Copy] = field(default_factory=dict)

    def memory(self, array: Array) -> DeviceMemory:
        """The device copy of a dense array, which is made where there is none."""
        found = self._find(array) or self._hold(array)
        if not found.is_same:
            found.memory.write(address_of(array), array.nbytes, own_stream())
            own_stream().wait()  # whoever owns the array may change it from now on
            found.is_same = True
        return found.memory

    def adopt(self, given: object, dtype: DType) -> Array | None:
        """An array of the host whose numbers are those of an array of the device; None for what is no such array.

        One that lies row by row and has this type stays where it is until the host asks for it.
        """
        if isinstance(given, np.ndarray) or not lies_on_device(given):
            return None
        found = to_device(given)
        if found.dtype != dtype or not found.is_dense:
            return found.numpy()
        array = empty_array(found.shape, dtype)
        copy = self._hold(array, BorrowedMemory(found))
        copy.is_same = copy.is_newer = True
        array.flags.writeable = False
        return array

    def findings(self) -> list[Diagnostic]:
        """The findings of a run whose launches were timed."""
        return self.marks.findings()

    def has(self, given: object) -> bool:
        """Whether somebody gives an array of the device."""
        return not isinstance(given, np.ndarray) and lies_on_device(given)

    def upload(self, arrays: Mapping[str, Array]) -> Upload:
        """Begin asynchronous copies of arrays to the device."""
        return self.transfers.upload(arrays)

    def download(self, found: Mapping[str, Array]) -> Download:
        """Begin asynchronous copies of outputs from the device."""
        return self.transfers.download(found)

    def release_spare(self) -> None:
        """Free the staging memory."""
        self.transfers.release()

    def lend(self, name: str, given: object) -> tuple[Array, Array] | None:
        """A placeholder for a device array that an output is written to, and its address; None for other arrays."""
        if not self.has(given):
            return None
        found = to_device(given)
        if not found.is_writable:
            raise InputError(f"the array for output '{name}' must not be written")
        if not found.is_dense:
            hint = "a new array, or out='device'"
            raise InputError(f"the array for output '{name}' does not lie row by row", hint=hint)
        return self._stand_for(found), found.stand_in()

    def reserve(self, shape: Sequence[int], dtype: DType) -> Array:
        """A placeholder for a new device array, which an output is written to."""
        memory = self.transfers.memory.take(prod(shape) * dtype.itemsize)
        return self._stand_for(DeviceArray(memory.address, shape, dtype, owner=memory))

    def is_lent(self, array: Array) -> bool:
        """Whether an array is a placeholder of a device array."""
        found = self._find(array)
        return found is not None and found.lent is not None

    def hand_over(self, array: Array) -> Array:
        """The device array of a placeholder, with what launches wrote there, or the host did here."""
        found = self._find(array)
        if found is None or found.lent is None:
            return array
        if not found.is_newer:
            found.memory.write(address_of(array), array.nbytes, own_stream())
            own_stream().wait()
        return cast(Array, found.lent)

    def _stand_for(self, there: DeviceArray) -> Array:
        array = empty_array(there.shape, there.dtype)
        found = self._hold(array, BorrowedMemory(there))
        found.lent, found.stays = there, True
        return array

    def put(self, source: Array, room: Array | None = None) -> Array:
        """A dense array, or the one that is given, whose numbers on the device are those of another.

        The host gets them when it asks for them. Zeros need no memory of the host at all.
        """
        array = empty_array(source.shape, source.dtype) if room is None else room
        self._write(source, array)
        return array

    def keep(self, array: Array, address: int) -> None:
        """Let the device have what lies there at an address as an array for which the host never asks."""
        found = self._find(array) or self._hold(array)
        if array.nbytes:
            call("cuMemcpyDtoDAsync_v2", found.memory.address, address, array.nbytes, own_stream().handle)
        found.is_same = found.is_newer = found.stays = True

    def _write(self, source: Array, array: Array) -> None:
        found = self._find(array)
        if found is None:
            found = self._hold(array)
        elif not found.is_same:
            self.version += 1
        self._fill(found.memory, source)
        found.is_same = found.is_newer = True

    def _fill(self, memory: DeviceMemory, source: Array) -> None:
        newer, value = self.newer(source), uniform_value(source)
        if newer is not None:
            memory.take(newer, own_stream())
        elif value is not None and not value.tobytes().strip(b"\0"):
            memory.fill(own_stream())
        else:
            dense = np.ascontiguousarray(source)
            memory.write(address_of(dense), dense.nbytes, own_stream())
            own_stream().wait()

    def newer(self, array: Array) -> DeviceMemory | None:
        """The device copy of an array where that is newer (dirty)."""
        found = self._find(array)
        return found.memory if found is not None and found.is_newer else None

    def change(self, array: Array) -> None:
        """Mark the device copy of an array as newer (dirty)."""
        found = self._find(array)
        if found is not None:
            found.is_newer = True

    def forget(self, array: Array) -> None:
        """Mark the host's array as newer."""
        found = self._find(array)
        if found is not None:
            found.is_newer = found.is_same = False
            self.version += 1

    def settle(self) -> None:
        """Copy back what launches wrote; from now on the host may write its arrays."""
        # Other threads may drop arrays meanwhile.
        newer = [item for item in list(self._held.values()) if item.is_newer and not item.stays]
        if not newer:
            return
        device()
        self.version += 1
        for item in newer:
            array = item.array()
            if array is not None:
                item.memory.read(address_of(array), array.nbytes, own_stream())
        own_stream().wait("copying states to the host")
        # What fails before leaves the newer values where they are.
        for item in newer:
            item.is_newer = item.is_same = False

    def _find(self, array: Array) -> _Copy | None:
        found = self._held.get(id(array))
        return found if found is not None and found.array() is array else None

    def _hold(self, array: Array, memory: DeviceMemory | None = None) -> _Copy:
        """Memory on the device for an array."""
        key = id(array)
        reference = weakref.ref(array, lambda gone: self._forget(key, gone))
        found = _Copy(reference, memory or DeviceMemory(array.nbytes), False)
        self._held[key] = found
        return found

    def _forget(self, key: int, gone: weakref.ref[Array]) -> None:
        found = self._held.get(key)
        if found is not None and found.array is gone:
            del self._held[key]
            self.version += 1
