"""ONNX files that graphs become: names, origins, states, codes, data beside the file, what cannot be said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import pytest

import lamella
from lamella.backend.reference import compile_model
from lamella.base.dim import symbol
from lamella.base.dtype import F32, I8, I16, I32, I64, U8
from lamella.base.errors import Found
from lamella.bridge.graph_to_onnx import graph_to_onnx
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.pipeline.onnx import writing
from lamella.pipeline.options import Options
from tests.support.bridge.onnx_files import COUNTER, exported, largest_difference, run_onnx
from tests.support.strategies.graph import library

CODED = """import nn, quant;
graph Coded {
    @input { x: real[2, 3]; }
    @variable { weight: real[4, 3]; }
    @output { y: real[2, 4]; }
    @compose { y = nn.linear(x, weight); }
    @quantize {
        x: quant.zero_point_linear_quantize{zero_point=3, scale=0.04, bits=8, signed=false};
        weight: quant.zero_point_linear_quantize{zero_point=0, scale=[0.01, 0.02, 0.03, 0.04], bits=8,
            symmetric=true, channel_axis=0};
    }
}
"""


def counter(tmp_path: Path) -> Model:
    """A model with a state and a weight that has numbers."""
    (tmp_path / "counter.sknd").write_text(COUNTER)
    model = cast("Model", lamella.load(tmp_path / "counter.sknd"))
    numbers = {"total": np.ones(3, np.float32), "weight": np.full(3, 2, np.float32)}
    return replace(model, data=numbers)


def test_names_and_origins_survive(tmp_path: Path) -> None:
    found = exported(counter(tmp_path))
    assert found.producer_name == "lamella"
    assert [item.name for item in found.graph.initializer] == ["total", "weight"]
    multiply, add, following = found.graph.node
    assert (list(multiply.output), list(add.output), list(following.output)) == (
        ["scaled"],
        ["y"],
        ["total.next"],
    )
    said = {item.key: item.value for item in multiply.metadata_props}
    assert said["lamella.operator"] == "math.mul"
    assert "counter.sknd:7" in said["lamella.origin"]


def test_a_state_is_an_input_with_a_default_and_an_output(tmp_path: Path) -> None:
    found = exported(counter(tmp_path))
    x = np.arange(3, dtype=np.float32)
    first = run_onnx(found, {"x": x})
    np.testing.assert_array_equal(first["total.next"], 2 * x + 1)
    second = run_onnx(found, {"x": x, "total": first["total.next"]})
    np.testing.assert_array_equal(second["y"], 4 * x + 1)


def test_a_model_comes_back_from_its_file(tmp_path: Path) -> None:
    model = counter(tmp_path)
    lamella.save(model, tmp_path / "out.onnx")
    again = lamella.compile(lamella.load(tmp_path / "out.onnx"))
    run = lamella.compile(model)
    for _ in range(3):
        x = np.arange(3, dtype=np.float32)
        np.testing.assert_array_equal(again(x=x)["y"], run(x=x)["y"])


def test_large_weights_lie_beside_the_file(tmp_path: Path) -> None:
    builder = Builder(library(), "G")
    x = builder.input("x", F32, (2, 64))
    weights = [builder.variable(f"w{number}", F32, (64, 64)) for number in range(3)]
    small = builder.variable("small", F32, (64,))
    for weight in weights:
        x = builder.call("nn.linear", x, weight, small)
    random = np.random.default_rng(0)
    data = {item.name: random.normal(size=(64, 64)).astype(np.float32) / 8 for item in weights}
    data["small"] = random.normal(size=64).astype(np.float32)
    model, path = Model(builder.finish(x), library(), data), tmp_path / "model.onnx"
    written = writing.from_graph(model, path, Options())
    writing.save(written, path, largest=1000)
    size = (tmp_path / "model.onnx.data").stat().st_size
    assert size == 3 * 64 * 64 * 4
    assert path.stat().st_size < 4000
    onnx.checker.check_model(str(path), full_check=True)
    given = {"x": random.normal(size=(2, 64)).astype(np.float32)}
    wanted = lamella.compile(model)(**given)
    assert largest_difference(run_onnx(str(path), given), wanted) < 1e-5
    assert largest_difference(lamella.compile(lamella.load(path))(**given), wanted) < 1e-5
    writing.save(written, path)
    assert not (tmp_path / "model.onnx.data").exists()


def test_quantised_tensors_are_codes(tmp_path: Path) -> None:
    (tmp_path / "coded.sknd").write_text(CODED)
    random = np.random.default_rng(1)
    data = {"weight": random.uniform(-2, 2, (4, 3)).astype(np.float32)}
    model = replace(cast("Model", lamella.load(tmp_path / "coded.sknd")), data=data)
    found = exported(model)
    (weight,) = [item for item in found.graph.initializer if item.name == "weight"]
    assert onnx.numpy_helper.to_array(weight).dtype == np.int8
    assert onnx.numpy_helper.to_array(weight).min() >= -127
    kinds = [item.op_type for item in found.graph.node]
    assert sorted(kinds) == ["DequantizeLinear", "DequantizeLinear", "Gemm", "QuantizeLinear"]
    given = {"x": random.uniform(-1, 12, (2, 3)).astype(np.float32)}
    wanted = compile_model(model, quantized=True)(**given)
    assert largest_difference(run_onnx(found, given), wanted) < 1e-5


def test_reals_become_the_nearest_integers_of_a_narrow_type() -> None:
    builder = Builder(library(), "G")
    x = builder.input("x", F32, (7,))
    results = [builder.call("layout.cast", x, types={"R": item}) for item in (I8, U8, I16, I32, I64)]
    model = Model(builder.finish(*results), library())
    given = {"x": np.asarray([300.5, -300.5, 3e9, -3e9, -1.5, 0.9, 70000], np.float32)}
    assert largest_difference(run_onnx(exported(model), given), compile_model(model)(**given)) == 0


def test_open_extents_keep_their_names() -> None:
    builder = Builder(library(), "G")
    x = builder.input("x", F32, (symbol("n", 64, 1), 6))
    y = builder.call("layout.reshape", x, shape=(-1, 2, 3), rank=2)
    found = exported(Model(builder.finish(y), library()))
    (given,) = found.graph.input
    assert [item.dim_param or item.dim_value for item in given.type.tensor_type.shape.dim] == ["n", 6]
    for size in (1, 5):
        (result,) = run_onnx(found, {"x": np.zeros((size, 6), np.float32)}).values()
        assert result.shape == (size, 2, 3)


def test_what_onnx_cannot_say_is_a_finding() -> None:
    builder = Builder(library(), "G")
    x = builder.input("x", F32, (1, 1, 3, 3, 3))
    grid = builder.input("grid", F32, (1, 2, 2, 2, 3))
    y = builder.call("image.grid_sample", x, grid, mode="CUBIC")
    with pytest.raises(Found, match="in two dimensions only"):
        graph_to_onnx(Model(builder.finish(y), library()))
