"""ONNX's own tests of operators, through `lamella.onnx.Backend`: what fails is what docs/languages/onnx.md lists.

All run on the reference, a drawn fifth of them also on machine code; `make fuzz` runs all of them there.
"""

from __future__ import annotations

import os
import re
from random import Random
from typing import Any

import numpy as np
import pytest

from lamella.base.diagnostic import LamellaError
from lamella.onnx import Backend
from tests.support.bridge.onnx_node_tests import (
    PAGE,
    VERSION,
    as_array,
    listed,
    node_tests,
    passing,
    reaching,
)

onnx = pytest.importorskip("onnx")
runner = pytest.importorskip("onnx.backend.test.runner")

OTHER = not onnx.__version__.startswith(VERSION)
pytestmark = pytest.mark.skipif(
    OTHER, reason="the page lists the tests of ONNX 1.23, another version has others"
)
SHARES = 8
"""So many tests that can run side by side."""
LEAST = 0.97
IS_LONG = "LAMELLA_FUZZ" in os.environ
DRAWN = 1.0 if IS_LONG else 0.2
DEAR = re.compile("bitwise_.*_bcast_.*")
"""Sixty-four steps of arithmetic for each bit, along three dimensions: LLVM takes five seconds for each of them."""


def _fails(case: Any, backend: str) -> str:
    """Why a test fails; nothing where it passes."""
    try:
        prepared = Backend.prepare(case.model, "CPU", backend=backend)
        for inputs, wanted in case.data_sets:
            found = prepared.run([as_array(item) for item in inputs])
            runner.Runner.assert_similar_outputs(
                [as_array(item) for item in wanted], found, case.rtol, case.atol
            )
    except (LamellaError, AssertionError, TypeError, ValueError) as problem:
        return str(problem) or type(problem).__name__
    return ""


def _drawn() -> list[str]:
    """The tests that run on machine code, the same every time; `make fuzz` runs those that cost seconds each."""
    names, random = passing(), Random("a fifth")
    found = random.sample(names, int(len(names) * DRAWN))
    if IS_LONG:
        return found
    kept = [name for name in found if not DEAR.fullmatch(name)]
    others = [name for name in names if name not in found and not DEAR.fullmatch(name)]
    return [*kept, *random.sample(others, len(found) - len(kept))]


def _share(names: list[str], share: int) -> list[str]:
    return sorted(names)[share::SHARES]


@pytest.mark.parametrize("share", range(SHARES))
def test_the_reference_fails_what_the_page_lists(share: int) -> None:
    names = _share(list(node_tests()), share)
    expected = (listed("Not applicable:") | listed("Failing:")) & set(names)
    failing = {name: _fails(node_tests()[name], "reference") for name in names}
    wrong = {name: why for name, why in failing.items() if bool(why) != (name in expected)}
    assert not wrong, wrong


def test_almost_all_that_apply_pass() -> None:
    names, outside, failing = set(node_tests()), listed("Not applicable:"), listed("Failing:")
    assert outside | failing <= names, (outside | failing) - names
    applicable = len(names) - len(outside)
    passed = applicable - len(failing)
    assert passed / applicable >= LEAST
    text = PAGE.read_text("utf-8")
    assert f"Of the {applicable:,} that apply {passed:,} pass" in " ".join(text.split())


@pytest.mark.parametrize("share", range(SHARES))
def test_machine_code_passes_what_the_reference_passes(share: int) -> None:
    failing = {name: _fails(node_tests()[name], "cpu") for name in _share(_drawn(), share)}
    wrong = {name: why for name, why in failing.items() if why}
    assert not wrong, wrong


def test_machine_code_computes_each_operator_of_the_importer() -> None:
    """Where no test that was drawn has an operator of `onnx`, the first that has it runs too."""
    drawn = set(_drawn())
    own = [tests for name, tests in reaching().items() if name.startswith("onnx.")]
    more = sorted({tests[0] for tests in own if drawn.isdisjoint(tests)})
    failing = {name: _fails(node_tests()[name], "cpu") for name in more}
    wrong = {name: why for name, why in failing.items() if why}
    assert not wrong, wrong


def test_one_node_runs_by_itself() -> None:
    node = onnx.helper.make_node("Add", ["a", "b"], ["c"])
    (found,) = Backend.run_node(node, [np.array([1, 2], np.float32), np.array([3, 4], np.float32)])
    assert found.tolist() == [4.0, 6.0]


def test_a_device_that_is_not_there_is_refused() -> None:
    assert Backend.supports_device("CPU")
    assert not Backend.supports_device("CUDA:0")
    with pytest.raises(ValueError, match="device"):
        Backend.prepare(node_tests()["add"].model, "CUDA")
