"""Simulations that several tests look at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamella.base.source import Source
from lamella.lang.nem import check
from lamella.lang.nem.resolved import Loop, Plan
from lamella.plan.timing import TimingReport, simulate
from tests.support.plan.timing_plans import Builder, view

EXAMPLE = Path(__file__).parents[3] / "examples" / "npu" / "conv_relu.nem"
STEERING = "\x1b[2J\u202e</script><script>\u2066"


def simulate_text(text: str, path: Path | None = None) -> tuple[TimingReport, Plan]:
    """The simulation of a program and its plan."""
    checked = check(Source("program.nem" if path is None else str(path), text), path)
    assert checked.plan is not None
    return simulate(checked.plan), checked.plan


@pytest.fixture(scope="session")
def conv_relu() -> tuple[TimingReport, Plan]:
    """The worked example: 20 task instances, 17 312 cycles."""
    return simulate_text(EXAMPLE.read_text("utf-8"), EXAMPLE)


@pytest.fixture(scope="session")
def hostile() -> tuple[TimingReport, Plan]:
    """A plan whose names steer terminals and end scripts; the language refuses them, other makers of plans may not."""
    make = Builder()
    far, near = (replace(make.buffer(STEERING, level, 64), debug=STEERING + "A") for level in ("L2", "L1"))
    source = replace(view(far, 64), debug=STEERING + "R", profile=STEERING + "Q")
    task = make.task("transfer", [source], [view(near, 64)], debug=STEERING + "T", profile=STEERING)
    loop = Loop(make.loop_number(), STEERING, 0, 3, 1, (task,), debug=STEERING + "L", profile=STEERING)
    plan = replace(make.plan([loop]), name=STEERING, source=Source(STEERING, f"# {STEERING}"))
    return simulate(plan), plan


@pytest.fixture(scope="session")
def named() -> tuple[TimingReport, Plan]:
    """A program with a @debug name and a @profile tag on each kind of thing."""
    return simulate_text(
        """
buffer A : L2 (size=64) @debug(buffer_name) @profile(buffer_tag)
buffer B : L1 (size=64)
let R = region(A, 0, 64) @debug(region_name) @profile(region_tag)
loop i in [0..3] @debug(loop_name) @profile(loop_tag):
    transfer.sync(dst=region(B, 0, 64), src=R)
    transfer.sync(dst=region(B, 0, 64), src=R) @debug(task_name) @profile(task_tag)
endloop
"""
    )
