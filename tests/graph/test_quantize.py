"""The pass to integers: numbers within the steps of codes, the same bits on every backend and in every text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamella
from lamella.backend.reference import compile_model
from lamella.base.dtype import BF16, F16, F32, I4, I8, I16, ElementType
from lamella.base.quant import PerChannel, PerTensor
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.quantize import TensorCodes, to_integers, to_normal_form
from lamella.graph.rewrite import defined, members, results_of
from lamella.graph.verify import verify
from lamella.pipeline.skriptnd.run_passes import evaluator
from tests.support.graph.quantised import (
    Quantised,
    choose,
    inputs_of,
    noise,
    quantise,
    symmetric,
    with_weights,
)
from tests.support.graph.running import random_arrays
from tests.support.graph.texts import model_of, small, written
from tests.support.strategies.graph import models

NETWORK = """
    a = nn.conv{padding=[1, 1, 1, 1], stride=[2, 2]}(x, w1, b1);
    n = nn.batch_norm(a, mean, variance, shift, factor);
    r = nn.relu(n);
    d = nn.conv{padding=[1, 1, 1, 1], groups=8}(r, w2);
    s = nn.relu{max=6.0}(d);
    e = nn.conv{padding=[0, 0, 0, 0]}(s, w3);
    t = math.add(r, e);
    m = nn.max_pool{size=[2, 2], stride=[2, 2], padding=[0, 0, 0, 0]}(t);
    h = math.mul(m, 0.5);
    k = layout.concat{axis=1}([m, h]);
    p = nn.avg_pool{size=[4, 4], stride=[4, 4], padding=[0, 0, 0, 0]}(k);
    f = layout.flatten{axis=1}(p);
    g = nn.gelu(f);
    l = nn.linear(g, w4, b4);
    y = nn.softmax{axes=[1]}(l);
"""
VARIABLES = """@variable {
    w1: real[8, 3, 3, 3]; b1: real[8]; mean: real[8]; variance: real[8]; shift: real[8]; factor: real[8];
    w2: real[8, 1, 3, 3]; w3: real[8, 8, 1, 1]; w4: real[5, 16]; b4: real[5];
}"""


def network() -> Model:
    """A network of images with everything in it that disappears or stays."""
    model = with_weights(small("x: real[2, 3, 16, 16];", NETWORK, "y: real[2, 5]", VARIABLES))
    assert model.data is not None
    return replace(model, data={**model.data, "variance": np.abs(model.data["variance"]) + 0.5})


@pytest.fixture(scope="module")
def quantised() -> Quantised:
    """The integer graph of the network."""
    return quantise(network())


def test_the_integer_graph_is_near(quantised: Quantised) -> None:
    found = compile_model(quantised.found.model)(**quantised.fed)
    assert found["y"].dtype == quantised.wanted["y"].dtype
    assert noise(quantised.wanted["y"], found["y"]) < 1e-3


def test_what_disappears(quantised: Quantised) -> None:
    """Batch norms, rectifiers and products with numbers are no operations any more."""
    assert quantised.operators == [
        *("quant.quantize", "quant.conv", "quant.conv", "quant.conv", "quant.add", "nn.max_pool"),
        *("quant.requantize", "quant.requantize", "layout.concat", "quant.avg_pool", "layout.flatten"),
        *("quant.gelu", "quant.matmul", "quant.dequantize", "nn.softmax"),
    ]
    assert [(item.tensor, item.operator) for item in quantised.found.floats] == [("y", "nn.softmax")]


def test_weights_are_codes(quantised: Quantised) -> None:
    model = quantised.found.model
    elements = {item.name: item.element for item in model.graph.variables}
    assert {name: str(elements[name]) for name in ("w1", "w2", "w3", "w4")} == dict.fromkeys(
        ("w1", "w2", "w3", "w4"), "i8"
    )
    assert model.data is not None
    assert set(model.data) >= set(elements)
    assert all(model.data[name].dtype.kind == "i" for name in elements if name.startswith("b"))


def test_every_tensor_of_codes_says_what_they_stand_for(quantised: Quantised) -> None:
    made = [item for node in quantised.found.model.graph.nodes for item in results_of(node)]
    codes = [item for item in made if item.element == I8 and not item.name.endswith(".codes")]
    assert codes
    for item in codes:
        assert isinstance(item, Tensor)
        assert item.quantization is not None
        assert dict(item.quantization.attributes)["scale"] != (0.0,)


def test_machine_code_gives_the_same_bits(quantised: Quantised) -> None:
    model = quantised.found.model
    made = [item for node in model.graph.nodes for item in results_of(node) if isinstance(item, Tensor)]
    codes = tuple(item for item in made if item.name in ("r", "s", "e", "t", "k", "p", "g", "l"))
    watched = replace(model, graph=replace(model.graph, outputs=codes))
    wanted = compile_model(watched)(**quantised.fed)
    found = lamella.compile(watched, backend="cpu")(**quantised.fed)
    assert len(found) == 8
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, name)
    fused = lamella.compile(model, backend="cpu")(**quantised.fed)
    np.testing.assert_allclose(fused["y"], compile_model(model)(**quantised.fed)["y"], 1e-5)


def test_the_text_is_the_graph(quantised: Quantised) -> None:
    text = written(quantised.found.model)
    again = model_of(text)
    assert written(again) == text
    data = quantised.found.model.data
    assert data is not None
    renamed = {name.replace(".", "_"): values for name, values in data.items()}
    found = compile_model(replace(again, data=renamed))(**quantised.fed)
    np.testing.assert_array_equal(found["y"], compile_model(quantised.found.model)(**quantised.fed)["y"])
    assert "r: quant.linear_codes{scale=[" in text


@pytest.mark.parametrize("island", [F16, BF16])
def test_islands_have_the_type_that_is_asked_for(island: ElementType) -> None:
    found = quantise(network(), island)
    softmax = next(item for item in found.found.model.graph.operations() if item.operator == "nn.softmax")
    # Its steps are those of f32, as targets compute it; what comes in and goes out has the type of the island.
    (wide,) = results_of(softmax)
    casts = {
        item.inputs[0]: item
        for item in found.found.model.graph.operations()
        if item.operator == "layout.cast"
    }
    assert [item.element for item in results_of(casts[wide])] == [island]
    sources = [item for item in casts if casts[item].outputs[0] in softmax.inputs]
    assert [item.element for item in sources if isinstance(item, Tensor)] == [island]
    assert noise(found.wanted["y"], compile_model(found.found.model)(**found.fed)["y"]) < 1e-2


def test_weights_of_four_bits() -> None:
    found = quantise(network(), weights=I4)
    convolutions = [item for item in found.found.model.graph.operations() if item.operator == "quant.conv"]
    assert {dict(item.attributes)["w_bits"] for item in convolutions} == {4}
    data = found.found.model.data
    assert data is not None
    assert data["w1"].min() >= -8
    assert data["w1"].max() <= 7
    assert noise(found.wanted["y"], compile_model(found.found.model)(**found.fed)["y"]) < 0.2


def test_what_is_kept_stays_real() -> None:
    found = quantise(network(), keep=frozenset({"l"}))
    assert ("l", "nn.linear", "it was asked to stay real") in [
        (item.tensor, item.operator, item.reason) for item in found.found.floats
    ]
    assert "nn.linear" in found.operators


def test_codes_around_zero_keep_the_rectifier() -> None:
    """Codes of a rectified tensor that reach below zero do not cut it off."""
    model = with_weights(
        small(
            "x: real[1, 4];",
            "a = nn.linear(x, w); y = nn.relu(a);",
            "y: real[1, 3]",
            "@variable { w: real[3, 4]; }",
        )
    )
    normal = to_normal_form(model, evaluator(model.library))
    fed = inputs_of(normal)
    codes = {**choose(normal, fed), "y": TensorCodes(PerTensor(0.05, 0))}
    found = to_integers(normal, codes)
    assert [item.operator for item in found.model.graph.operations()][1:3] == ["quant.matmul", "quant.relu"]
    wanted, actual = compile_model(model)(**fed)["y"], compile_model(found.model)(**fed)["y"]
    np.testing.assert_allclose(actual, wanted, atol=0.1)
    assert (actual >= 0).all()


def test_everything_behind_a_product_disappears() -> None:
    """A bias that is added, and a clamp in two steps."""
    body = "a = linalg.matmul(x, w); c = math.add(a, b); d = math.max(c, 0.0); e = math.min(d, 1.5); y = math.tanh(e);"
    blocks = "@variable { w: real[4, 3]; b: real[3]; }"
    model = with_weights(small("x: real[2, 5, 4];", body, "y: real[2, 5, 3]", blocks))
    normal = to_normal_form(model, evaluator(model.library))
    fed = inputs_of(normal)
    assert normal.data is not None
    found = to_integers(normal, {**choose(normal, fed), "w": symmetric(normal.data["w"], 1)})
    names = [item.operator for item in found.model.graph.operations()]
    assert names == ["quant.quantize", "quant.matmul", "quant.tanh", "quant.dequantize"]
    assert noise(compile_model(model)(**fed)["y"], compile_model(found.model)(**fed)["y"]) < 1e-3


def test_a_weight_that_two_products_read_is_stored_once() -> None:
    body = "a = nn.linear(x, w, b); c = nn.linear(a, w, b); y = math.tanh(c);"
    found = quantise(
        with_weights(
            small("x: real[2, 4];", body, "y: real[2, 4]", "@variable { w: real[4, 4]; b: real[4]; }")
        )
    )
    names = [item.name for item in found.found.model.graph.variables]
    assert sorted(names) == ["b.codes", "b.codes_1", "w", "w.scale"]
    assert noise(found.wanted["y"], compile_model(found.found.model)(**found.fed)["y"]) < 1e-2


def test_a_table_of_rows_that_is_a_weight_too() -> None:
    """Tied embeddings: rows are taken as codes with their scales, products read the same codes."""
    body = "a = layout.gather{axis=0}(w, i); c = math.tanh(a); y = nn.linear(c, w);"
    model = with_weights(small("i: int[5];", body, "y: real[5, 8]", "@variable { w: real[8, 4]; }"))
    found = quantise(model)
    assert [item.name for item in found.found.model.graph.variables] == ["w", "w.scale"]
    assert found.operators.count("layout.gather") == 2
    assert noise(found.wanted["y"], compile_model(found.found.model)(**found.fed)["y"]) < 1e-2


def test_a_channel_of_zeros_keeps_its_bias() -> None:
    model = with_weights(
        small(
            "x: real[1, 4];",
            "y = nn.linear(x, w, b);",
            "y: real[1, 3]",
            "@variable { w: real[3, 4]; b: real[3]; }",
        )
    )
    assert model.data is not None
    weight = model.data["w"].copy()
    weight[1] = 0.0
    model = replace(model, data={**model.data, "w": weight, "b": np.array([1.0, -3.0, 2.0], np.float32)})
    normal = to_normal_form(model, evaluator(model.library))
    fed = inputs_of(normal)
    rows = symmetric(weight, 0).quant
    assert isinstance(rows, PerChannel)
    tiny = PerChannel(0, (rows.scales[0], 1e-12, rows.scales[2]), rows.zero_points)
    found = to_integers(normal, {**choose(normal, fed), "w": TensorCodes(tiny)})
    wanted, actual = compile_model(model)(**fed)["y"], compile_model(found.model)(**fed)["y"]
    np.testing.assert_allclose(actual, wanted, atol=0.06)


STATE = """import nn, math;
graph G {
    @input { x: real[1, 4]; }
    @output { y: real[1, 4]; }
    @variable { w: real[4, 4]; s: real[1, 4]; }
    @compose { a = nn.linear(x, w); y = math.add(a, s); }
    @update { s = y; }
}
"""


@pytest.mark.parametrize("coded", [False, True])
def test_states_stay_real_unless_codes_are_chosen(coded: bool) -> None:
    model = with_weights(model_of(STATE))
    normal = to_normal_form(model, evaluator(model.library))
    fed = inputs_of(normal)
    codes = {**choose(normal, fed), "y": TensorCodes(PerTensor(0.1, 3))}
    codes |= {"s": TensorCodes(PerTensor(0.05, 0), I16)} if coded else {}
    found = to_integers(normal, codes).model
    assert verify(found.graph, found.library) == []
    state = next(item for item in found.graph.variables if item.name == "s")
    assert state.element == (I16 if coded else F32)
    wanted, actual = compile_model(model), compile_model(found)
    for _ in range(3):
        np.testing.assert_allclose(actual(**fed)["y"], wanted(**fed)["y"], atol=0.4)


def test_codes_of_weights_alone() -> None:
    """Activations without codes stay real; weights are read from their codes."""
    model = with_weights(
        small(
            "x: real[2, 4];",
            "y = nn.linear(x, w, b);",
            "y: real[2, 3]",
            "@variable { w: real[3, 4]; b: real[3]; }",
        )
    )
    normal = to_normal_form(model, evaluator(model.library))
    assert normal.data is not None
    found = to_integers(normal, {"w": symmetric(normal.data["w"], 0)})
    assert [item.operator for item in found.model.graph.operations()] == ["quant.decode", "nn.linear"]
    fed = inputs_of(normal)
    assert noise(compile_model(model)(**fed)["y"], compile_model(found.model)(**fed)["y"]) < 1e-3


def test_control_flow_stays_real() -> None:
    body = "a = nn.linear(x, w); y = if c then math.exp(a) else math.neg(a);"
    model = with_weights(
        small("x: real[1, 4]; c: bool[];", body, "y: real[1, 4]", "@variable { w: real[4, 4]; }")
    )
    normal = to_normal_form(model, evaluator(model.library))
    fed = {**inputs_of(normal), "c": np.array(True)}
    found = to_integers(normal, choose(replace(normal), fed))
    assert verify(found.model.graph, found.model.library) == []
    assert "control flow" in [item.operator for item in found.floats]
    assert noise(compile_model(model)(**fed)["y"], compile_model(found.model)(**fed)["y"]) < 1e-2


# --- the normal form -----------------------------------------------------------------------------------------------

SPELLED = {
    "attention": (
        "q: real[2, 4, 3, 6]; k: real[2, 2, 5, 6]; v: real[2, 2, 5, 4];",
        "y, l = llm.flash_attention(q, k, v);",
        "y: real[2, 4, 3, 4]",
        {"linalg.matmul", "nn.softmax"},
    ),
    "one query": (
        "q: real[1, 4, 1, 6]; k: real[1, 4, 5, 6]; v: real[1, 4, 5, 4];",
        "y, l = llm.flash_attention{softmax_scale=0.3}(q, k, v);",
        "y: real[1, 4, 1, 4]",
        {"linalg.matmul", "nn.softmax"},
    ),
    "attention at a position": (
        "q: real[1, 2, 1, 6]; k: real[1, 2, 5, 6]; v: real[1, 2, 5, 4]; p: int[];",
        "y, l = llm.flash_attention(q, k, v, ~, p);",
        "y: real[1, 2, 1, 4]",
        {"linalg.matmul", "nn.softmax", "llm._see"},
    ),
    "rope": (
        "q: real[1, 2, 3, 8]; k: real[1, 1, 3, 8]; f: real[5, 4, 2];",
        "a, b = llm.rope(q, k, f); y = layout.concat{axis=1}([a, b]);",
        "y: real[1, 3, 3, 8]",
        {"math.mul", "math.neg"},
    ),
    "swiglu": ("g: real[2, 3]; u: real[2, 3];", "y = llm.swiglu(g, u);", "y: real[2, 3]", {"nn.silu"}),
    "rms norm": (
        "x: real[2, 6]; w: real[6];",
        """s = math.pow(x, 2.0); m = math.mean_reduce{axes=[-1]}(s); e = math.add(m, 0.00001);
        r = math.rsqrt(e); n = math.mul(x, r); y = math.mul(w, n);""",
        "y: real[2, 6]",
        {"aten.rms_norm"},
    ),
    "layer norm": (
        "x: real[2, 6]; w: real[6]; b: real[6];",
        """m = math.mean_reduce{axes=[1]}(x); d = math.sub(x, m); s = math.mul(d, d);
        v = math.mean_reduce{axes=[1]}(s); e = math.add(v, 0.00001); r = math.sqrt(e); n = math.div(d, r);
        k = math.mul(n, w); y = math.add(k, b);""",
        "y: real[2, 6]",
        {"aten.layer_norm"},
    ),
}


@pytest.mark.parametrize("case", SPELLED)
def test_the_normal_form_keeps_the_numbers(case: str) -> None:
    inputs, body, outputs, expected = SPELLED[case]
    model = small(inputs, body, outputs)
    normal = to_normal_form(model, evaluator(model.library))
    assert verify(normal.graph, normal.library) == []
    found = {item.operator for item in normal.graph.operations()}
    assert expected <= found
    assert not {name for name in found if name.startswith("llm.") and name != "llm._see"}
    if case.endswith("norm"):
        assert found == expected
    fed = inputs_of(normal)
    wanted, actual = compile_model(model)(**fed)["y"], compile_model(normal)(**fed)["y"]
    np.testing.assert_allclose(actual, wanted, 1e-5, 1e-6)


def test_weights_are_computed_before_the_run() -> None:
    """Nothing that depends on weights alone is left to compute, and statistics that stay are no states."""
    body = "a = nn.conv{padding=[1, 1, 1, 1]}(x, w); n = norm: layer.batch_norm(a); y = nn.relu(n);"
    model = with_weights(
        small("x: real[1, 2, 4, 4];", body, "y: real[1, 3, 4, 4]", "@variable { w: real[3, 2, 3, 3]; }")
    )
    assert model.data is not None
    data = {
        name: np.abs(values) + 0.5 if "variance" in name else values for name, values in model.data.items()
    }
    model = replace(model, data=data)
    normal = to_normal_form(model, evaluator(model.library))
    assert [item.operator for item in normal.graph.operations()] == ["nn.conv", "nn.relu"]
    assert "w" in [item.name for item in normal.graph.variables]
    assert normal.graph.updates == ()
    fed = inputs_of(normal)
    wanted, actual = compile_model(model)(**fed)["y"], compile_model(normal)(**fed)["y"]
    np.testing.assert_allclose(actual, wanted, 1e-4, 1e-5)


@given(
    model=models(),
    chosen=st.integers(0, 2**30),
    island=st.sampled_from((F32, F16)),
    exact=st.booleans(),
)
def test_any_graph_with_any_codes_is_whole(
    model: Model, chosen: int, island: ElementType, exact: bool
) -> None:
    """Whatever has codes and whatever has none: the graph is whole, runs, and gives tensors of the same types."""
    model = replace(model, data=random_arrays(model.graph.variables, {}, 3))
    normal = to_normal_form(model, evaluator(model.library))
    assert verify(normal.graph, normal.library) == []
    codes = {
        item.name: TensorCodes(PerTensor(2.0**-8, -7), I16)
        for place, item in enumerate(defined(normal.graph))
        if isinstance(item, Tensor) and item.element.is_float and (chosen >> place % 30) & 1
    }
    found = to_integers(normal, codes, island, exact=exact).model
    assert verify(found.graph, found.library) == []
    fed = random_arrays(list(members(model.graph.inputs)), {"n": 2}, 0)
    wanted, actual = compile_model(model)(**fed), compile_model(found)(**fed)
    assert {name: (values.dtype, values.shape) for name, values in actual.items()} == {
        name: (values.dtype, values.shape) for name, values in wanted.items()
    }
    if not codes and island == F32:
        for name, values in wanted.items():
            np.testing.assert_allclose(actual[name], values, 1e-4, 1e-4)


TAKEN_APART = """import layout, linalg, math;
graph Parts {
    @input { x: real[2, 6, 8]; }
    @output { y: real[2, 6, 5]; z: real[2, 6, 2, 3]; }
    @variable { w: real[11, 8]; b: real[11]; v: real[12, 8]; }
    @compose {
        p = linalg.matmul{transB=true}(x, w, ~);
        s = math.add(p, b);
        [y, t] = layout.split{axis=-1, sizes=[5, 6]}(s);
        q = linalg.matmul{transB=true}(x, v, ~);
        h = layout.unflatten{axis=2, shape=[4, 3]}(q);
        k = layout.slice{axes=[2], begin=[1], end=[3]}(h);
        l = layout.slice{axes=[2], begin=[3], end=[4]}(h);
        m = math.add(k, l);
        n = layout.reshape{shape=[2, 6, 2, 3]}(t);
        z = math.add(m, n);
    }
}
"""


def test_products_are_divided_where_their_columns_are_taken_apart() -> None:
    """Columns, and heads of them, are products of their own with the same numbers; nothing is cut out of a result."""
    model = model_of(TAKEN_APART)
    draw = np.random.default_rng(0)
    data = {item.name: draw.normal(size=item.shape).astype(np.float32) for item in model.graph.variables}
    model = replace(model, data=data)
    found = to_normal_form(model, evaluator(model.library))
    operators = [item.operator for item in found.graph.operations()]
    assert operators.count("linalg.matmul") == 4
    assert not {"layout.split", "layout.slice"} & set(operators)
    inputs = {"x": draw.normal(size=(2, 6, 8)).astype(np.float32)}
    wanted = compile_model(model)(**inputs)
    for name, array in compile_model(found)(**inputs).items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-5, atol=1e-5)
