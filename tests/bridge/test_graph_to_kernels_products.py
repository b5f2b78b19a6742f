"""Sums of products become tiles of cooperative matrices, in all layouts; NumPy in 64 bits judges their numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.arrays import Array
from lamella.bridge.graph_to_kernels import graph_to_kernels
from lamella.graph.model import Model
from lamella.lang.tensor.write import write
from tests.support.bridge.operators.calls import agree, build, by_kernels, by_reference, call
from tests.support.graph.texts import model_of


def products(model: Model) -> int:
    """How many products of tiles the kernels of a model have; other sums have none."""
    return write(graph_to_kernels(model).program).count("cooperative_matrix_mul_add")


def run(model: Model, fed: dict[str, Array]) -> Array:
    """The only output of a model by its kernels."""
    (found,) = by_kernels(model)(**fed).values()
    return found


@given(
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "3 ", "2 2 ", "1 "]),
    st.sampled_from(["", "3 ", "2 2 ", "1 "]),
    st.booleans(),
)
def test_matmul(left: bool, right: bool, one: str, other: str, bias: bool) -> None:
    if {one, other} >= {"3 ", "2 2 "}:
        other = one
    a = f"f32 {one}{'12 9' if left else '9 12'} -2..2"
    b = f"f32 {other}{'11 12' if right else '12 11'} -2..2"
    c = ["f32 9 11 -2..2"] if bias else []
    model, fed = build([call("linalg.matmul", a, b, *c, transA=left, transB=right)])
    arrays = [array.astype(np.float64) for array in fed.values()]
    expected = np.matmul(
        np.swapaxes(arrays[0], -1, -2) if left else arrays[0],
        np.swapaxes(arrays[1], -1, -2) if right else arrays[1],
    ) + (arrays[2] if bias else 0)
    assert products(model)
    np.testing.assert_allclose(run(model, fed), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(2, 6, 5, 4), (1, 6, 5, 4), (3, 6, 16)])
def test_convolution_with_a_point(shape: tuple[int, ...], bias: bool) -> None:
    points = " ".join("1" for _ in shape[2:])
    x, w = f"f32 {' '.join(map(str, shape))} -2..2", f"f32 9 6 {points} -2..2"
    model, fed = build([call("nn.conv", x, w, *(["f32 9 -2..2"] if bias else []))])
    arrays = [array.astype(np.float64) for array in fed.values()]
    expected = np.einsum("bc...,oc->bo...", arrays[0], arrays[1].reshape(9, 6))
    expected += arrays[2].reshape(9, *(1,) * (len(shape) - 2)) if bias else 0
    assert products(model)
    np.testing.assert_allclose(run(model, fed), expected, rtol=1e-5, atol=1e-5)


def test_convolution_with_groups() -> None:
    model, fed = build([call("nn.conv", "f32 2 12 5 8 -2..2", "f32 15 4 1 1 -2..2", groups=3)])
    x, w = (array.astype(np.float64) for array in fed.values())
    expected = np.einsum("bgc...,goc->bgo...", x.reshape(2, 3, 4, 5, 8), w.reshape(3, 5, 4))
    assert products(model)
    np.testing.assert_allclose(run(model, fed), expected.reshape(2, 15, 5, 8), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_linear(bias: bool) -> None:
    model, fed = build([call("nn.linear", "f32 7 16 -2..2", "f32 10 16 -2..2", *["f32 10 -2..2"][:bias])])
    arrays = [array.astype(np.float64) for array in fed.values()]
    assert products(model)
    np.testing.assert_allclose(
        run(model, fed), arrays[0] @ arrays[1].T + (arrays[2] if bias else 0), rtol=1e-5, atol=1e-5
    )


def test_what_is_added_to_is_kept() -> None:
    """A product goes on from what a formula before it has written; on its own it never reads its target."""
    added = "Z[i, j] = C[i, j], i < 16, j < 16; Z[i, j] += A[i, k] * B[k, j], i < 16, j < 16, k < 16;"
    alone = "Z[i, j] += A[i, k] * B[k, j], i < 16, j < 16, k < 16;"
    for formulas, more in ((added, 5), (alone, 0)):
        model = with_operator(formulas)
        assert products(model)
        fed = {
            name: np.full((16, 16), value, np.float32) for name, value in zip("ABC", (2, 3, 5), strict=True)
        }
        np.testing.assert_array_equal(run(model, fed), 96 + more)


PRODUCT = """
operator op {
    @input { A: real[16, 16]; B: real[16, 16]; C: real[16, 16]; }
    @output { Z: real[16, 16]; }
    @lower { FORMULAS }
}
graph G {
    @input { A: real[16, 16]; B: real[16, 16]; C: real[16, 16]; }
    @output { Z: real[16, 16]; }
    @compose { Z = op(A, B, C); }
}
"""


def with_operator(formulas: str) -> Model:
    """A graph of one call of an operator with these formulas."""
    return model_of(PRODUCT.replace("FORMULAS", formulas))


NO_PRODUCTS = {
    "a minimum": "Z[i, j] <= A[i, k] * B[k, j], i < 16, j < 16, k < 16;",
    "a condition": "Z[i, j] += A[i, k] * B[k, j], i < 16, j < 16, k < 16 | k != i;",
    "two guards": "Z[i, j] += A[|i + k - 8|, k] * B[k, |j + k - 8|], i < 16, j < 16, k < 16;",
    "a diagonal": "Z[i, j] += A[k, k] * B[i, j], i < 16, j < 16, k < 16;",
    "three factors": "Z[i, j] += A[i, k] * B[k, j] * C[i, j], i < 16, j < 16, k < 16;",
    "a sum": "Z[i, j] += A[i, k] + B[k, j], i < 16, j < 16, k < 16;",
    "backwards": "Z[i, j] += A[i, 15 - k] * B[k, j], i < 16, j < 16, k < 16;",
    "its own target": "Z[i, j] = A[i, j], i < 16, j < 16; Z[i, j] += Z[i, k] * B[k, j], i < 16, j < 16, k < 16;",
    "no sum": "Z[i, j] = A[i, j] * B[j, i], i < 16, j < 16;",
    "another sum": "Z[i, j] += A[i, j] * B[k, l], i < 16, j < 16, k < 16, l < 16;",
}


@pytest.mark.parametrize("formulas", NO_PRODUCTS.values(), ids=NO_PRODUCTS)
def test_what_only_looks_like_a_product(formulas: str) -> None:
    model = with_operator(formulas)
    assert not products(model)
    random = np.random.default_rng(0)
    fed = {name: random.normal(size=(16, 16)).astype(np.float32) for name in "ABC"}
    agree(by_kernels(model)(**fed), by_reference(model)(**fed))


@given(st.permutations("bik"), st.permutations("bkj"), st.permutations("bij"))
def test_every_order_of_dimensions(left: list[str], right: list[str], target: list[str]) -> None:
    sizes = {"b": 3, "i": 9, "k": 10, "j": 7}
    shape = {
        name: [sizes[letter] for letter in word]
        for name, word in zip("ABZ", (left, right, target), strict=True)
    }
    types = {name: f"{name}: real[{', '.join(map(str, shape[name]))}];" for name in "ABZ"}
    places = {name: ", ".join(word) for name, word in zip("ABZ", (left, right, target), strict=True)}
    loops = ", ".join(f"{name} < {size}" for name, size in sizes.items())
    text = f"""
    operator op {{ @input {{ {types["A"]} {types["B"]} }} @output {{ {types["Z"]} }}
        @lower {{ Z[{places["Z"]}] += A[{places["A"]}] * B[{places["B"]}], {loops}; }} }}
    graph G {{ @input {{ {types["A"]} {types["B"]} }} @output {{ {types["Z"]} }}
        @compose {{ Z = op(A, B); }} }}"""
    model, random = model_of(text), np.random.default_rng(0)
    fed = {name: random.normal(size=shape[name]).astype(np.float32) for name in "AB"}
    equation = f"{''.join(left)},{''.join(right)}->{''.join(target)}"
    expected = np.einsum(equation, fed["A"].astype(np.float64), fed["B"].astype(np.float64))
    # Lanes go along what lies closest in the output, and three elements that both factors have do not fill them.
    assert products(model) or target[-1] == "b"
    np.testing.assert_allclose(run(model, fed), expected, rtol=1e-5, atol=1e-5)
