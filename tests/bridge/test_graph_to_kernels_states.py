"""Models with variables, branches, loops and quantisation, and the example networks, by kernels."""

from __future__ import annotations

import numpy as np
import pytest

import lamella
from lamella.backend.executor import GraphExecutable
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.bridge.graph_to_kernels import graph_to_kernels
from lamella.graph.model import Model
from tests.support.bridge.launch_lists import compile_lists
from tests.support.bridge.operators.calls import agree, draw
from tests.support.graph.texts import small
from tests.support.repository import ROOT


def pair(model: Model, quantized: bool = False) -> tuple[GraphExecutable, GraphExecutable]:
    """A model by its kernels and on the reference; what has no data is drawn from the same seed."""
    kernels = graph_to_kernels(model)
    assert kernels.calls
    return compile_lists(kernels, quantized=quantized), compile_model(model, quantized=quantized)


def judge(model: Model, quantized: bool = False, runs: int = 3, **fed: Array) -> dict[str, Array]:
    """The outputs after some runs; outputs and states are those of the reference after each of them."""
    found, expected = pair(model, quantized)
    outputs: dict[str, Array] = {}
    for _ in range(runs):
        outputs = dict(found(**fed))
        agree(outputs, expected(**fed))
        agree(found.state, expected.state)
    return outputs


@pytest.mark.parametrize(
    "call",
    [
        "layer.linear{channels=5}",
        "layer.linear{channels=5, use_bias=false}",
        "layer.conv{channels=6, size=[3, 2], padding=[1, 1, 0, 1]}",
        "layer.conv{channels=6, size=[1, 1], groups=2, use_bias=false}",
        "layer.deconv{channels=6, size=[3, 2], stride=[2, 1]}",
        "layer.batch_norm{}",
        "layer.batch_norm{momentum=0.25}",
    ],
)
def test_layers(call: str) -> None:
    shape = "2, 4" if "linear" in call else "2, 4, 6, 5"
    model = small(f"x: real[{shape}];", f"y = l: {call}(x);")
    judge(model, x=draw(f"f32 {shape.replace(',', '')} -2..2", 0))


def test_variables_are_updated_from_run_to_run() -> None:
    model = small(
        "x: real[3];",
        "y = math.add(x, v);",
        blocks="@variable { v: real[3]; } @update { v = math.mul(y, x); }",
    )
    x, v = np.asarray([1, 2, 3], np.float32), np.ones(3, np.float32)
    model = Model(model.graph, model.library, {"v": v})
    run, _ = pair(model)
    for _ in range(4):
        np.testing.assert_array_equal(run(x=x)["y"], x + v)
        v = (x + v) * x
    judge(model, x=x)


@pytest.mark.parametrize("value", [-1.0, 2.0])
def test_branches(value: float) -> None:
    test = "c = math.max_reduce{axes=[0], squeeze=true}(x); d = math.gt(c, 0.0);"
    body = f"{test} y = if d then math.exp(x) else math.neg(x);"
    judge(small("x: real[4];", body), x=np.full(4, value, np.float32))


def test_loops() -> None:
    x = np.asarray([1, 2, 3], np.float32)
    model = small("x: real[3];", "y = with a = x do..(3) math.mul(a, x);")
    np.testing.assert_array_equal(judge(model, x=x)["y"], x**4)


NETWORKS: list[tuple[str, dict[str, int]]] = [
    ("alexnet", {"batch": 1, "classes": 10}),
    ("resnet18", {"batch": 1, "size": 64, "classes": 10}),
    ("operator/window_attention.sknd", {}),
]


@pytest.mark.parametrize(("example", "config"), NETWORKS, ids=[name for name, _ in NETWORKS])
def test_networks(example: str, config: dict[str, int]) -> None:
    """The inputs and weights are random, the same for both."""
    by_kernels, by_reference = (
        lamella.compile(ROOT / "examples" / example, backend, seed=1, config=config)
        for backend in ("cpu", "reference")
    )
    found, expected = by_kernels(), by_reference()
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4 * np.abs(array).max())


def test_quantized_models() -> None:
    words = "zero_point=0, scale=0.5, bits=8"
    model = small(
        "x: real[2, 8];",
        "y = nn.linear(x, w);",
        blocks=f"""@variable {{ w: real[4, 8]; }} @quantize {{
            x: quant.zero_point_linear_quantize{{{words}}}; y: quant.zero_point_linear_quantize{{{words}}}; }}""",
    )
    model = Model(model.graph, model.library, {"w": draw("f32 4 8 -2..2", 1)})
    x = draw("f32 2 8 -2..2", 0)
    found = judge(model, quantized=True, x=x)["y"]
    np.testing.assert_array_equal(found * 2, np.round(found * 2))
    assert not np.array_equal(found, judge(model, x=x)["y"])
