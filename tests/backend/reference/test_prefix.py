"""Running sums are what nested loops say, and take linear time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.backend.formula.expression_dag import prepare
from lamella.backend.formula.scalars import DOUBLE
from lamella.backend.formula.shortcuts import find_prefix
from lamella.base.arrays import Array
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Loop
from tests.support.backend.reference.running import run_contraction
from tests.support.backend.reference.steps import copy_tensors, run_slowly
from tests.support.judges.harness import run

LENGTH = 100_000
SIGNS = st.sampled_from(("+=", "*=", "<=", ">="))


def running(
    sign: str, shift: int, factors: tuple[int, int], extents: tuple[int, int], width: int
) -> Contraction:
    """`y[z, t] sign x[|shift ± z ± k|, t]` over z, k and t."""
    terms = [Apply("*", (factor, Index(name)), "int") for factor, name in zip(factors, "zk", strict=True)]
    place = Apply("+", (Apply("+", (shift, terms[0]), "int"), terms[1]), "int")
    target = Element("y", (Index("z"), Index("t")), "real")
    value = Element("x", (Guard(place), Index("t")), "real")
    loops = tuple(Loop(name, extent) for name, extent in zip("zkt", (*extents, width), strict=True))
    return Contraction((target,), sign, (value,), loops)


@settings(max_examples=200)
@given(
    SIGNS,
    st.integers(-6, 6),
    st.tuples(st.sampled_from((1, -1, 2)), st.sampled_from((1, -1))),
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    st.tuples(st.integers(0, 5), st.integers(1, 3)),
    st.integers(0, 99),
)
def test_generated_formulas(
    sign: str,
    shift: int,
    factors: tuple[int, int],
    extents: tuple[int, int],
    shape: tuple[int, int],
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    contraction = running(sign, shift, factors, extents, shape[1])
    tensors: dict[str, Array | tuple[Array, ...]] = {
        "x": random.integers(-3, 4, shape) / 2,
        "y": random.integers(-3, 4, (extents[0], shape[1])) / 2,
    }
    expected, found = copy_tensors(tensors), copy_tensors(tensors)
    run_slowly(contraction, expected)
    run_contraction(contraction, found, DOUBLE)
    np.testing.assert_allclose(np.asarray(found["y"]), np.asarray(expected["y"]), 1e-12)


def test_a_sliding_window_is_no_running_sum() -> None:
    formula = prepare(running("+=", 0, (1, 1), (4, 2), 2))
    tensors: dict[str, Array | tuple[Array, ...]] = {
        "x": np.arange(10.0).reshape(5, 2),
        "y": np.zeros((4, 2)),
    }
    assert find_prefix(formula) is not None
    run_contraction(running("+=", 0, (1, 1), (4, 2), 2), tensors, DOUBLE)
    np.testing.assert_array_equal(np.asarray(tensors["y"]), [[2, 4], [6, 8], [10, 12], [14, 16]])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8"])
def test_a_long_running_sum_is_numpys(dtype: str) -> None:
    """The quadratic way would take ten thousand million steps here."""
    random = np.random.default_rng(0)
    x = np.asarray(random.integers(-100, 100, (LENGTH, 2)) / (4 if dtype.startswith("f") else 1), dtype)
    wide = np.float64 if dtype == "float32" else None
    (found,) = run("aten.cumsum", [x], {"dim": 0})
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, np.cumsum(x, 0, wide).astype(dtype))


def test_a_long_running_product_is_numpys() -> None:
    x = np.exp(np.random.default_rng(0).standard_normal(LENGTH) / 100)
    (found,) = run("aten.cumprod", [x], {"dim": 0})
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, np.cumprod(x))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_both_directions(exclusive: bool, reverse: bool) -> None:
    x = np.random.default_rng(0).standard_normal((3, LENGTH)).astype(np.float32)
    (found,) = run("math.cumsum", [x], {"axis": 1, "exclusive": exclusive, "reverse": reverse})
    turned = x[:, ::-1] if reverse else x
    sums = np.cumsum(turned, 1, np.float64)
    if exclusive:
        sums = np.concatenate([np.zeros((3, 1)), sums[:, :-1]], 1)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, (sums[:, ::-1] if reverse else sums).astype(np.float32))
