"""Cross-layer equalisation: the same function, bit for bit, with weights whose channels are alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend.reference import compile_model
from lamella.graph.model import Model
from lamella.pipeline.quantize.equalise import equalise, find_pairs
from lamella.pipeline.quantize.layers import find_layers

CHAIN = """import layout, math, nn;

graph Chain {
    @input { x: real[2, 3, 8, 8]; }
    @output { y: real[2, 4]; }
    @variable { w: real[8, 3, 3, 3]; b: real[8]; v: real[6, 8, 3, 3]; u: real[4, 6]; }
    @compose {
        a = nn.conv{padding=1}(x, w, b);
        r = nn.relu(a);
        p = nn.max_pool{size=2, stride=2, padding=0}(r);
        c = nn.conv{padding=1}(p, v);
        s = nn.relu(c);
        m = math.mean_reduce{axes=[2, 3], squeeze=true}(s);
        y = nn.linear(m, u);
    }
}
"""


def model_of(folder: Path, text: str = CHAIN) -> Model:
    """A model whose channels have ranges that lie far apart."""
    (folder / "chain.sknd").write_text(text, encoding="utf-8")
    model = lamella.load(folder / "chain.sknd")
    assert isinstance(model, Model)
    random = np.random.default_rng(0)
    data = {}
    for item in model.graph.variables:
        shape = tuple(extent for extent in item.shape if isinstance(extent, int))
        spread = 2.0 ** random.integers(-6, 7, (shape[0], *[1] * (len(shape) - 1)))
        data[item.name] = (random.normal(size=shape) * spread).astype(np.float32)
    return replace(model, data=data)


def spread_of(array: np.ndarray) -> float:
    """How far the ranges of rows lie apart."""
    ranges = np.abs(array.reshape(len(array), -1)).max(axis=1)
    return float(ranges.max() / ranges.min())


def test_the_function_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    model = model_of(tmp_path)
    found, pairs = equalise(model, find_layers(model))
    assert pairs == 2
    x = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    before, after = (compile_model(item)(x=x)["y"] for item in (model, found))
    assert np.array_equal(before, after)
    assert model.data is not None
    assert found.data is not None
    assert spread_of(found.data["w"]) < spread_of(model.data["w"]) / 4
    assert not np.array_equal(found.data["b"], model.data["b"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("r = nn.relu(a);", "r = nn.relu{max=6.0}(a);"),  # what cuts at a number
        ("r = nn.relu(a);", "r = nn.sigmoid(a);"),
        (
            "p = nn.max_pool{size=2, stride=2, padding=0}(r);",
            "q = math.add(r, a); p = nn.relu(q);",
        ),  # two readers
        ("nn.conv{padding=1}(p, v)", "nn.conv{padding=1, groups=2}(p, v)"),
    ],
)
def test_what_does_not_let_factors_through_ends_a_pair(tmp_path: Path, old: str, new: str) -> None:
    text = CHAIN.replace(old, new)
    if "groups" in new:
        text = text.replace("v: real[6, 8, 3, 3]", "v: real[6, 4, 3, 3]")
    model = model_of(tmp_path, text)
    assert [pair.first.name for pair in find_pairs(model, find_layers(model))] == ["c"]
