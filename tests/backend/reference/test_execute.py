"""Models run: dynamic extents, state, element types, random numbers, quantisation, memory."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError
from lamella.base.dim import symbol
from lamella.base.dtype import F32, I64
from lamella.base.limits import Limits
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Graph, Operation, Tensor
from lamella.ops.library import Library
from tests.support.backend.reference.running import model_of, ready, run

SINGLE = np.float32


def graph(inputs: str, outputs: str, body: str, rest: str = "") -> str:
    """A graph in one line."""
    return f"graph G {{ @input {{ {inputs} }} @output {{ {outputs} }} @compose {{ {body} }} {rest} }}"


# --- dynamic extents ----------------------------------------------------------------------------------------

CONCAT = graph("x: real[n|10,3]; z: real[m|20,3];", "y: real[~|30,3];", "y = layout.concat{axis=0}([x, z]);")


@given(st.integers(0, 10), st.integers(0, 20))
def test_extents_come_from_the_inputs(n: int, m: int) -> None:
    x, z = np.ones((n, 3), SINGLE), np.zeros((m, 3), SINGLE)
    np.testing.assert_array_equal(run(CONCAT, x=x, z=z)["y"], np.concatenate([x, z]))


def test_one_executable_takes_many_extents() -> None:
    executable = ready(CONCAT)
    for n in (3, 0, 10, 3):
        x, z = np.full((n, 3), n, SINGLE), np.zeros((2, 3), SINGLE)
        np.testing.assert_array_equal(executable(x=x, z=z)["y"], np.concatenate([x, z]))


def test_an_extent_that_happens_to_be_one_is_not_broadcast() -> None:
    text = graph("x: real[n|4]; z: real[3];", "y: real[~];", "y = math.add(x, z);")
    np.testing.assert_array_equal(run(text, x=np.ones(3, SINGLE), z=np.ones(3, SINGLE))["y"], [2, 2, 2])
    with pytest.raises(LamellaError, match="SKR327"):
        run(text, x=np.ones(1, SINGLE), z=np.ones(3, SINGLE))


def test_an_operation_tells_the_extent_of_its_result() -> None:
    body = "i = layout.nonzero(x); t = layout.transpose(i); y = layout.gather_nd(x, t);"
    text = graph("x: real[2,3];", "y: real[~];", body)
    x = np.array([[0, 5, 0], [7, 0, 9]], SINGLE)
    np.testing.assert_array_equal(run(text, x=x)["y"], [5, 7, 9])


def test_extents_inside_a_loop_change_from_step_to_step() -> None:
    text = graph(
        "xs: real[4]..(3);",
        "s: real[];",
        """
        zero = layout.uniform{shape=[]}(0.0);
        s = with a = zero for x : xs do {
            i = layout.nonzero(x);
            j = layout.cast<real>(i);
            t = math.sum_reduce{axes=[0, 1], squeeze=true}(j);
            b = math.add(a, t);
            yield b;
        };
        """,
    )
    xs = np.array([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]], SINGLE)
    found = run(text, **{f"xs:{k + 1}": xs[k] for k in range(3)})["s"]
    assert found == sum(int(np.nonzero(x)[0].sum()) for x in xs)


def test_inputs_that_share_an_extent_must_agree() -> None:
    text = graph("x: real[n|9]; z: real[n|9];", "y: real[n];", "y = math.add(x, z);")
    with pytest.raises(LamellaError, match="'n' is 2 by dimension 0 of 'x'"):
        run(text, x=np.ones(2, SINGLE), z=np.ones(3, SINGLE))


def test_all_wrong_inputs_are_told_at_once() -> None:
    text = graph("x: real[2]; z: int[2];", "y: real[2];", "y = math.neg(x);")
    with pytest.raises(LamellaError) as caught:
        run(text, x=np.ones(3, SINGLE), z=np.ones(2, SINGLE), w=0)
    assert sorted(item.code for item in caught.value.findings) == ["SKR329", "SKR333", "SKR334"]


def test_a_constant_may_have_the_extents_of_a_result() -> None:
    count = symbol("i.shape[1]", 6)
    x, i, y = Tensor("x", F32, (2, 3)), Tensor("i", I64, (2, count)), Tensor("y", I64, (2, count))
    five = Constant(Tensor("five", I64, (2, count)), 5)
    nodes = (
        Operation("layout.nonzero", (x,), (i,), types=(("T", F32),)),
        Operation(
            "math.add", (i, five.tensor), (y,), (("lhs_align", None), ("rhs_align", None)), (("T", I64),)
        ),
    )
    executable = compile_model(Model(Graph("G", (x,), (y,), nodes, constants=(five,)), Library()))
    given_map = np.array([[0, 5, 0], [7, 0, 9]], SINGLE)
    np.testing.assert_array_equal(executable(x=given_map)["y"], np.array(np.nonzero(given_map)) + 5)


# --- state --------------------------------------------------------------------------------------------------

COUNTER = graph(
    "x: real[2];", "y: real[2];", "y = math.add(x, s);", "@variable { s: real[2]; } @update { s = y; }"
)


def test_variables_keep_their_values_until_they_are_reset() -> None:
    start = np.array([1.0, 2.0], SINGLE)
    executable = ready(COUNTER, {"s": start})
    x = np.array([0.5, 1.0], SINGLE)
    for step in range(1, 4):
        np.testing.assert_array_equal(executable(x=x)["y"], start + step * x)
        np.testing.assert_array_equal(executable.state["s"], start + step * x)
    executable.reset()
    np.testing.assert_array_equal(executable.state["s"], start)


def test_what_a_caller_changes_is_his_own() -> None:
    text = graph(
        "c: bool[];", "y: real[2];", "y = if c then s else t;", "@variable { s: real[2]; t: real[2]; }"
    )
    executable = ready(text, {"s": np.zeros(2, SINGLE), "t": np.ones(2, SINGLE)})
    found = executable(c=np.array(True))["y"]
    found[...] = 7
    np.testing.assert_array_equal(executable(c=np.array(True))["y"], [0, 0])


def test_data_must_fit() -> None:
    with pytest.raises(LamellaError, match="SKR362"):
        ready(COUNTER, {"s": np.zeros(3, SINGLE)})
    with pytest.raises(LamellaError, match="SKR363"):
        ready(COUNTER, {"s": np.zeros(2, np.int64)})


# --- element types ------------------------------------------------------------------------------------------

REALS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


@pytest.mark.parametrize("name", REALS)
def test_reals_are_computed_wide_and_rounded_once(name: str) -> None:
    text = graph(f"x: {name}[2,300];", f"y: {name}[2,1];", "y = math.sum_reduce{axes=[1]}(x);")
    x = np.random.default_rng(0).standard_normal((2, 300)).astype(REALS[name])
    found = run(text, x=x)["y"]
    wide = x.astype(np.float64).sum(1, keepdims=True)
    assert found.dtype == (np.float32 if name == "bf16" else REALS[name])
    np.testing.assert_allclose(
        found.astype(np.float64), wide.astype(REALS[name]).astype(np.float64), rtol=1e-6
    )


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "i4"])
def test_integers_keep_their_low_bits(name: str) -> None:
    bits, signed = int(name[1:]), name[0] == "i"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    values = [low, high, 1, 3 if bits > 3 else 1]
    dtype = f"{'int' if signed else 'uint'}{max(bits, 8)}"
    text = graph(f"x: {name}[4];", f"y: {name}[4]; z: {name}[4];", "y = math.add(x, x); z = math.mul(x, x);")
    found = run(text, x=np.array(values, dtype))
    for output, expected in (("y", [2 * item for item in values]), ("z", [item * item for item in values])):
        wrapped = [(item - low) % (1 << bits) + low for item in expected]
        assert found[output].tolist() == wrapped


def test_reals_cast_to_integers_go_to_the_nearest() -> None:
    text = graph("x: real[5]; n: int[3];", "y: i8[5]; z: u8[5]; w: i8[3];",
                 "y = layout.cast<i8>(x); z = layout.cast<u8>(x); w = layout.cast<i8>(n);")  # fmt: skip
    found = run(text, x=np.array([300.7, -300.7, -1.7, np.nan, np.inf], SINGLE), n=np.array([300, -300, 5]))
    assert found["y"].tolist() == [127, -128, -1, 0, 127]
    assert found["z"].tolist() == [255, 0, 0, 0, 255]
    assert found["w"].tolist() == [44, -44, 5]


@pytest.mark.parametrize("name", ["i8", "i32", "i64", "u8", "u64"])
def test_an_extreme_of_nothing_is_the_extreme_of_the_type(name: str) -> None:
    bits, signed = int(name[1:]), name[0] == "i"
    low, high = (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, min((1 << bits) - 1, 2**63 - 1))
    )
    upper = f"""
    operator far {{
        @input {{ x: {name}[n]; }}
        @output {{ y: {name}[n]; }}
        @lower {{ y[i,] >= x[|i + 9|,], i < n; }}
    }}
    """
    lower = upper.replace(">=", "<=").replace("far", "near")
    both = upper + lower + graph(f"x: {name}[2];", f"y: {name}[2]; z: {name}[2];", "y = far(x); z = near(x);")
    found = run(both, x=np.ones(2, f"{'int' if signed else 'uint'}{bits}"))
    assert found["y"].tolist() == [low, low]
    assert found["z"].tolist() == [high, high]


def test_double_precision_on_request() -> None:
    text = graph("x: real[3]; h: f16[3];", "y: real[3]; z: f16[3];", "y = math.exp(x); z = math.sqr(h);")
    x, h = np.array([0.1, 0.2, 0.3]), np.array([0.1, 0.2, 0.3])
    found = ready(text, dtype="f64")(x=x, h=h)
    assert found["y"].dtype == found["z"].dtype == np.float64
    np.testing.assert_allclose(found["y"], np.exp(x), rtol=1e-15)
    np.testing.assert_allclose(found["z"], h * h, rtol=1e-15)
    with pytest.raises(LamellaError, match="precisions are: f32, f64"):
        ready(text, dtype="f16")


# --- random numbers -----------------------------------------------------------------------------------------

DRAWN = graph("x: real[n|5,2]; i: int[6]; c: bool[3];", "y: real[6,2]; r: real[4];", "y = layout.gather{axis=0}(x, i);"
              " r = rand.normal{shape=[4]}();", "@variable { w: real[64,100]; }")  # fmt: skip


def test_what_is_not_given_comes_from_the_seed() -> None:
    first, again, other = (ready(DRAWN, seed=seed) for seed in (3, 3, 4))
    found = first()
    for name, value in found.items():
        np.testing.assert_array_equal(again()[name], value)
        np.testing.assert_array_equal(first()[name], value)
        assert not np.array_equal(other()[name], value)
    assert found["y"].shape == (6, 2)
    np.testing.assert_array_equal(first.state["w"], again.state["w"])
    assert first.state["w"].std() == pytest.approx(0.1, rel=0.1)


def test_both_precisions_draw_the_same_numbers() -> None:
    single, double = ready(DRAWN), ready(DRAWN, dtype="f64")
    np.testing.assert_array_equal(single.state["w"], double.state["w"])
    np.testing.assert_array_equal(single()["y"], double()["y"])


def test_deep_random_networks_stay_finite() -> None:
    body = "a0 = math.iden(x);" + "".join(f"a{k + 1} = l(a{k}, w{k}, b{k});" for k in range(30))
    variables = "".join(f"w{k}: real[50,50]; b{k}: real[50];" for k in range(30))
    layer = (
        "operator l { @input { x: real[b,c]; w: real[n,c]; z: real[n]; } @output { y: real[b,n]; }"
        " @compose { t = nn.linear(x, w, z); y = nn.relu(t); } }"
    )
    body += "y = math.iden(a30);"
    text = layer + graph("x: real[2,50];", "y: real[2,50];", body, f"@variable {{ {variables} }}")
    found = ready(text)()["y"]
    assert np.isfinite(found).all()
    assert 0 < np.abs(found).max() < 1e6


# --- quantisation, memory, the rest -------------------------------------------------------------------------

QUANTIZED = graph(
    "x: real[1,4];",
    "y: real[1,4];",
    "y = math.add(x, w);",
    """@variable { w: real[1,4]; } @quantize {
        x: quant.zero_point_linear_quantize{zero_point=0, scale=0.5, bits=8};
        w: quant.zero_point_linear_quantize{zero_point=0, scale=1.0, bits=4};
        y: quant.zero_point_linear_quantize{zero_point=0, scale=2.0, bits=8};
    }""",
)


def test_quantisation_is_applied_on_request() -> None:
    x, w = np.array([[0.3, 1.1, -2.2, 500.0]], SINGLE), np.array([[0.4, 20.0, -20.0, 1.6]], SINGLE)
    plain = ready(QUANTIZED, {"w": w})(x=x)["y"]
    np.testing.assert_allclose(plain, x + w)
    found = ready(QUANTIZED, {"w": w}, quantized=True)(x=x)["y"]
    near_x = np.clip(np.trunc(x / 0.5 + np.copysign(0.5, x)), -128, 127) * 0.5
    near_w = np.clip(np.trunc(w + np.copysign(0.5, w)), -8, 7)
    total = near_x + near_w
    np.testing.assert_allclose(found, np.clip(np.trunc(total / 2 + np.copysign(0.5, total)), -128, 127) * 2)


def test_tensors_are_let_go_after_their_last_use() -> None:
    steps = 40
    body = "a0 = math.neg(x);" + "".join(f"a{k + 1} = math.neg(a{k});" for k in range(steps))
    executable = ready(graph("x: real[1000,250];", "y: real[1000,250];", f"{body} y = math.neg(a{steps});"))
    x = np.ones((1000, 250), SINGLE)
    executable(x=x)
    tracemalloc.start()
    executable(x=x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * x.nbytes


def test_memory_is_limited_before_it_is_taken() -> None:
    body = "".join(f"a{k} = math.add(x, {k}.0);" for k in range(20))
    body += "y = math.sum_n([" + ", ".join(f"a{k}" for k in range(20)) + "]);"
    text = graph("x: real[1000];", "y: real[1000];", body)
    assert ready(text)(x=np.ones(1000, SINGLE))["y"].shape == (1000,)
    with pytest.raises(LamellaError, match=r"SKR325.*the limit is 40000"):
        ready(text, limits=Limits(max_total_bytes=40_000))(x=np.ones(1000, SINGLE))


def test_a_pack_of_unknown_length_leaves_stacked() -> None:
    text = graph(
        "x: real[]; limit: real[];",
        "y: real[]; ys: real[]..(~|8);",
        "y, ys..(~|8) = with a = x while math.lt(a, limit) do..(8) { b = math.add(a, a); yield b, b; };",
    )
    found = run(text, x=np.array(1.0, SINGLE), limit=np.array(10.0, SINGLE))
    np.testing.assert_array_equal(found["ys"], [2, 4, 8, 16])


def test_kept_and_decomposed_operators_agree() -> None:
    text = graph("x: real[3,5];", "y: real[3,5]; m: real[3,1]; v: real[3,1];",
                 "y = nn.softmax(x); m, v = math.moments{axes=[1]}(x);")  # fmt: skip
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(SINGLE)
    whole = compile_model(model_of(text, keep=lambda name: True))(x=x)
    parts = compile_model(model_of(text, keep=lambda name: False))(x=x)
    for name, value in whole.items():
        np.testing.assert_array_equal(value, parts[name])


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(LamellaError, match="seeds start at 0"):
        ready(COUNTER, seed=-1)
