"""Launches that overwrite states: nobody sees the difference, and what would be seen is not overwritten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamella
from lamella.backend.executor.segments import Segment
from lamella.backend.reference import compile_model
from lamella.graph.model import Model
from tests.support.graph.texts import small

X = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)


def overwritten(model: Model, **fed: Any) -> set[str]:
    """The states that kernels overwrite; all outputs and states are those of the reference, run by run."""
    found: Any = lamella.compile(model, backend="cpu")
    judge = compile_model(model)
    for _ in range(3):
        outputs, expected = found(**fed), judge(**fed)
        for name, array in {**expected, **judge.state}.items():
            np.testing.assert_allclose({**outputs, **found.state}[name], array, rtol=1e-5, atol=1e-6)
    (segment,) = found._context.runner.cut(found.model.graph.nodes, found._needed)
    assert isinstance(segment, Segment)
    return set(segment.updated)


def network(body: str, updates: str, variables: str = "v: real[3, 4]; w: real[3, 4];") -> Model:
    """A graph with states."""
    return small("x: real[3, 4];", body, blocks=f"@variable {{ {variables} }} @update {{ {updates} }}")


CASES = {
    "each element of its own": ("n = math.add(v, x); y = math.exp(x);", "v = n;", {"v"}),
    "two states that read each other": (
        "n = math.add(v, w); m = math.sub(w, x); y = math.exp(x);", "v = n; w = m;", {"v", "w"},
    ),
    "states that change places": (
        "n = math.add(w, x); m = math.add(v, x); y = math.exp(x);", "v = n; w = m;", set(),
    ),
    "sums and differences of both": (
        "n = math.add(v, w); m = math.sub(v, w); y = math.exp(x);", "v = n; w = m;", {"v"},
    ),
    "an old value that is read later": (
        "n = math.add(v, x); m = linalg.matmul{transB=true}(n, v); y = math.exp(m);", "v = n;", set(),
    ),
    "rows that change places": (
        "p = layout.slice{axes=[0], begin=[1], end=[3]}(v); q = layout.slice{axes=[0], begin=[0], end=[1]}(v);"
        " n = layout.concat{axis=0}([p, q]); y = math.exp(x);", "v = n;", set(),
    ),
    "a new value that goes out too": ("y = math.add(v, x);", "v = y;", set()),
    "a product with itself": (
        "p = linalg.matmul{transB=true}(v, v); n = linalg.matmul(p, v); y = math.exp(x);", "v = n;", set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_overwritten(case: str) -> None:
    body, updates, expected = CASES[case]
    assert overwritten(network(body, updates), x=X) == expected


TERMS = st.sampled_from(["v", "w", "x", "a", "b"])
SIGNS = st.sampled_from(["math.add", "math.sub", "math.mul", "math.max"])


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(SIGNS, TERMS, TERMS), min_size=2, max_size=2), st.booleans(), st.booleans())
def test_drawn_graphs(calls: list[tuple[str, str, str]], swaps: bool, turns: bool) -> None:
    lines, known = [], {"v", "w", "x"}
    for name, (sign, left, right) in zip(("a", "b"), calls, strict=True):
        operands = [item if item in known else "v" for item in (left, right)]
        lines.append(f"{name} = {sign}({', '.join(operands)});")
        known.add(name)
    read = "layout.transpose{perm=[1, 0]}(v)" if turns else "math.exp(v)"
    lines.append(f"y = {read};")
    updates = "v = b; w = a;" if swaps else "v = a; w = b;"
    overwritten(network(" ".join(lines), updates), x=0.5 * X)
