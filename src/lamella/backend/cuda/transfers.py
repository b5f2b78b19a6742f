"""Asynchronous transfers between host and device: through pinned memory, on streams of their own.

An event tells the stream of launches that inputs are there, another one the stream of downloads that outputs are.
Memory of both sides is reused, but only when the host has waited for who used it before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Generic, TypeVar, cast

import numpy as np

from lamella.backend.cuda.arrays import DeviceArray, DeviceMemory, PinnedMemory
from lamella.backend.cuda.driver import Event, Stream, call, device, own_stream
from lamella.base.arrays import Array, DType, to_exchange
from lamella.base.records import dataclass

M = TypeVar("M", DeviceMemory, PinnedMemory)
MOST_SIZES = 64
"""Sizes of which spare memory is kept, the last ones that were given back."""


class SpareMemory(Generic[M]):
    """A free list of memory, by its bytes: an allocation of the driver costs as much as a small run."""

    def __init__(self, make: Callable[[int], M]) -> None:
        self._make: Callable[[int], M] = make
        self._spare: dict[int, list[M]] = {}
        self._busy = threading.RLock()

    def take(self, size: int) -> M:
        """So many bytes."""
        with self._busy:
            found = self._spare.get(size)
            return found.pop() if found else self._make(size)

    def give(self, memory: M) -> None:
        """Take back what nobody uses any more."""
        with self._busy:
            found = self._spare.pop(memory.size, [])
            found.append(memory)
            while len(self._spare) >= MOST_SIZES:
                del self._spare[next(iter(self._spare))]
            self._spare[memory.size] = found

    def release(self) -> None:
        """Give all of it back to the driver."""
        with self._busy:
            self._spare.clear()


@dataclass(slots=True)
class Upload:
    """Inputs on their way to the device."""

    arrays: dict[str, DeviceArray]
    arrived: Event
    rooms: list[tuple[PinnedMemory, DeviceMemory]]
    transfers: DeviceTransfers

    def enter(self) -> None:
        """Let launches from now on find them; nobody waits but the device."""
        own_stream().wait_for(self.arrived)

    def close(self) -> None:
        """Give back their memory: the host has waited for all launches that read it."""
        rooms, self.rooms, self.arrays = self.rooms, [], {}
        for pinned, memory in rooms:
            self.transfers.pinned.give(pinned)
            self.transfers.memory.give(memory)


@dataclass(slots=True)
class Download:
    """Outputs on their way to the host."""

    found: dict[str, Array]
    """All of them, in their order; the host has some already."""
    rooms: dict[str, tuple[PinnedMemory, DeviceArray]]
    home: Event
    transfers: DeviceTransfers

    def outputs(self) -> dict[str, Array]:
        """The outputs as new arrays, when they are there."""
        if self.rooms:
            self.home.wait("copying outputs to the host")
        for name, (pinned, there) in self.rooms.items():
            self.found[name] = to_exchange(np.array(_view(pinned, there.shape, there.dtype)))
            self.transfers.pinned.give(pinned)
            if isinstance(there.owner, DeviceMemory):
                self.transfers.memory.give(there.owner)
        self.rooms = {}
        return self.found


@dataclass(slots=True)
class DeviceTransfers:
    """Uploads and downloads while launches run."""

    pinned: SpareMemory[PinnedMemory] = field(default_factory=lambda: SpareMemory(PinnedMemory))
    memory: SpareMemory[DeviceMemory] = field(default_factory=lambda: SpareMemory(DeviceMemory))
    _streams: tuple[Stream, Stream] | None = None

    def upload(self, arrays: Mapping[str, Array]) -> Upload:
        """Begin to copy arrays to the device; they may change as soon as this returns."""
        device()
        coming, found, rooms = self._both()[0], {}, []
        for name, array in arrays.items():
            pinned, memory = self.pinned.take(array.nbytes), self.memory.take(array.nbytes)
            rooms.append((pinned, memory))
            np.copyto(_view(pinned, array.shape, array.dtype), array)
            memory.write(pinned.address, array.nbytes, coming)
            found[name] = DeviceArray(memory.address, array.shape, array.dtype, owner=memory)
        arrived = Event()
        arrived.record(coming)
        return Upload(found, arrived, rooms, self)

    def download(self, found: Mapping[str, Array]) -> Download:
        """Begin to copy outputs to the host, behind the launches so far; those that come later run meanwhile."""
        device()
        leaving, made, rooms = self._both()[1], Event(), {}
        made.record(own_stream())
        leaving.wait_for(made)
        for name, item in found.items():
            there = cast(object, item)
            if isinstance(there, DeviceArray):
                pinned = self.pinned.take(there.nbytes)
                rooms[name] = pinned, there
                _leave(pinned, there, leaving)
        home = Event()
        home.record(leaving)
        return Download(dict(found), rooms, home, self)

    def release(self) -> None:
        """Give back what nobody uses."""
        self.pinned.release()
        self.memory.release()

    def _both(self) -> tuple[Stream, Stream]:
        if self._streams is None:
            self._streams = Stream(), Stream()
        return self._streams


def _leave(pinned: PinnedMemory, there: DeviceArray, stream: Stream) -> None:
    if there.nbytes:
        doing = "copying from the device"
        call("cuMemcpyDtoHAsync_v2", pinned.address, there.address, there.nbytes, stream.handle, doing=doing)


def _view(pinned: PinnedMemory, shape: tuple[int, ...], dtype: DType) -> Array:
    found: Array = pinned.bytes().view(dtype).reshape(shape)
    return found
