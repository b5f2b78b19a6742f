"""The examples of the specification's sections on composition, composed and run against NumPy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.executor import GraphExecutable
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.graph.verify import verify
from lamella.ops.library import Library
from tests.support.graph.compose.composing import flow

GOOD = Path(__file__).parents[2] / "lang" / "skriptnd" / "good"
VECTOR = st.lists(st.integers(-9, 9).map(float), min_size=4, max_size=4).map(
    lambda item: np.array(item, np.float32)
)
PACK = st.lists(VECTOR, min_size=1, max_size=4)


@cache
def executable(file: str, components: str, inputs: str, outputs: str) -> GraphExecutable:
    """A graph that calls operators of an example."""
    text = (GOOD / file).read_text(encoding="utf-8") + flow(components, inputs, outputs)
    module = Library().load(Source(file, text))
    found = compose(module)
    assert found.graph is not None, "\n".join(map(str, found.findings))
    assert not verify(found.graph, module.library)
    return compile_model(Model(found.graph, module.library))


def packed(items: list[Array]) -> dict[str, Array]:
    """The tensors of a pack by their names."""
    return {f"xs:{number + 1}": item for number, item in enumerate(items)}


COMPOSING, FLOW, UPDATES = "2_10_composing.sknd", "2_10_1_control_flow.sknd", "2_11_updates.sknd"


@given(VECTOR, VECTOR, VECTOR)
def test_multiply_and_add(x: Array, a: Array, b: Array) -> None:
    exe = executable(COMPOSING, "y = mul_add(x, a, b);", "x: real[4]; a: real[4]; b: real[4];", "y: real[4];")
    np.testing.assert_array_equal(exe(x=x, a=a, b=b)["y"], x * a + b)


@given(VECTOR, VECTOR)
def test_packs_of_results(x: Array, y: Array) -> None:
    exe = executable(
        COMPOSING,
        "p, q = packed_results(x, y, [y, x, x]);",
        "x: real[4]; y: real[4];",
        "p: real[4]; q: real[4];",
    )
    found = exe(x=x, y=y)
    np.testing.assert_array_equal(found["p"], x + 1 + x)
    np.testing.assert_array_equal(found["q"], y + y + y + x + x)


def test_labelled_variables() -> None:
    exe = executable(
        COMPOSING, "y = lab: labelled(x); z = math.exp(y);", "x: real[4];", "y: real[4]; z: real[4];"
    )
    assert sorted(exe.state) == ["lab.scale1.factor", "lab.second.factor"]
    x = np.arange(4, dtype=np.float32)
    first, second = exe.state["lab.scale1.factor"], exe.state["lab.second.factor"]
    np.testing.assert_allclose(exe(x=x)["y"], x * first + x * first * second, rtol=1e-6)


@given(VECTOR)
def test_blocks(x: Array) -> None:
    found = executable(FLOW, "u, v = blocks(x);", "x: real[4];", "u: real[4]; v: real[4];")(x=x)
    np.testing.assert_allclose(found["u"], -x + np.exp(-x), rtol=1e-6)
    np.testing.assert_array_equal(found["v"], -x)


@given(VECTOR, VECTOR, st.booleans())
def test_branches(x: Array, y: Array, there: bool) -> None:
    outputs = "".join(f"{name}: real[4];" for name in "abcdef")
    call = f"a, b, c, d, e, f = branches{{k=3}}(x, y, {'y' if there else '~'});"
    found = executable(FLOW, call, "x: real[4]; y: real[4];", outputs)(x=x, y=y)
    less, more = bool(x.sum() < y.sum()), bool(y.sum() < x.sum())
    wanted = [x + y if less else x - y, x + y if less else x - y, x if less else -x if more else y]
    wanted += [x, x + y if there else x, y + y if there else x]
    for name, array in zip("abcdef", wanted, strict=True):
        np.testing.assert_array_equal(found[name], array)


@given(PACK, VECTOR)
def test_scanning_and_folding(items: list[Array], z: Array) -> None:
    size = len(items)
    components = f"ys..({size}) = add_to_all(xs, z); y = add_all(xs); u, v = unrolled(xs);"
    outputs = f"ys: real[4]..({size}); y: real[4]; u: real[4]; v: real[4];"
    found = executable(FLOW, components, f"xs: real[4]..({size}); z: real[4];", outputs)(**packed(items), z=z)
    for number, item in enumerate(items):
        np.testing.assert_array_equal(found[f"ys:{number + 1}"], item + z)
    np.testing.assert_array_equal(found["y"], sum(items))
    np.testing.assert_array_equal(found["u"], sum(items))
    np.testing.assert_array_equal(found["v"], -sum(items))


@given(st.integers(0, 12), st.integers(0, 4))
def test_counts_of_the_run(k: int, power: int) -> None:
    exe = executable(
        FLOW,
        "s = count(k); B = matpow(A, p);",
        "k: int[]; A: real[2, 2]; p: int[];",
        "s: int[]; B: real[2, 2];",
    )
    matrix = np.array([[1, 2], [-1, 1]], np.float32)
    found = exe(k=np.array(k), A=matrix, p=np.array(power))
    assert found["s"] == sum(range(k))
    np.testing.assert_array_equal(found["B"], np.linalg.matrix_power(matrix, power))


@given(st.integers(-20, 20), st.integers(1, 5))
def test_loops_that_end_by_a_condition(start: int, step: int) -> None:
    exe = executable(
        FLOW, "a, b, c = conditional_loops(x, y);", "x: real[2]; y: real[2];", "a: real; b: real; c: real;"
    )
    found = exe(x=np.full(2, start, np.float32), y=np.full(2, step, np.float32))
    before, behind = start, start + step
    while before < step:
        before += step
    while behind < step:
        behind += step
    assert [found[name].tolist() for name in "abc"] == [[behind] * 2, [before] * 2, [behind] * 2]


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=5))
def test_an_index_alone(numbers: list[int]) -> None:
    size = len(numbers)
    exe = executable(
        FLOW, f"ys..({size}) = index_alone(xs);", f"xs: int[]..({size});", f"ys: int[]..({size});"
    )
    found = exe(**packed([np.array(item) for item in numbers]))
    assert [int(found[f"ys:{place + 1}"]) for place in range(size)] == [n + k for k, n in enumerate(numbers)]


def test_a_running_value() -> None:
    exe = executable(
        UPDATES, "y = r: running{update_rate=0.5}(x); z = math.exp(y);", "x: real[3];", "y: real; z: real;"
    )
    state = exe.state["r.w"].astype(np.float64)
    for step in range(3):
        x = np.full(3, float(step), np.float32)
        np.testing.assert_allclose(exe(x=x)["y"], x - state, rtol=1e-5)
        state += 0.5 * (x - state)
        np.testing.assert_allclose(exe.state["r.w"], state, rtol=1e-5)
