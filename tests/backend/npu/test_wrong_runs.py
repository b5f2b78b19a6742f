"""Wrong runs say themselves what is wrong with them: `# expect CODE` on the line, `# with X=7` gives an input."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lamella.backend.npu import compile_plan
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.pipeline.nem.program import Program, plan_of, read_program
from tests.lang.nem.test_programs import expectations, read_repaired, teaching

FOLDER = Path(__file__).parents[2] / "lang" / "nem" / "bad" / "run"
RUNS = sorted(FOLDER.glob("*.nem"))


def given_inputs(program: Program) -> dict[str, Array]:
    """The buffers that the first line fills: with one byte all over, or with the bytes listed."""
    line = re.match(r"# with (.*)", program.source.text)
    inputs: dict[str, Array] = {}
    for name, values in re.findall(r"(\w+)=([\d,]+)", line[1] if line else ""):
        numbers = [int(value) for value in values.split(",")]
        size = next(buffer.size for buffer in plan_of(program).buffers if buffer.name == name)
        inputs[name] = (
            np.full(size, numbers[0], np.uint8) if len(numbers) == 1 else np.array(numbers, np.uint8)
        )
    return inputs


def run(program: Program) -> list[Diagnostic]:
    """Everything found by checking and running."""
    try:
        executable = compile_plan(plan_of(program))
        executable(**given_inputs(program))
    except LamellaError as problem:
        return [*program.findings, *problem.findings]
    return [*program.findings, *executable.findings]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_wrong_run_has_exactly_the_findings_it_announces(path: Path) -> None:
    program = read_program(path)
    found = run(program)
    assert Counter((item.span.line, item.code) for item in found) == expectations(program.source), found


@pytest.mark.parametrize("path", teaching(FOLDER), ids=lambda path: path.stem)
def test_a_repaired_run_has_nothing_wrong(path: Path) -> None:
    assert not run(read_repaired(path))
