"""Who looks on while something long is done that no caller sees the steps of: compiling kernels, running passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from lamella.base.tuning import TuningReport

Look: TypeAlias = Callable[[int, int], None]
"""Is told how many of how many are done."""


def _nobody(done: int, total: int) -> None:
    """Look away."""


COMPILING: ContextVar[Look] = ContextVar("compiling", default=_nobody)
"""Who looks on while kernels are compiled; a command that shows a bar sets it."""


Told: TypeAlias = Callable[[TuningReport], None]
"""Is told what was measured for a graph."""


def _unheard(report: TuningReport) -> None:
    """Listen to nothing."""


TUNED: ContextVar[Told] = ContextVar("tuned", default=_unheard)
"""Who is told what measuring found; a command that prints it sets it."""


PASS_TIMES: ContextVar[dict[str, float] | None] = ContextVar("pass_times", default=None)
"""The seconds of each pass so far, in the order of their first run; None where nobody asks."""


@contextmanager
def timed_pass(name: str) -> Iterator[None]:
    """Count the time of a pass where somebody asks for it; passes inside of it are part of it."""
    times = PASS_TIMES.get()
    if times is None:
        yield
        return
    times.setdefault(name, 0.0)
    outer, start = PASS_TIMES.set(None), time.perf_counter()
    try:
        yield
    finally:
        PASS_TIMES.reset(outer)
        times[name] += time.perf_counter() - start
