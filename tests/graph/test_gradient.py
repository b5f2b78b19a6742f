"""Gradients derived from formulas: their texts, the places where there are none, whole networks, and kernels."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import lamella
from docs.generate import repaired
from lamella import LamellaError
from lamella.backend.reference import compile_model
from lamella.base.errors import Unsupported
from lamella.base.placement import KERNEL, placement_of
from lamella.graph.gradient import derive, differentiate
from lamella.graph.nodes import tensors
from lamella.graph.passes.fold_transposes import fold_transposes
from lamella.lang.skriptnd import write
from lamella.lang.skriptnd.nodes import Document
from lamella.ops.library import Library
from tests.bridge.test_graph_to_kernels_operators import FACTORISATIONS
from tests.lang.skriptnd.test_bad import expectations
from tests.support.bridge.operators import (
    aten,
    aten_others,
    images,
    layouts,
    llm,
    mathematics,
    mixtures,
    networks,
    others,
    scans,
)
from tests.support.bridge.operators.calls import build, call
from tests.support.graph import gradient_calls
from tests.support.graph.drawn_gradients import real_names
from tests.support.graph.texts import model_of, small

CALLS = [
    item
    for module in (
        *(aten, aten_others, images, layouts, llm, mathematics, mixtures, networks, others, scans),
        gradient_calls,
    )
    for item in module.CALLS
    if "backward" not in item.operator and not {"f16", "bf16"} & set(re.findall(r"\w+", str(item.inputs)))
]
WITHOUT = {
    "nn.lstm": "only the run tells",
    "recurrent.solve_lower": "which it or another one computes",
    **dict.fromkeys((f"linalg.{name}" for name in FACTORISATIONS), "no formula"),
}
"""Operators whose gradient is not derived, and what is said of it."""


@pytest.mark.parametrize("operator", WITHOUT)
def test_what_has_no_derivative_says_why(operator: str) -> None:
    refused = 0
    for item in CALLS:
        if item.operator == operator:
            model, _ = build([item])
            try:
                differentiate(model, real_names(model))
            except LamellaError as problem:
                (finding,) = problem.findings
                assert finding.code == "SKR388"
                assert WITHOUT[operator] in finding.message
                refused += 1
    assert refused


BAD = sorted((Path(__file__).parents[1] / "lang" / "skriptnd" / "bad" / "gradients").glob("*.sknd"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_place_without_gradient_is_a_finding_that_says_the_repair(path: Path) -> None:
    text = path.read_text()
    with pytest.raises(LamellaError) as caught:
        differentiate(model_of(text), ["x"])
    found = Counter((item.span.line, item.code) for item in caught.value.findings)
    assert found == expectations(text)
    assert all(item.hint for item in caught.value.findings)
    differentiate(model_of(repaired(text)), ["x"])


# --- texts ------------------------------------------------------------------------------------------------------


def text_of(operator: str, wanted: str) -> str:
    """The derived operator as text."""
    found = Library().find_operator(operator)
    assert found is not None
    made = derive(found, wanted)
    assert made is not None
    return write(Document((), (*made.parts, made.operator)))


def test_a_contraction_swaps_the_roles_of_its_indices() -> None:
    assert "d_filter[ni, ci] += d_output[bi, ni] * input[bi, ci], bi < b, ci < c, ni < n;" in text_of(
        "nn.linear", "filter"
    )


def test_a_gather_becomes_a_scatter() -> None:
    assert "d_data[si.., index[ni..], ti..] += d_output[si.., ni.., ti..]" in text_of("layout.gather", "data")


def test_equal_maxima_share_their_gradient() -> None:
    model = model_of(
        "import math;\ngraph G { @input { x: real[4]; } @output { y: real[1]; }"
        " @compose { y = math.max_reduce{axes=[0]}(x); } }"
    )
    back = differentiate(model, ["x"])
    found = compile_model(back)(x=np.array([3, 1, 3, 0], np.float32), d_y=np.array([8], np.float32))
    np.testing.assert_array_equal(next(iter(found.values())), [4, 0, 4, 0])


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_a_product_of_zeros_has_the_gradient_of_torch(zeros: int) -> None:
    model = model_of(
        "import math;\ngraph G { @input { x: real[5]; } @output { y: real[1]; }"
        " @compose { y = math.prod_reduce{axes=[0]}(x); } }"
    )
    x = np.array([0] * zeros + [2, 3, -1, 5, 4][zeros:], np.float64)
    found = compile_model(differentiate(model, ["x"]), dtype="f64")(x=x, d_y=np.ones(1))
    given = torch.tensor(x, requires_grad=True)
    given.prod().backward()
    np.testing.assert_allclose(next(iter(found.values())), given.grad)


def test_a_whole_network_has_the_gradients_of_torch() -> None:
    """Convolution, pooling, normalisation, softmax and loss in one graph, against torch's own differentiation."""
    model = model_of(NETWORK)
    random = np.random.default_rng(3)
    fed = {name: random.normal(size=shape) for name, shape in SHAPES.items()}
    found = compile_model(differentiate(model, list(SHAPES)), dtype="f64")(**fed, d_y=np.ones((2, 5)))
    given = {name: torch.tensor(item, requires_grad=True) for name, item in fed.items()}
    hidden = torch.nn.functional.conv2d(given["x"], given["w"], given["b"], padding=1)
    pooled = torch.nn.functional.max_pool2d(torch.tanh(hidden), 2)
    made = torch.log_softmax(pooled.flatten(1) @ given["v"].T, 1)
    (made * made).sum().backward()
    for name, got in zip(SHAPES, found.values(), strict=True):
        np.testing.assert_allclose(got, given[name].grad, rtol=1e-9, atol=1e-9)


SHAPES = {"x": (2, 3, 8, 8), "w": (4, 3, 3, 3), "b": (4,), "v": (5, 64)}
NETWORK = """
import nn, math, layout;
graph G {
    @input { x: real[2, 3, 8, 8]; w: real[4, 3, 3, 3]; b: real[4]; v: real[5, 64]; }
    @output { y: real[2, 5]; }
    @compose {
        h = nn.conv{padding=[1, 1, 1, 1]}(x, w, b);
        t = math.tanh(h);
        p = nn.max_pool{axes=[2, 3], size=[2, 2], stride=[2, 2], padding=[0, 0, 0, 0]}(t);
        f = layout.reshape{shape=[2, 64]}(p);
        l = nn.linear(f, v);
        s = nn.softmax{axes=[1]}(l);
        g = math.log(s);
        y = math.mul(g, g);
    }
}
"""


def test_an_extent_that_an_absent_input_would_tell_is_told_by_another() -> None:
    text = """
    operator seen {
        @input {
            x: real[b, n, c];
            mask: optional int[b, n];
        }
        @output {
            y: real[b, c];
        }
        @lower {
            y[l, j] += (mask[l, i] != 0 ?? true) ? x[l, i, j] : 0.0, l < b, i < n, j < c;
        }
    }

    graph G {
        @input {
            x: real[2, 3, 4];
        }
        @output {
            y: real[2, 4];
        }
        @compose {
            y = seen(x);
        }
    }
    """
    model = differentiate(model_of(text), ["x"])
    seed = np.arange(8, dtype=np.float32).reshape(2, 4)
    found = compile_model(model)(x=np.ones((2, 3, 4), np.float32), d_y=seed)["d_x"]
    np.testing.assert_array_equal(found, np.broadcast_to(seed[:, None], (2, 3, 4)))


def test_an_integer_input_has_no_gradient() -> None:
    model, _ = build([call("layout.gather", "f32 4 3", "i64 2 0..3", axis=0)])
    assert real_names(model) == ["x0_0"]
    found = Library().find_operator("layout.gather")
    assert found is not None
    with pytest.raises(Unsupported, match="no input of reals"):
        derive(found, "index")


def test_gradients_run_as_kernels_and_as_text() -> None:
    """Derived operators are operators: every one of them is a kernel, and the text of the model comes back."""
    model = differentiate(model_of(NETWORK), ["x", "w", "b", "v"])
    assert [item.name for given in model.graph.outputs for item in tensors(given)] == [
        "d_x",
        "d_w",
        "d_b",
        "d_v",
    ]
    random = np.random.default_rng(5)
    shapes = {**SHAPES, "d_y": (2, 5)}
    fed = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    wanted = compile_model(model, dtype="f64")(**fed)
    run = lamella.compile(model, backend="cpu")
    assert all(item.where == KERNEL for item in placement_of(run))
    for name, got in run(**fed).items():
        np.testing.assert_allclose(got, wanted[name], rtol=1e-4, atol=1e-4 * np.abs(wanted[name]).max())


def test_a_differentiated_model_is_read_again(tmp_path: Path) -> None:
    """Written, checked and run it gives the same: what is chosen by attributes, added, and initialised first."""
    body = """p = layout.pad{padding=[1, 0, 0, 2], method="REFLECT"}(x); m = linalg.matmul{transB=true}(p, w);
        s = llm.split_swiglu(m); d = aten.diff(s); y = math.tanh(d);"""
    model = differentiate(small("x: real[3, 4]; w: real[6, 6];", body, "y: real"), ["x", "w"])
    lamella.save(model, tmp_path / "back.sknd")
    again = lamella.load(tmp_path / "back.sknd")
    assert not [item for item in lamella.check(tmp_path / "back.sknd") if item.severity == "error"]
    random = np.random.default_rng(7)
    fed = {
        "x": random.normal(size=(3, 4)),
        "w": random.normal(size=(6, 6)),
        "d_y": random.normal(size=(4, 2)),
    }
    given = {name: item.astype(np.float32) for name, item in fed.items()}
    one, two = (lamella.compile(item, backend="reference")(**given) for item in (model, again))
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])


PRODUCT = """
import linalg, layout;
graph G {{
    @input {{ x: real[{rows}, {inner}]; w: real[{columns}, {inner}]; }}
    @output {{ y: real[{rows}, {columns}]; }}
    @compose {{ t = layout.transpose{{perm=[1, 0]}}(w); y = linalg.matmul(x, t); }}
}}
"""


@pytest.mark.parametrize("sizes", [(4, 4, 4), (17, 37, 2051), (5, 2, 4100)])
def test_gradients_of_products_with_transposed_weights(sizes: tuple[int, int, int]) -> None:
    """Squares, where a wrong flag has the right shape, and sums so long that kernels add them up in parts."""
    rows, inner, columns = sizes
    model = differentiate(model_of(PRODUCT.format(rows=rows, inner=inner, columns=columns)), ["x", "w"])
    random = np.random.default_rng(6)
    x, w, seed = (random.normal(size=size) for size in ((rows, inner), (columns, inner), (rows, columns)))
    given = {name: item.astype(np.float32) for name, item in (("x", x), ("w", w), ("d_y", seed))}
    found = lamella.compile(model, backend="cpu")(**given)
    for got, wanted in zip(found.values(), (seed @ w, seed.T @ x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_a_flag_that_means_something_else_is_not_folded() -> None:
    """The gradient of a product is transposed with its operand: the flags of both cannot be exchanged."""
    before = small(
        "x: real[4, 4]; v: real[4, 4]; g: real[4, 4];",
        "b = layout.transpose{perm=[1, 0]}(v); y = gradient.linalg_matmul_d_B(x, b, g);",
    )
    assert fold_transposes(before).graph == before.graph


def test_far_arguments_have_finite_slopes() -> None:
    """Where the exponential is no number any more, the slope of what it bounds still is."""
    far = np.array([-1e4, -750.0, -90.0, 0.0, 90.0, 750.0, 1e4])
    for body in ("y = nn.silu(x);", "y = nn.sigmoid(x);", "y = nn.softplus(x);"):
        model = differentiate(small("x: real[7];", body, "y: real[7]"), ["x"])
        found = compile_model(model, dtype="f64")(x=far, d_y=np.ones(7))
        assert np.isfinite(next(iter(found.values()))).all(), body


def test_smooth_functions_are_smooth_where_their_formulas_change() -> None:
    at_zero = {"nn.softplus": 0.5, "onnx.softplus": 0.5, "aten.softplus": 0.5, "aten.log_sigmoid": 0.5}
    at_zero["aten.mish"] = float(np.tanh(np.log(2.0)))
    for name, slope in at_zero.items():
        model, _ = build([call(name, "f64 2")])
        (given,) = real_names(model)
        seeds = [item.name for one in differentiate(model, [given]).graph.inputs for item in tensors(one)][1:]
        found = compile_model(differentiate(model, [given]), dtype="f64")(
            **{given: np.zeros(2), seeds[0]: np.ones(2)}
        )
        np.testing.assert_allclose(next(iter(found.values())), slope, err_msg=name)
