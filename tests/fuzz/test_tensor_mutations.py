"""Mutated kernels: any text gives clean findings, or text that LLVM takes and machine code of every kind.

What is compiled is not run: an index that leaves its memref is undefined in machine code.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.jit import MACHINES, assemble
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, render
from lamella.base.source import Source
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, parse, write
from lamella.lang.tensor.nodes import Program
from lamella.lang.tensor.rules import RULES
from tests.support.strategies.mutation import mutants

ROOT = Path(__file__).parents[2]
GOOD = sorted(
    [*(ROOT / "tests/lang/tensor/good").glob("*.tensor"), *(ROOT / "examples/kernels").glob("*.tensor")]
)
SEED = time.time_ns() if "LAMELLA_FUZZ" in os.environ else 0
SHARES = 4
MOST = 8000
"""Characters of a program that is mutated: larger ones take longer and show no more."""
CODES = {rule.code for rule in RULES}
TARGETS = ("cpu-avx512", "cpu-avx2", "cpu-aarch64")


def assert_clean(finding: Diagnostic) -> None:
    """A finding has a known code and can be shown on a terminal."""
    assert finding.code in CODES
    assert all(line.isprintable() for line in render(finding).split("\n"))


def compiles(program: Program, target: str) -> bool:
    """Whether there is machine code for a program; where there is not, findings say why."""
    try:
        assemble(emit(program, find_target(target)).text, MACHINES[target])
    except LamellaError as refused:
        for finding in refused.findings:
            assert_clean(finding)
        return False
    return True


@pytest.mark.parametrize("share", range(SHARES))
def test_any_text_gives_findings_or_code(share: int, mutations: int) -> None:
    texts = [text for text in (path.read_text(encoding="utf-8") for path in GOOD) if len(text) < MOST]
    compiled = 0
    for number, text in enumerate(mutants(texts, mutations // SHARES, SEED + share)):
        parsed = parse(Source("mutant.tensor", text))
        found = [*parsed.findings, *check(parsed.program)]
        for finding in found:
            assert_clean(finding)
        if not errors(found):
            assert parse(Source("written.tensor", write(parsed.program))).program == parsed.program
            compiled += compiles(parsed.program, TARGETS[number % len(TARGETS)])
    assert compiled > 0
