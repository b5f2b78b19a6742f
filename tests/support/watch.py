"""Bounds for one case: the processor time, which other processes do not lengthen, and the growth of the memory."""

from __future__ import annotations

import gc
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooSlowError(Exception):
    """A case took longer than any of its size should."""


@contextmanager
def watched(seconds: float, mebibytes: int) -> Iterator[None]:
    """Stop what takes longer than so many seconds, and refuse what takes so much more memory."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlowError(f"more than {seconds} s")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    old, collects = signal.signal(signal.SIGPROF, stop), gc.isenabled()
    # A full collection goes over all that other tests of the process have loaded, and would count as the case's time.
    gc.disable()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)
        if collects:
            gc.enable()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < mebibytes << 10, f"{grown >> 10} MiB more"
