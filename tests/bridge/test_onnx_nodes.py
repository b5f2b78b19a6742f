"""ONNX's own tests of operators, through `lamella.onnx.Backend`: what fails is what docs/languages/onnx.md lists.

All run on the reference, a drawn fifth of them also on machine code; `make fuzz` runs all of them there.
"""

from __future__ import annotations

import os
import re
import warnings
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from lamella.base.diagnostic import LamellaError
from lamella.onnx import Backend

onnx = pytest.importorskip("onnx")
loader = pytest.importorskip("onnx.backend.test.loader")
runner = pytest.importorskip("onnx.backend.test.runner")

OTHER = not onnx.__version__.startswith("1.23.")
pytestmark = pytest.mark.skipif(
    OTHER, reason="the page lists the tests of ONNX 1.23, another version has others"
)
PAGE = Path(__file__).parents[2] / "docs" / "languages" / "onnx.md"
SHARES = 8
"""So many tests that can run side by side."""
LEAST = 0.97
IS_LONG = "LAMELLA_FUZZ" in os.environ
DRAWN = 1.0 if IS_LONG else 0.2


@cache
def _cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX computes what it expects of overflow and of nothing
        found = loader.load_model_tests(kind="node")
    return {item.name.removeprefix("test_"): item for item in found}


def _listed(title: str) -> set[str]:
    """The names in the table below a title of the page."""
    part = PAGE.read_text("utf-8").split(f"\n{title}", 1)[1].split("\n\n", 2)[1]
    return set(re.findall(r"`([\w*]+)`", "".join(line.split("|")[2] for line in part.splitlines()[2:])))


def _fails(case: Any, backend: str) -> str:
    """Why a test fails; nothing where it passes."""
    try:
        prepared = Backend.prepare(case.model, "CPU", backend=backend)
        for inputs, wanted in case.data_sets:
            found = prepared.run([_array(item) for item in inputs])
            runner.Runner.assert_similar_outputs(
                [_array(item) for item in wanted], found, case.rtol, case.atol
            )
    except (LamellaError, AssertionError, TypeError, ValueError) as problem:
        return str(problem) or type(problem).__name__
    return ""


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _share(names: list[str], share: int) -> list[str]:
    return sorted(names)[share::SHARES]


@pytest.mark.parametrize("share", range(SHARES))
def test_the_reference_fails_what_the_page_lists(share: int) -> None:
    names = _share(list(_cases()), share)
    expected = (_listed("Not applicable:") | _listed("Failing:")) & set(names)
    failing = {name: _fails(_cases()[name], "reference") for name in names}
    wrong = {name: why for name, why in failing.items() if bool(why) != (name in expected)}
    assert not wrong, wrong


def test_almost_all_that_apply_pass() -> None:
    names, outside, failing = set(_cases()), _listed("Not applicable:"), _listed("Failing:")
    assert outside | failing <= names, (outside | failing) - names
    applicable = len(names) - len(outside)
    passing = applicable - len(failing)
    assert passing / applicable >= LEAST
    text = PAGE.read_text("utf-8")
    assert f"Of the {applicable:,} that apply {passing:,} pass" in " ".join(text.split())


@pytest.mark.parametrize("share", range(SHARES))
def test_machine_code_passes_what_the_reference_passes(share: int) -> None:
    outside = _listed("Not applicable:") | _listed("Failing:")
    names = set(_cases()) - outside
    drawn = Random("a fifth").sample(sorted(names), int(len(names) * DRAWN))
    failing = {name: _fails(_cases()[name], "cpu") for name in _share(drawn, share)}
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
        Backend.prepare(_cases()["add"].model, "CUDA")
