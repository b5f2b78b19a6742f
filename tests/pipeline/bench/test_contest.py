"""Contests: who does not answer is out, and what libraries raise is told in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lamella.pipeline.bench.contest import Terms, difference, hold
from lamella.pipeline.bench.contestants import Material
from lamella.pipeline.options import Options

NOBODY = Material(Path("nothing.sknd"))


@pytest.mark.parametrize(
    ("text", "patience", "problem"),
    [
        ("import time; time.sleep(60)", 0.5, "no answer within 0.5 s"),
        ("raise ValueError('it\\nhas two lines')", 300.0, "ValueError: it"),
    ],
)
def test_a_contestant_that_fails_is_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, patience: float, problem: str
) -> None:
    (tmp_path / "openvino.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (found,) = hold(["openvino"], NOBODY, Terms(rounds=1, patience=patience), Options())
    assert found.problem == problem
    assert not found.wall


def test_a_model_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (found,) = hold(["cpu"], Material(tmp_path / "nothing.sknd"), Terms(rounds=1), Options())
    assert "nothing.sknd" in found.problem


def test_differences_are_those_of_numpy() -> None:
    left, right = np.array([1.0, -4.0]), np.array([1.5, -2.0])
    assert difference([left], [right]) == (2.0, 1.0)
    assert difference([left, right], [right]) == (np.inf, np.inf)
    assert difference([left], [right[:1]]) == (np.inf, np.inf)
    assert difference([np.zeros((0, 2))], [np.zeros((0, 2))]) == (0.0, 0.0)
