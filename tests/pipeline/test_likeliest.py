"""The likeliest token as operations of a graph, judged by NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.graph.model import Model
from lamella.pipeline.module.likeliest import CHOSEN, add_likeliest


def scores_of(folder: Path, shape: str) -> Model:
    """A graph whose scores are its inputs, turned round."""
    path = folder / "scores.sknd"
    path.write_text(
        f"import math; graph Scores {{ @input {{ x: real[{shape}]; }} @output {{ y: real[{shape}]; }}"
        " @compose { y = math.neg(x); } }"
    )
    model = lamella.load(path)
    assert isinstance(model, Model)
    return model


@pytest.mark.parametrize("size", [1, 7, 1009, 1200])
def test_the_first_of_the_largest_is_chosen(size: int, tmp_path: Path) -> None:
    model = add_likeliest(scores_of(tmp_path, f"1,1,{size}"), "y")
    assert model is not None
    run = lamella.compile(model, backend="cpu")
    for seed in range(5):
        x = np.random.default_rng(seed).integers(-9, 9, (1, 1, size)).astype(np.float32)
        found = run(x=x)
        assert found[CHOSEN].tolist() == [[int((-x).argmax())]]
        np.testing.assert_array_equal(found["y"], -x)


def test_scores_of_several_tokens_have_no_likeliest(tmp_path: Path) -> None:
    assert add_likeliest(scores_of(tmp_path, "1,2,8"), "y") is None
    assert add_likeliest(scores_of(tmp_path, "1,1,8"), "z") is None
