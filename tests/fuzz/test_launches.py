"""Random kernels and launches on arrays between guarded pages: nothing outside is touched, no fault is silent.

A launch is refused, or ends with a finding, exactly where the interpreter finds an access that leaves its memory, and
leaves the same numbers elsewhere. `make fuzz` runs as many launches as it is told; ten bugs and more that are planted
on purpose must be found.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.support.fuzz.launch_bugs import BUGS
from tests.support.fuzz.launch_walk import LAUNCHES, run_in_child

SHARES = 4
"""So many tests that can run side by side."""
KERNELS = 40
"""Kernels of one child."""
IS_LONG = "LAMELLA_FUZZ" in os.environ
SEED = time.time_ns() if IS_LONG else 0
USABLE = 1.3
"""Kernels for each one without an error in its text."""


@pytest.mark.parametrize("share", range(SHARES))
def test_launches_stay_inside_their_memory(share: int, mutations: int) -> None:
    wanted = mutations // SHARES if IS_LONG else mutations // (20 * SHARES)
    kernels = int(USABLE * wanted / LAUNCHES)
    for first in range(0, kernels, KERNELS):
        report = run_in_child((SEED + share, first, min(KERNELS, kernels - first)))
        assert not report.problem, report.problem


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = BUGS[name]
    report = run_in_child((7, bug.first, 60), bug.plant, machine=bug.runs)
    assert report.problem, f"{len(report.words)} launches, and nothing was found"
