"""Weights as codes in a graph: what they decode to, on every backend, and in bytes where nibbles have no type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.base.arrays import Array
from lamella.base.dtype import I4
from lamella.graph.model import Model
from lamella.graph.rewrite import members
from lamella.pipeline.quantize.narrow import can_group, narrow_weights, widen_codes
from lamella.pipeline.quantize.weights import CHANNEL, GROUP, TENSOR, Granularity, round_weight

PRODUCTS = {
    "linear": ("x: real[3, 16]", "w: real[6, 16]", "y: real[3, 6]", "nn.linear(x, w)", 0),
    "matmul": ("x: real[3, 16]", "w: real[16, 6]", "y: real[3, 6]", "linalg.matmul(x, w)", 1),
    "conv": (
        "x: real[1, 4, 5, 5]",
        "w: real[6, 4, 3, 3]",
        "y: real[1, 6, 5, 5]",
        "nn.conv{padding=1}(x, w)",
        0,
    ),
}


def model_of(name: str, folder: Path) -> tuple[Model, dict[str, Array], int]:
    """A product, its weight and an input, and the axis of the weight's channels."""
    given, weight, output, call, rows = PRODUCTS[name]
    text = f"import linalg, nn;\n\ngraph G {{\n@input {{ {given}; }}\n@output {{ {output}; }}\n"
    (folder / "g.sknd").write_text(f"{text}@variable {{ {weight}; }}\n@compose {{ y = {call}; }}\n}}\n")
    model = lamella.load(folder / "g.sknd")
    assert isinstance(model, Model)
    random = np.random.default_rng(0)
    arrays: dict[str, Array] = {}
    for item in members((*model.graph.variables, *model.graph.inputs)):
        shape = tuple(extent for extent in item.shape if isinstance(extent, int))
        arrays[item.name] = random.normal(size=shape).astype(np.float32)
    return replace(model, data={"w": arrays["w"]}), arrays, rows


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("per", [Granularity(TENSOR), Granularity(CHANNEL), Granularity(GROUP, 4)], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_graph_computes_with_what_the_codes_stand_for(
    name: str, per: Granularity, bits: int, backend: str, tmp_path: Path
) -> None:
    model, arrays, rows = model_of(name, tmp_path)
    codes = round_weight(arrays["w"], rows, bits, per)
    assert codes.scales.shape[1] == (
        1 if per.kind != GROUP else arrays["w"].size // arrays["w"].shape[rows] // 4
    )
    narrow = narrow_weights(model, {"w": codes})
    wanted = lamella.compile(replace(model, data={"w": codes.values()}), backend="reference")(x=arrays["x"])[
        "y"
    ]
    assert np.allclose(lamella.compile(narrow, backend=backend)(x=arrays["x"])["y"], wanted, atol=1e-4)
    wide = widen_codes(narrow)
    assert all(item.element != I4 for item in wide.graph.variables)
    assert np.allclose(lamella.compile(wide, backend="reference")(x=arrays["x"])["y"], wanted, atol=1e-4)


def test_groups_are_whole_and_lie_in_one_piece() -> None:
    assert can_group((6, 16), 0, 4)
    assert can_group((16, 6), 1, 4)
    assert not can_group((6, 18), 0, 4)
    assert not can_group((6, 4), 0, 4)  # one group is a channel
    assert not can_group((4, 6, 3, 3), 1, 4)
