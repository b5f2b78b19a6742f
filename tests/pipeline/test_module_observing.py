"""Annotations that watch a run: hooks, probes, assertions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from docs.generate import repaired
from lamella.pipeline.module.observe import Observed, observe
from lamella.pipeline.options import Options
from tests.support.repository import TESTS

BAD = TESTS / "lang" / "module" / "bad" / "e104_range.module"
X = np.array([[1.0, -2.0, 3.0, 0.5], [0.0, 4.0, -1.0, 2.0]])
TEXT = """module M(d: int = 4):
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      x -> relu() -> r
      (x, r) -> add() -> y {annotation}
"""


def look(folder: Path, annotation: str) -> Observed:
    """One run of a module with an annotation on its output."""
    path = folder / "m.module"
    path.write_text(TEXT.format(annotation=annotation), encoding="utf-8")
    return observe(path, Options(dtype="f64"), {"x": X})


Y, R = X + np.maximum(X, 0), np.maximum(X, 0)
CONDITIONS = {
    "!has_nan(y)": not np.isnan(Y).any(),
    "has_inf(y)": bool(np.isinf(Y).any()),
    "!has_nan_or_inf(y) && y.shape[-1] == d": True,
    "y.shape[0] == 3": False,
    "all(y >= x)": bool((Y >= X).all()),
    "all(r > 0) || any(y > 7)": bool((R > 0).all() or (Y > 7).any()),
    "max(abs(y)) <= 8": bool(np.abs(Y).max() <= 8),
    "min(y) + 2 * 1 < 0": bool(Y.min() + 2 < 0),
    "mean(y) - mean(r) == mean(x)": bool(np.isclose(Y.mean() - R.mean(), X.mean())),
    "norm(y) / norm(x) > 1.5": bool(np.linalg.norm(Y) / np.linalg.norm(X) > 1.5),
    "x.shape[-2] != 2": False,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_are_judged_by_the_numbers(condition: str, tmp_path: Path) -> None:
    for written in (condition, f'"{condition}"'):
        found = look(tmp_path, f'@assert({written}, message="told")')
        false = [item for item in found.findings if item.code == "E104"]
        assert len(false) == (0 if CONDITIONS[condition] else 1)
        assert all("on 'y' is false: told" in item.message for item in false)


def test_an_assertion_that_is_switched_off_is_silent(tmp_path: Path) -> None:
    assert not look(tmp_path, "@assert(all(y > 100), enabled=false)").findings


def test_hooks_and_probes_see_the_numbers(tmp_path: Path) -> None:
    found = look(
        tmp_path,
        '@hook(AfterAttention) @probe("y", condition="max(y) > 7") @probe("n", condition="max(y) > 9")',
    )
    numbers = f"mean {Y.mean():.4g}, deviation {Y.std():.4g}, from {Y.min():.4g} to {Y.max():.4g}"
    assert found.lines == (
        f"hook AfterAttention y: float64 2×4, {numbers}",
        f"probe y y: float64 2×4, {numbers}",
    )
    np.testing.assert_array_equal(found.outputs["y"], Y)
    assert list(found.outputs) == ["y"]


def test_a_wrong_program_and_a_right_one(tmp_path: Path) -> None:
    options = Options(shape={"B": 2}, seed=0)
    found = observe(BAD, options, {})
    assert [(item.code, item.span.line) for item in found.findings] == [("E104", 7)]
    right = tmp_path / BAD.name
    right.write_text(repaired(BAD.read_text(encoding="utf-8")), encoding="utf-8")
    assert not observe(right, options, {}).findings
