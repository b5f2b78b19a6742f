"""What is composed computes what the text says: loops and branches against plain Python and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.graph.compose import compose, decompose
from lamella.graph.model import Model
from tests.support.graph.compose.composing import flow, load

NUMBERS = st.lists(st.integers(-8, 8).map(float), min_size=3, max_size=3)
PACKS = st.lists(NUMBERS, min_size=1, max_size=4)


def model(text: str) -> Model:
    """A text ready to run."""
    module = load(text)
    found = compose(module)
    assert found.graph is not None, "\n".join(map(str, found.findings))
    return Model(found.graph, module.library)


def run(text: str, **inputs: Array) -> dict[str, Array]:
    """What a text computes."""
    return compile_model(model(text))(**inputs)


def packed(items: list[list[float]]) -> dict[str, Array]:
    """The tensors of a pack by their names."""
    return {f"xs:{number + 1}": np.array(item, np.float32) for number, item in enumerate(items)}


@given(PACKS, st.sampled_from(["do", "unroll"]))
def test_scans_and_folds(items: list[list[float]], how: str) -> None:
    components = f"""
        y, ys..({len(items)}) = with s: real[3] = 1.0 for x : xs {how}..(i ->) {{
            t = math.mul(s, 0.5);
            u = math.add(t, x);
            k = layout.cast<real>(i);
            v = math.add(u, k);
            yield u, v;
        }};
    """
    text = flow(components, f"xs: real[3]..({len(items)});", f"y: real[3]; ys: real[3]..({len(items)});")
    found = run(text, **packed(items))
    state, steps = np.ones(3), []
    for number, item in enumerate(items):
        state = state * 0.5 + np.array(item)
        steps.append(state + number)
    np.testing.assert_allclose(found["y"], state)
    for number, step in enumerate(steps):
        np.testing.assert_allclose(found[f"ys:{number + 1}"], step)


@given(PACKS, st.integers(1, 6))
def test_a_count_of_the_run_ends_a_scan(items: list[list[float]], count: int) -> None:
    components = "y, ys = with s: real[3] = 0.0 for x : xs do..(n) { t = math.add(s, x); yield t, t; };"
    components += "n2 = layout.stack{axis=0}(ys);"
    text = flow(components, f"xs: real[3]..({len(items)}); n: int[];", "y: real[3]; n2: real;")
    found = run(text, **packed(items), n=np.array(min(count, len(items))))
    sums = np.cumsum(np.array(items), axis=0)[: min(count, len(items))]
    np.testing.assert_allclose(found["y"], sums[-1])
    np.testing.assert_allclose(found["n2"], sums)


@given(st.integers(-5, 60), st.booleans())
def test_conditions_before_and_behind_the_body(start: int, before: bool) -> None:
    loop = "while math.lt(a, 50) do body" if before else "do body while math.lt(a, 50)"
    loop = loop.replace("body", "{ b = math.mul(a, 2); c = math.add(b, 7); yield c; }")
    found = run(flow(f"y = with a = x {loop};", "x: int[];", "y: int[];"), x=np.array(start))
    value = start
    if not before:
        value = 2 * value + 7
    while value < 50 and (value > -7 or value != 2 * value + 7):
        value = 2 * value + 7
    assert found["y"] == value


@given(st.integers(0, 9), st.integers(0, 9))
def test_the_first_of_count_and_condition_ends_a_loop(count: int, last: int) -> None:
    components = "y = with a = 0 while math.lt(i, n) do..(i -> k) { b = math.add(a, i); yield b; };"
    found = run(flow(components, "k: int[]; n: int[];", "y: int[];"), k=np.array(count), n=np.array(last))
    assert found["y"] == sum(range(min(count, last)))


@given(NUMBERS, st.integers(-3, 3))
def test_branches(item: list[float], choice: int) -> None:
    components = """
        y = if math.lt(c, 0) then math.neg(x)
            elif { z = math.eq(c, 0); yield z; } then x
            else { t = layout.cast<real>(c); u = math.mul(x, t); yield u; };
    """
    x = np.array(item, np.float32)
    found = run(flow(components, "x: real[3]; c: int[];", "y: real[3];"), x=x, c=np.array(choice))
    np.testing.assert_allclose(found["y"], -x if choice < 0 else x if choice == 0 else x * choice)


@pytest.mark.parametrize("flag", [True, False])
def test_branches_of_different_extents(flag: bool) -> None:
    components = (
        "t = if c then layout.concat{axis=0}([x, x]) else x; y = math.sum_reduce{axes=[0]}(t); z = t;"
    )
    found = run(
        flow(components, "x: real[3]; c: bool[];", "y: real; z: real;"),
        x=np.arange(3, dtype=np.float32),
        c=np.array(flag),
    )
    assert found["z"].shape == ((6,) if flag else (3,))
    assert found["y"] == (6 if flag else 3)


@given(st.integers(1, 6))
def test_a_condition_on_a_dynamic_extent(size: int) -> None:
    text = flow("y = if n > 3 then math.neg(x) else x;", "x: real[n|6];", "y: real[n];")
    x = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(run(text, x=x)["y"], -x if size > 3 else x)


@given(NUMBERS)
def test_extents_that_the_run_finds_are_values(item: list[float]) -> None:
    components = """
        i = layout.nonzero(x);
        c = math.add(k, i.shape[1]);
        m = math.mul(x, 2.0 / real(i.shape[1] + 1));
        z = if i.shape[1] > 1 then math.neg(x) else x;
    """
    x = np.array(item, np.float32)
    outputs = "c: int[]; m: real[3]; z: real[3];"
    found = run(flow(components, "x: real[3]; k: int[];", outputs), x=x, k=np.array(10))
    count = np.count_nonzero(x)
    assert found["c"] == 10 + count
    np.testing.assert_allclose(found["m"], x * (2.0 / (count + 1)), rtol=1e-6)
    np.testing.assert_array_equal(found["z"], -x if count > 1 else x)


@given(st.integers(1, 5), PACKS)
def test_scalars_fill_dynamic_shapes(size: int, items: list[list[float]]) -> None:
    fold = """
    operator fold {
        @input { xs: real[n]..(k); }
        @output { y: real[n]; }
        @compose { y = with s: real[n] = 0.5 for x : xs do math.add(s, x); }
    }
    """
    text = fold + flow("y = fold(xs);", f"xs: real[n|5]..({len(items)});", "y: real[n];")
    arrays = {name: np.resize(array, size) for name, array in packed(items).items()}
    np.testing.assert_allclose(run(text, **arrays)["y"], sum(arrays.values()) + 0.5)


@given(st.integers(1, 8))
def test_assertions_of_composed_operators_are_tested_by_the_run(size: int) -> None:
    even = """
    operator even {
        @input { x: real[n]; }
        @output { y: real[n]; }
        @assert { n % 2 == 0: "the length must be even", n; }
        @compose { t = math.neg(x); y = math.neg(t); }
    }
    """
    text = even + flow("y = even(x);", "x: real[n|10];", "y: real[n];")
    x = np.arange(size, dtype=np.float32)
    if size % 2 == 0:
        np.testing.assert_array_equal(run(text, x=x)["y"], x)
    else:
        with pytest.raises(LamellaError, match=f"the length must be even.*'n' is {size}"):
            run(text, x=x)


def test_updates_are_taken_after_the_run() -> None:
    text = """
    graph G {
        @input { x: real[2]; }
        @output { y: real[2]; }
        @variable { w: real[2]; v: real[2]; }
        @compose { y = math.add(x, w); }
        @update { v = w; w = y; }
    }
    """
    exe = compile_model(model(text))
    before = exe.state["w"].copy()
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(exe(x=x)["y"], before + 1)
    np.testing.assert_array_equal(exe.state["v"], before)
    np.testing.assert_array_equal(exe(x=x)["y"], before + 2)


SIZES = st.lists(st.integers(1, 4), min_size=2, max_size=3)
COMPOUND = ["nn.softmax", "nn.l2_norm{axes=[1], epsilon=0.1}", "nn.l1_norm{axes=[1], bias=0.5}", "math.iden"]


@given(SIZES, st.lists(st.sampled_from(COMPOUND), min_size=1, max_size=3), st.integers(0, 99))
def test_a_decomposed_graph_computes_the_same(shape: list[int], operators: list[str], seed: int) -> None:
    lines = [f"a{number + 1} = {name}(a{number});" for number, name in enumerate(operators)]
    last = f"a{len(operators)}"
    text = flow(
        "a0 = math.exp(x);" + "".join(lines) + f"y = math.exp({last});", f"x: real{shape};", "y: real;"
    )
    whole = model(text)
    parts = decompose(whole, lambda name: False)
    assert len(parts.graph.nodes) >= len(whole.graph.nodes)
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    first, second = (compile_model(item)(x=x)["y"] for item in (whole, parts))
    np.testing.assert_array_equal(first, second)
