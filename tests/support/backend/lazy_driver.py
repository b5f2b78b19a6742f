"""A driver that copies as late as it may: what nobody waits for has not happened, so numbers show a wait that lacks.

Each stream has a queue, which runs when the host waits for it, or another stream for an event of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.backend.fake_driver import FakeDriver, fake_device

Work = Callable[[], None]


class LazyDriver(FakeDriver):
    """The library, with a queue for each stream and a log of what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, int]] = []
        """What the host asked for: its word, and the stream or the event."""
        self._queues: dict[int, list[Work]] = {}
        self._done: dict[int, int] = {}
        """How much each stream has done."""
        self._moments: dict[int, tuple[int, int]] = {}
        """The stream of each event, and the place in its queue."""
        self._pinned: dict[int, int] = {}
        self.compute: Work = _nothing
        """What each launch does."""
        self.skipped = ""
        """The function that does nothing."""

    def settle(self) -> None:
        """Let everything happen."""
        for stream in list(self._queues):
            self._run(stream)

    def _give(self, word: str, stream: int, work: Work) -> None:
        self.log.append((word, stream))
        self._queues.setdefault(stream, []).append(work)

    def _run(self, stream: int, end: int | None = None) -> None:
        queue = self._queues.get(stream, [])
        end = len(queue) if end is None else end
        while self._done.get(stream, 0) < end:
            number = self._done.get(stream, 0)
            self._done[stream] = number + 1
            queue[number]()

    def _is_pinned(self, address: int) -> bool:
        return any(start <= address < start + size for start, size in self._pinned.items())

    # --- memory --------------------------------------------------------------------------------------------------

    def do_cuMemHostAlloc(self, place: Any, size: int, flags: int) -> None:
        super().do_cuMemHostAlloc(place, size, flags)
        self._pinned[place._obj.value] = size

    def do_cuMemFreeHost(self, address: int) -> None:
        self.settle()
        self._pinned.pop(address, None)
        super().do_cuMemFreeHost(address)

    def do_cuMemFree(self, address: int) -> None:
        self.settle()
        super().do_cuMemFree(address)

    def do_cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: Any) -> None:
        self.to_device += size
        # What is not pinned is read before the call returns.
        kept = (
            None
            if self._is_pinned(source)
            else ctypes.create_string_buffer(ctypes.string_at(source, size), size)
        )
        place = source if kept is None else ctypes.addressof(kept)
        self._give("to device", stream, lambda: _move(target, place, size, kept))

    def do_cuMemcpyDtoHAsync(self, target: int, source: int, size: int, stream: Any) -> None:
        self.to_host += size
        self._give("to host", stream, lambda: _move(target, source, size))

    def do_cuMemcpyDtoDAsync(self, target: int, source: int, size: int, stream: Any) -> None:
        self._give("inside", stream, lambda: _move(target, source, size))

    def do_cuMemsetD8Async(self, target: int, value: int, size: int, stream: Any) -> None:
        self.filled += size
        if self._recorded is None:
            self._give("fill", stream, lambda: _fill(target, value, size))

    # --- streams and events -----------------------------------------------------------------------------------------

    def do_cuEventCreate(self, place: Any, _: int) -> None:
        self._number(place)

    def do_cuEventRecord(self, event: int, stream: Any) -> None:
        self.log.append(("record", stream))
        self._moments[event] = stream, len(self._queues.setdefault(stream, []))

    def do_cuStreamWaitEvent(self, stream: Any, event: int, _: int) -> None:
        moment = self._moments[event]
        if self.skipped != "cuStreamWaitEvent":
            self._give("wait for", stream, lambda: self._run(*moment))

    def do_cuEventSynchronize(self, event: int) -> None:
        self.log.append(("host waits for event of", self._moments[event][0]))
        if self.skipped != "cuEventSynchronize":
            self._run(*self._moments[event])

    def do_cuStreamSynchronize(self, stream: int) -> int:
        self.log.append(("host waits for", stream))
        self._run(stream)
        return super().do_cuStreamSynchronize(stream)

    def do_cuCtxSynchronize(self) -> None:
        self.settle()
        super().do_cuCtxSynchronize()

    def do_cuLaunchKernelEx(self, config: Any, kernel: int, *rest: object) -> None:
        if self._recorded is None:
            self._give("launch", config._obj.stream, lambda: self.compute())
        super().do_cuLaunchKernelEx(config, kernel, *rest)

    def do_cuGraphLaunch(self, graph: int, stream: Any) -> None:
        self._give("launch", stream, lambda: self.compute())
        super().do_cuGraphLaunch(graph, stream)


def _move(target: int, source: int, size: int, kept: object = None) -> None:
    ctypes.memmove(target, source, size)


def _fill(target: int, value: int, size: int) -> None:
    ctypes.memset(target, value, size)


def _nothing() -> None:
    """A launch computes nothing."""


@contextmanager
def lazy_device() -> Iterator[LazyDriver]:
    """Let this process have a GPU that copies as late as it may."""
    driver = LazyDriver()
    with fake_device(driver):
        yield driver
