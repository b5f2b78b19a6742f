"""Gradients of loops and branches agree with finite differences, and with those of the loops written out."""

from __future__ import annotations

import numpy as np
import pytest

import lamella
from lamella import LamellaError
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.graph.gradient import differentiate
from lamella.graph.model import Model
from lamella.graph.nodes import Loop, walk
from lamella.graph.passes.unroll_loops import unroll_loops
from lamella.graph.verify import verify
from tests.support.graph.texts import small

INPUTS = "x: real[2, 4]; w: real[3, 4];"
BODIES = {
    "carried": """y = with s: real[2, 4] = x do..(3) {
            t = math.sin(s); u = linalg.matmul{transB=true}(t, w); v = linalg.matmul(u, w); yield v; };""",
    "numbered": """y = with s: real[2, 4] = x do..(step -> 4) {
            few = math.lt(step, 2); t = math.sin(s); u = math.select(few, t, s); yield u; };""",
    "scanned": """items..(3) = layout.unstack{axis=0}(w);
        total, sums..(3) = with s: real[4] = 1.0 for item : items do {
            t = math.mul(s, item); e = math.exp(s); yield t, e; };
        z = layout.stack{axis=0}(sums);
        p = math.add(z, total);
        q = math.sum_reduce{axes=[0]}(p);
        y = math.mul(x, q);""",
    "kept": "y = with s: real[2, 4] = x do..(2) { t = math.exp(s); yield s; };",
    "around": "y = with s: real[2, 4] = x do..(2) { t = math.exp(s); yield x; };",
    "nested": """y = with s: real[2, 4] = x do..(outer -> 3) {
            i = with r: real[2, 4] = s do..(inner -> 2) {
                same = math.eq(outer, inner); q = math.sin(r); p = math.select(same, q, x); yield p; };
            u = math.add(i, s);
            yield u; };""",
    "branched": """y = with s: real[2, 4] = x do..(step -> 3) {
            u = if math.lt(step, 1) then math.sin(s) else { v = math.cos(s); z = math.mul(v, x); yield z; };
            yield u; };""",
    "chosen": """a = math.sum_reduce{axes=[0, 1], squeeze=true}(x);
        m = layout.slice{axes=[0], begin=[0], end=[2]}(w);
        y = if math.lt(a, -99.0) then x elif math.lt(a, 99.0) then { p = math.mul(x, m); q = math.sin(p); yield q; }
            else math.cos(x);""",
}


def gradients(model: Model, fed: dict[str, Array], seed: Array) -> list[Array]:
    """The gradients of both inputs."""
    back = differentiate(model, ["x", "w"])
    assert not verify(back.graph, back.library)
    return list(compile_model(back, dtype="f64")(**fed, d_y=seed).values())


@pytest.mark.parametrize("kind", BODIES)
def test_gradients_of_control_flow(kind: str) -> None:
    model = small(INPUTS, BODIES[kind], "y: real[2, 4]")
    random = np.random.default_rng(0)
    fed = {"x": random.normal(size=(2, 4)), "w": random.normal(size=(3, 4))}
    seed, run = random.normal(size=(2, 4)), compile_model(model, dtype="f64")
    found = gradients(model, fed, seed)
    for mine, theirs in zip(found, gradients(unroll_loops(model), fed, seed), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)
    for (name, array), gradient in zip(fed.items(), found, strict=True):
        for place in range(0, array.size, 3):
            step = np.zeros_like(array)
            step.reshape(-1)[place] = 1e-6
            ends = [run(**{**fed, name: array + sign * step})["y"] for sign in (1, -1)]
            limit = float((seed * (ends[0] - ends[1])).sum() / 2e-6)
            assert abs(gradient.reshape(-1)[place] - limit) <= 1e-6 * (1 + abs(limit))


def test_a_loop_goes_back_as_a_loop() -> None:
    back = differentiate(small(INPUTS, BODIES["carried"], "y: real[2, 4]"), ["x", "w"])
    assert sum(isinstance(node, Loop) for node in walk(back.graph.nodes)) == 2


UNKNOWN = {
    "counted": """y, k = with s: real[2, 4] = x, i: int[] = 0 while math.lt(i, n) do {
            t = math.sin(s); u = linalg.matmul{transB=true}(t, w); v = linalg.matmul(u, w); j = math.add(i, 1);
            yield v, j; };""",
    "numbered": """y = with s: real[2, 4] = x do..(step -> n) {
            few = math.lt(step, 2); t = math.sin(s); u = math.select(few, t, s); yield u; };""",
    "nested": """y = with s: real[2, 4] = x do..(outer -> n) {
            i = with r: real[2, 4] = s do..(inner -> n) {
                same = math.eq(outer, inner); q = math.sin(r); p = math.select(same, q, x); yield p; };
            u = math.add(i, s);
            yield u; };""",
}
"""Loops of which only an input tells how often they go round."""


@pytest.mark.parametrize("kind", UNKNOWN)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_loops_of_unknown_length_have_the_gradients_of_known_ones(kind: str, steps: int) -> None:
    model = small(f"{INPUTS} n: int[];", UNKNOWN[kind], "y: real[2, 4]")
    random = np.random.default_rng(0)
    fed = {"x": random.normal(size=(2, 4)), "w": random.normal(size=(3, 4))}
    seed = random.normal(size=(2, 4))
    found = gradients(model, {**fed, "n": np.array(steps)}, seed)
    if not steps:
        np.testing.assert_array_equal(found[0], seed)
        assert not found[1].any()
        return
    text = UNKNOWN[kind].replace("-> n", f"-> {steps}")
    if kind == "counted":
        text = BODIES["carried"].replace("..(3)", f"..({steps})")
    for mine, theirs in zip(found, gradients(small(INPUTS, text, "y: real[2, 4]"), fed, seed), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)


def test_a_loop_that_ends_by_its_numbers_goes_back_by_as_many_steps() -> None:
    body = """y = with s: real[2, 4] = x while { p = math.sqr(s); q = math.sum_reduce{axes=[0, 1], squeeze=true}(p);
            c = math.lt(q, 50.0); yield c; } do { t = math.mul(s, 1.5); u = math.add(t, m); yield u; };"""
    model = small(INPUTS, f"m = layout.slice{{axes=[0], begin=[0], end=[2]}}(w);\n{body}", "y: real[2, 4]")
    random = np.random.default_rng(2)
    fed = {"x": random.normal(size=(2, 4)), "w": random.normal(size=(3, 4))}
    seed, steps, state = random.normal(size=(2, 4)), 0, fed["x"]
    while (state**2).sum() < 50:
        state, steps = 1.5 * state + fed["w"][:2], steps + 1
    d_x, d_w = gradients(model, fed, seed)
    np.testing.assert_allclose(d_x, seed * 1.5**steps)
    np.testing.assert_allclose(d_w[:2], seed * sum(1.5**number for number in range(steps)))


def test_a_loop_of_unknown_length_that_goes_through_items_has_no_gradient() -> None:
    body = """items..(3) = layout.unstack{axis=0}(w);
        total = with s: real[4] = 1.0 for item : items while math.lt(n, 3) do { t = math.mul(s, item); yield t; };
        y = math.mul(x, total);"""
    model = small(f"{INPUTS} n: int[];", body, "y: real[2, 4]")
    with pytest.raises(LamellaError, match=r"SKR388.*through items whose number of steps only the run tells"):
        differentiate(model, ["w"])


@pytest.mark.parametrize("text", [BODIES["carried"], UNKNOWN["counted"]])
def test_gradients_of_loops_run_on_the_cpu(text: str) -> None:
    model = differentiate(small(f"{INPUTS} n: int[];", text, "y: real[2, 4]"), ["x", "w"])
    random = np.random.default_rng(1)
    shapes = {"x": (2, 4), "w": (3, 4), "d_y": (2, 4)}
    fed: dict[str, Array] = {
        name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()
    }
    fed["n"] = np.array(3)
    wanted = compile_model(model, dtype="f64")(**fed)
    for name, got in lamella.compile(model, backend="cpu")(**fed).items():
        np.testing.assert_allclose(got, wanted[name], rtol=1e-4, atol=1e-5)
