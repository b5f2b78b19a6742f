"""Gradients derived from formulas agree with finite differences, for every operator of the library that has them."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import lamella
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.errors import Unsupported
from lamella.base.placement import KERNEL, placement_of
from lamella.base.source import Source
from lamella.graph.gradient import MODULE, derive, differentiate
from lamella.graph.model import Model
from lamella.graph.nodes import tensors
from lamella.graph.passes.fold_transposes import fold_transposes
from lamella.lang.skriptnd import parse, write
from lamella.lang.skriptnd.nodes import Document
from lamella.ops.library import Library
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
from tests.support.bridge.operators.calls import Invocation, build, call
from tests.support.graph.texts import model_of, small

FUZZ = "LAMELLA_FUZZ" in os.environ
STEP = 1e-6
TOLERANCE = 1e-6
SOME = 4
"""Elements of each input that are moved."""
CALLS = [
    item
    for module in (aten, aten_others, images, layouts, llm, mathematics, mixtures, networks, others, scans)
    for item in module.CALLS
    if "backward" not in item.operator and not {"f16", "bf16"} & set(re.findall(r"\w+", str(item.inputs)))
]
REPEATED = ("layout.scatter", "layout.scatter_nd")
"""Several steps assign one element there; each of them is given its gradient, as torch does it."""


def by_operator() -> dict[str, list[Invocation]]:
    """Calls of each operator: one of them, or all in a long run."""
    found: dict[str, list[Invocation]] = defaultdict(list)
    for item in CALLS:
        if FUZZ or not found[item.operator]:
            found[item.operator].append(item)
    return {name: items for name, items in found.items() if name not in REPEATED}


def real_names(model: Model) -> list[str]:
    """The inputs of reals."""
    return [item.name for given in model.graph.inputs for item in tensors(given) if item.element.is_float]


def wide(fed: dict[str, Array]) -> dict[str, Array]:
    """Arrays with their reals in 64 bits."""
    return {
        name: item.astype(np.float64, "C") if item.dtype.kind == "f" else item for name, item in fed.items()
    }


def gradients(model: Model, fed: dict[str, Array], seeds: dict[str, Array]) -> dict[str, Array]:
    """The gradients of all real inputs, in 64 bits."""
    names = real_names(model)
    back = differentiate(model, names)
    made = back.library.own_modules()[MODULE]
    assert parse(Source("gradient", write(made))).document == made
    known = {item.name for given in back.graph.inputs for item in tensors(given)}
    given = {f"d_{name}": seed for name, seed in seeds.items() if f"d_{name}" in known}
    found = compile_model(back, dtype="f64")(**fed, **given)
    return dict(zip(names, found.values(), strict=True))


def differences(
    model: Model, fed: dict[str, Array], seeds: dict[str, Array]
) -> Iterator[tuple[str, int, float]]:
    """Central differences of the weighted sum of the outputs, for some elements of each input."""
    run, random = compile_model(model, dtype="f64"), np.random.default_rng(1)

    def value(name: str, place: int, step: float) -> float:
        moved = fed[name].copy()
        moved.reshape(-1)[place] += step
        made = run(**{**fed, name: moved})
        return float(sum((seeds[output] * made[output]).sum() for output in seeds))

    for name in real_names(model):
        for place in random.choice(fed[name].size, min(SOME, fed[name].size), replace=False):
            yield name, place, (value(name, place, STEP) - value(name, place, -STEP)) / (2 * STEP)


def compare(item: Invocation) -> bool:
    """Whether there was a gradient to compare; that it is right is asserted."""
    model, fed = build([item])
    fed = wide(fed)
    outputs = compile_model(model, dtype="f64")(**fed)
    random = np.random.default_rng(0)
    seeds = {
        name: random.normal(size=array.shape) for name, array in outputs.items() if array.dtype.kind == "f"
    }
    if not seeds or not real_names(model):
        return False
    found = gradients(model, fed, seeds)
    for name, place, wanted in differences(model, fed, seeds):
        got = float(found[name].reshape(-1)[place])
        assert abs(got - wanted) <= TOLERANCE * (1 + abs(wanted)), (item.operator, name, place, got, wanted)
    return True


WITHOUT = {
    "aten.upsample_bicubic2d": "has no formula",
    "image.cubic_resize": "has no formula",
    "image.rescale": "has no formula",
    "image.max_roi_pool": "has no formula",
    "image.avg_roi_pool": "has no formula",
}
"""Operators whose gradient is not derived, and what is said of it."""


@pytest.mark.parametrize("operator", [name for name in by_operator() if name not in WITHOUT])
def test_a_derived_gradient_is_the_limit_of_differences(operator: str) -> None:
    for item in by_operator()[operator]:
        if item.attributes.get("mode") == "CUBIC":
            continue
        compare(item)


@pytest.mark.parametrize("operator", WITHOUT)
def test_what_has_no_derivative_says_why(operator: str) -> None:
    refused = 0
    for item in CALLS:
        if item.operator == operator:
            model, _ = build([item])
            try:
                differentiate(model, real_names(model))
            except Unsupported as problem:
                assert WITHOUT[operator] in str(problem)  # noqa: PT017
                refused += 1
    assert refused


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
