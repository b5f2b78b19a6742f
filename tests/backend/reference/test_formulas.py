"""Formulas that need more than one box: windows against torch, searches and counters against plain loops."""

from __future__ import annotations

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from lamella.backend.formula import contract
from lamella.backend.formula.contract import evaluate_scalar
from lamella.backend.formula.evaluate import Tensors
from lamella.backend.formula.scalars import DOUBLE
from lamella.lang.skriptnd.rules.graphs import FORMULA_TOO_LONG, INDEX_OUTSIDE
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Contraction, Counter, Element, Guard, Index, Loop, Scalar
from tests.support.backend.reference.running import run_contraction
from tests.support.backend.reference.steps import copy_tensors, run_slowly


def integer(function: str, *operands: Scalar) -> Apply:
    return Apply(function, operands, "int")


def window(axis: int, stride: int, dilation: int, offset: int) -> Apply:
    """`stride * i + dilation * j - offset` along a spatial axis."""
    moved = integer("*", stride, Index(f"i{axis}"))
    return integer("-", integer("+", moved, integer("*", dilation, Index(f"j{axis}"))), offset)


def convolution(
    sizes: dict[str, int], stride: int, dilation: int, padding: int, transposed: bool
) -> Contraction:
    """A grouped convolution, or its transpose, over two spatial axes."""
    outer = integer("+", integer("*", Index("g"), sizes["m"]), Index("m"))
    inner = integer("+", integer("*", Index("g"), sizes["c"]), Index("c"))
    spatial = tuple(Guard(window(axis, stride, dilation, padding)) for axis in (0, 1))
    plain = (Index("i0"), Index("i1"))
    kernel = Element("w", (outer, Index("c"), Index("j0"), Index("j1")), "real")
    if transposed:
        target = Element("y", (Index("b"), inner, *spatial), "real")
        source = Element("x", (Index("b"), outer, *plain), "real")
    else:
        target = Element("y", (Index("b"), outer, *plain), "real")
        source = Element("x", (Index("b"), inner, *spatial), "real")
    loops = tuple(Loop(name, sizes[name]) for name in ("b", "g", "m", "i0", "i1", "c", "j0", "j1"))
    return Contraction((target,), "+=", (Apply("*", (source, kernel), "real"),), loops)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """Groups, channels for each, filters for each, batch, size, kernel."""
    return tuple(draw(st.integers(1, most)) for most in (3, 4, 5, 2, 9, 3))


@given(shapes(), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_convolutions_by_torch(
    shape: tuple[int, ...], stride: int, dilation: int, padding: int, seed: int
) -> None:
    groups, channels, filters, batch, size, kernel = shape
    size += dilation * kernel
    random = np.random.default_rng(seed)
    x = random.standard_normal((batch, groups * channels, size, size + 1)).astype(np.float32)
    w = random.standard_normal((groups * filters, channels, kernel, kernel)).astype(np.float32)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    expected = functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), **options).numpy()
    y = np.zeros(expected.shape, np.float32)
    sizes = {"b": batch, "g": groups, "m": filters, "c": channels, "j0": kernel, "j1": kernel}
    sizes |= {"i0": y.shape[2], "i1": y.shape[3]}
    run_contraction(convolution(sizes, stride, dilation, padding, False), {"x": x, "w": w, "y": y})
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)

    back = functional.conv_transpose2d(torch.from_numpy(expected), torch.from_numpy(w), **options).numpy()
    z = np.zeros(back.shape, np.float32)
    run_contraction(convolution(sizes, stride, dilation, padding, True), {"x": expected, "w": w, "y": z})
    np.testing.assert_allclose(z, back, rtol=1e-3, atol=1e-3)


def test_a_skipped_product_does_not_spread_infinity() -> None:
    """Where the kernel leaves the map its infinite weight is not multiplied with anything."""
    sizes = {"b": 1, "g": 1, "m": 4, "c": 5, "j0": 3, "j1": 3, "i0": 6, "i1": 6}
    random = np.random.default_rng(0)
    w = random.standard_normal((4, 5, 3, 3))
    w[1, 2, 0, 0] = np.inf
    y = np.zeros((1, 4, 6, 6))
    tensors: Tensors = {"x": random.standard_normal((1, 5, 6, 6)), "w": w, "y": y}
    slow = copy_tensors(tensors)
    formula = convolution(sizes, 1, 1, 1, False)
    run_contraction(formula, tensors, DOUBLE)
    run_slowly(formula, slow)
    np.testing.assert_allclose(y, slow["y"], rtol=1e-12)
    assert np.isfinite(y[0, 1, 0]).all()
    assert np.isinf(y[0, 1, 1:]).any()


@pytest.mark.parametrize("sign", [">=", "<=", "+="])
def test_pools_by_torch(sign: str) -> None:
    x = np.random.default_rng(1).standard_normal((2, 16, 31, 33)).astype(np.float32)
    start = {">=": -np.inf, "<=": np.inf, "+=": 0.0}[sign]
    spatial = tuple(Guard(window(axis, 2, 1, 1)) for axis in (0, 1))
    places = (Index("b"), Index("c"), Index("i0"), Index("i1"))
    y = np.full((2, 16, 16, 17), start, np.float32)
    sizes = {"b": 2, "c": 16, "i0": 16, "i1": 17, "j0": 3, "j1": 3}
    source = Element("x", (Index("b"), Index("c"), *spatial), "real")
    loops = tuple(Loop(name, size) for name, size in sizes.items())
    run_contraction(Contraction((Element("y", places, "real"),), sign, (source,), loops), {"x": x, "y": y})
    given_map = torch.from_numpy(x)
    if sign == "+=":
        expected = functional.avg_pool2d(given_map, 3, 2, 1, divisor_override=1)
    else:
        factor = 1 if sign == ">=" else -1
        expected = factor * functional.max_pool2d(factor * given_map, 3, 2, 1)
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-5, atol=1e-5)


# --- searches -----------------------------------------------------------------------------------------------


def best_of(kind: str, rows: int, columns: int) -> Contraction:
    """`y[r] := c | x[r, c] < x[r, y[r]]`."""
    target = Element("y", (Index("r"),), "int")
    seen = Element("x", (Index("r"), Index("c")), "real")
    best = Element("x", (Index("r"), target), "real")
    condition = Apply(kind, (seen, best), "bool")
    return Contraction((target,), ":=", (Index("c"),), (Loop("r", rows), Loop("c", columns)), condition)


VALUES = st.sampled_from((0.0, 1.0, 2.0, -1.0, float("nan"), float("inf"), float("-inf")))


@given(st.lists(st.lists(VALUES, min_size=5, max_size=5), min_size=1, max_size=4), st.integers(0, 4))
def test_a_search_is_what_its_steps_say(rows: list[list[float]], start: int) -> None:
    for kind in ("<", ">"):
        tensors: Tensors = {"x": np.array(rows), "y": np.full(len(rows), start)}
        slow = copy_tensors(tensors)
        run_contraction(best_of(kind, len(rows), 5), tensors, DOUBLE)
        run_slowly(best_of(kind, len(rows), 5), slow)
        np.testing.assert_array_equal(tensors["y"], slow["y"])


def test_a_search_over_two_axes_keeps_the_first() -> None:
    targets = tuple(Element("y", (), "int", item) for item in (0, 1))
    seen = Element("x", (Index("i"), Index("j")), "real")
    condition = Apply(">", (seen, Element("x", targets, "real")), "bool")
    formula = Contraction(targets, ":=", (Index("i"), Index("j")), (Loop("i", 3), Loop("j", 4)), condition)
    x = np.zeros((3, 4))
    x[1, 2] = x[2, 0] = 5.0
    found = (np.zeros((), np.int64), np.zeros((), np.int64))
    run_contraction(formula, {"x": x, "y": found}, DOUBLE)
    assert [int(item) for item in found] == [1, 2]


# --- counters -----------------------------------------------------------------------------------------------


def nonzero(shape: tuple[int, ...], condition: Scalar | None) -> Contraction:
    indices = tuple(Index(f"i.{axis}") for axis in range(len(shape)))
    targets = tuple(Element("y", (axis, Counter("k")), "int") for axis in range(len(shape)))
    loops = tuple(Loop(f"i.{axis}", size) for axis, size in enumerate(shape))
    return Contraction(targets, "=", indices, loops, condition)


@given(st.lists(st.integers(0, 1), min_size=12, max_size=12), st.sampled_from([1, 5, 1 << 20]))
def test_a_counted_output_has_an_element_for_each_assignment(bits: list[int], box: int) -> None:
    x = np.array(bits).reshape(3, 4)
    test = Apply("!=", (Element("x", (Index("i.0"), Index("i.1")), "int"), 0), "bool")
    tensors: Tensors = {"x": x, "y": np.zeros((2, 0), np.int64)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contract, "BOX", box)
        run_contraction(nonzero((3, 4), test), tensors)
    np.testing.assert_array_equal(tensors["y"], np.array(np.nonzero(x)))


def test_a_condition_may_ask_how_many_came_before() -> None:
    test = Apply("<", (Counter("k"), 3), "bool")
    tensors: Tensors = {"y": np.zeros((1, 0), np.int64)}
    run_contraction(nonzero((7,), test), tensors)
    np.testing.assert_array_equal(tensors["y"], [[0, 1, 2]])


# --- the rest -----------------------------------------------------------------------------------------------


def test_a_running_sum_is_taken_in_order() -> None:
    y = np.arange(1.0, 9.0)
    before = Element("y", (Guard(integer("-", Index("i"), 1)),), "real")
    target = Element("y", (Index("i"),), "real")
    run_contraction(Contraction((target,), "+=", (before,), (Loop("i", 8),)), {"y": y}, DOUBLE)
    np.testing.assert_array_equal(y, np.cumsum(np.arange(1.0, 9.0)))


def test_a_packed_assignment_is_one_assignment() -> None:
    pack = (np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    items = tuple(Element("y", (Index("i"),), "real", item) for item in (0, 1))
    run_contraction(Contraction(items, ":=", items[::-1], (Loop("i", 2),)), {"y": pack}, DOUBLE)
    np.testing.assert_array_equal(pack, [[3, 4], [1, 2]])


def test_many_equal_steps_are_counted_not_taken() -> None:
    y = np.zeros(())
    run_contraction(
        Contraction((Element("y", (), "real"),), "+=", (0.5,), (Loop("i", 10**12),)), {"y": y}, DOUBLE
    )
    assert y == 5e11


def test_too_many_steps_are_refused() -> None:
    value = Apply("cast", (Index("i"),), "real")
    formula = Contraction((Element("y", (), "real"),), "+=", (value,), (Loop("i", 10**18),))
    with pytest.raises(Fault) as caught:
        run_contraction(formula, {"y": np.zeros(())})
    assert caught.value.rule is FORMULA_TOO_LONG


def test_an_index_outside_names_the_place() -> None:
    source = Element("x", (integer("-", Index("i"), 1), 0), "real")
    formula = Contraction((Element("y", (Index("i"),), "real"),), "=", (source,), (Loop("i", 3),))
    with pytest.raises(Fault) as caught:
        run_contraction(formula, {"x": np.zeros((3, 1)), "y": np.zeros(3)})
    assert caught.value.rule is INDEX_OUTSIDE
    assert caught.value.values == {"tensor": "x", "dimension": 0, "index": -1, "extent": 3}


def test_a_far_guarded_index_needs_no_memory() -> None:
    index = Guard(integer("*", Index("i"), 10**9))
    y = np.zeros(4)
    value = Apply("*", (Element("x", (index,), "real"), 2.0), "real")
    formula = Contraction((Element("y", (Index("i"),), "real"),), "=", (value,), (Loop("i", 4),))
    run_contraction(formula, {"x": np.ones(4), "y": y}, DOUBLE)
    np.testing.assert_array_equal(y, [2, 0, 0, 0])
    apart = Guard(integer("+", integer("*", Index("i"), 10**9), Index("j")))
    target = Element("y", (Index("i"),), "real")
    spread = Contraction((target,), "+=", (Element("x", (apart,), "real"),), (Loop("i", 4), Loop("j", 2)))
    run_contraction(spread, {"x": np.ones(4), "y": y}, DOUBLE)
    np.testing.assert_array_equal(y, [4, 0, 0, 0])


@given(st.integers(0, 2), st.integers(1, 2), st.booleans())
def test_gathered_rows_are_cut_shifted_and_turned(shift: int, step: int, turned: bool) -> None:
    x, n = np.arange(60.0).reshape(5, 4, 3), np.array([4, 0, 3])
    columns = np.arange(2) * step + shift if step + shift < 4 else np.arange(2)
    moved = integer("+", integer("*", Index("b"), int(columns[1] - columns[0])), int(columns[0]))
    last = integer("-", 2, Index("c")) if turned else Index("c")
    source = Element("x", (Element("n", (Index("a"),), "int"), moved, last), "real")
    target = Element("y", (Index("a"), Index("b"), Index("c")), "real")
    y = np.zeros((3, 2, 3))
    loops = (Loop("a", 3), Loop("b", 2), Loop("c", 3))
    run_contraction(Contraction((target,), "=", (source,), loops), {"x": x, "n": n, "y": y}, DOUBLE)
    np.testing.assert_array_equal(y, x[n][:, columns][:, :, :: -1 if turned else 1])


def test_a_scalar_outside_of_loops() -> None:
    term = Apply(">", (Element("x", (1,), "real"), 2.0), "bool")
    assert evaluate_scalar(term, {"x": np.array([1.0, 3.0])}, DOUBLE) is True
    with pytest.raises(Fault):
        evaluate_scalar(term, {"x": np.array([1.0])}, DOUBLE)


def test_a_deep_term_does_not_exhaust_the_stack() -> None:
    term: Scalar = Element("x", (), "real")
    for _ in range(20_000):
        term = Apply("+", (term, 1.0), "real")
    y = np.zeros(())
    run_contraction(
        Contraction((Element("y", (), "real"),), "=", (term,), ()), {"x": np.zeros(()), "y": y}, DOUBLE
    )
    assert y == 20_000
