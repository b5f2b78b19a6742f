"""How the benchmarks measure and what they print: one line for each measurement, its peer or target beside it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from lamella.backend import cuda

ROUNDS = 5
FIGURES = "LAMELLA_FIGURES"
"""The variable of the environment that names a file for figures."""


def best(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of the fastest of a few rounds: CPU seconds, which other work on the machine does not lengthen."""
    times = []
    for _ in range(ROUNDS):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def row(what: str, measured: str, beside: str) -> None:
    """One line of the table."""
    print(f"{what:46} {measured:>16}   {beside}")


def beside(ours: float, theirs: float, peer: str) -> str:
    """A peer's time and how many times ours it is."""
    if ours <= theirs:
        return f"{peer} {theirs * 1000:.1f} ms: {theirs / ours:.1f} x as fast"
    return f"{peer} {theirs * 1000:.1f} ms: {ours / theirs:.1f} x as long"


def note_figure(name: str, value: float) -> None:
    """Write a figure to the file that collects them, if there is one: the larger, the better."""
    place = os.environ.get(FIGURES)
    if place:
        with open(place, "a", encoding="utf-8") as file:
            file.write(json.dumps([name, value]) + "\n")


def require_gpu() -> None:
    """End with the reason where no kernel can run on a GPU here."""
    absent = cuda.missing()
    if absent is not None:
        sys.exit(absent)
