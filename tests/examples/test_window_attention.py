"""The attention of examples/operator, judged by NumPy: rotate, cut into windows, mask, mix, rotate back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamella
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from tests.support.repository import ROOT

FILE = ROOT / "examples" / "operator" / "window_attention.sknd"


def attend(queries: Array, keys: Array, values: Array, window: int, shift: int) -> Array:
    """Attention of each position to those of its window that were its neighbours before the rotation."""
    mixed = np.zeros_like(values)
    length, width = queries.shape[2:]
    for start in range(0, length, window):
        places = np.arange(start, start + window) + shift
        wrapped, at = places >= length, places % length
        scores = queries[:, :, at] @ keys[:, :, at].swapaxes(2, 3) / np.sqrt(width)
        scores = np.where(wrapped[:, None] == wrapped, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed[:, :, at] = weights / weights.sum(-1, keepdims=True) @ values[:, :, at]
    return mixed


@given(st.data())
def test_it_equals_numpy(data: st.DataObject) -> None:
    window = data.draw(st.integers(1, 5))
    shift = data.draw(st.integers(0, window - 1))
    length = window * data.draw(st.integers(1, 4))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    inputs = {name: random.normal(size=(1, 2, length, 8)) for name in ("queries", "keys", "values")}
    config = {"length": length, "window": window, "shift": shift}
    found = lamella.compile(FILE, config=config, dtype="f64")(**inputs)["mixed"]
    np.testing.assert_allclose(found, attend(**inputs, window=window, shift=shift), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"length": 18}, "the sequence must be cut into whole windows (length = 18, window = 4)"),
        ({"shift": 4}, "'shift' must be at least 0 and less than 'window' (shift = 4, window = 4)"),
        ({"window": 0}, "'window' must be positive (window = 0)"),
    ],
)
def test_its_assertions_say_what_is_wrong(config: dict[str, int], sentence: str) -> None:
    with pytest.raises(LamellaError) as caught:
        lamella.load(FILE, config=config)
    assert [item.message for item in caught.value.findings] == [f"main.window_scores: {sentence}"]
