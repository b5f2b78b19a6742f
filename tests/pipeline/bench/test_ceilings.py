"""The loops that measure a machine are valid text for every width, and a measured ceiling is a rate."""

from __future__ import annotations

import pytest

from lamella.backend.cpu.jit.engine import assemble, host_machine
from lamella.pipeline.bench.ceilings import LANES, SUMS, loops_text, measure_ceilings


@pytest.mark.parametrize("level", LANES)
def test_the_loops_are_valid(level: str) -> None:
    assert assemble(loops_text(LANES[level], SUMS[level]), host_machine())


def test_ceilings_are_rates_and_are_measured_once() -> None:
    found = measure_ceilings(1)
    assert found.gflops > 0.1
    assert found.gbytes > 0.1
    assert measure_ceilings(1) is found
