"""Ranges and codes, judged by NumPy: histograms count exactly, and searches find what trying everything finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamella.base.arrays import Array
from lamella.base.dtype import I4, I8, I16, ElementType
from lamella.pipeline.quantize.ranges import (
    BINS,
    METHODS,
    Calibration,
    Histogram,
    Range,
    code_values,
    linear_codes,
)

ELEMENTS = (I4, I8, I16)


def drawn(seed: int, kind: str, count: int = 4000) -> Array:
    """Numbers of several distributions, with rare large ones among them."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(count) if kind != "laplace" else random.laplace(size=count)
    if kind == "relu":
        values = np.maximum(values, 0.0)
    if kind == "outliers":
        values[:4] *= 40.0
    return values.astype(np.float32)


def seen(values: Array, parts: int = 1) -> Histogram:
    """A histogram of numbers that come in several pieces."""
    found = Histogram()
    for part in np.array_split(values, parts):
        found.add(part)
    return found


def squared_error(values: Array, interval: Range, how: Calibration) -> float:
    """The error that codes of an interval make, by the definition of codes alone."""
    quant = how.codes(interval)
    codes = np.rint(values.astype(np.float64) / quant.scale) + quant.zero_point
    kept = np.clip(codes, how.element.minimum, how.element.maximum)
    return float(np.square((kept - quant.zero_point) * quant.scale - values).sum())


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60), st.integers(1, 5))
@example([524288.0, -3.3043016239853173e-11], 2)
def test_histograms_do_not_depend_on_the_order_of_pieces(numbers: list[float], parts: int) -> None:
    values = np.asarray(numbers, np.float32)
    found, other = seen(values, parts), seen(values[::-1], parts)
    assert found.total == len(numbers)
    assert (found.low, found.high) == (values.min(), values.max())
    assert found.limit == other.limit
    assert np.array_equal(found.counts, other.counts)
    edges = np.linspace(-found.limit, found.limit, BINS + 1)
    assert np.array_equal(found.counts, np.histogram(values.astype(np.float64), edges)[0])


def test_what_is_not_finite_is_counted_apart() -> None:
    found = seen(np.asarray([1.0, np.nan, -np.inf, 2.0], np.float32))
    assert (found.total, found.not_finite, found.low, found.high) == (2, 2, 1.0, 2.0)


@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.sampled_from(ELEMENTS), st.booleans())
def test_codes_cover_their_range_and_say_zero(
    one: float, other: float, element: ElementType, symmetric: bool
) -> None:
    interval = Range(min(one, other), max(one, other))
    quant = linear_codes(interval, element, symmetric)
    assert element.minimum <= quant.zero_point <= element.maximum
    assert quant.scale == np.float32(quant.scale) > 0
    assert not symmetric or quant.zero_point == 0
    ends = np.asarray([interval.low, interval.high, 0.0])
    found = code_values(ends, quant, element)
    # Half a step for the rounding of a number, and half of one for that of the zero point.
    assert np.all(np.abs(found - ends) <= quant.scale * 1.001)
    assert found[2] == 0.0


@pytest.mark.parametrize("kind", ["normal", "laplace", "relu", "outliers"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_least_squares_finds_what_trying_everything_finds(kind: str, symmetric: bool) -> None:
    values = drawn(3, kind)
    how = Calibration("mse", I4, symmetric)
    found = squared_error(values, how.choose(seen(values)), how)
    whole = seen(values).whole()
    shares = np.linspace(0.02, 1.0, 60)
    tried = [
        squared_error(values, whole.shrunk(low, high), how)
        for low in shares
        for high in (shares if not symmetric else [low])
    ]
    assert found <= 1.03 * min(tried)
    assert found <= 1.001 * squared_error(values, whole, how)


@pytest.mark.parametrize("percent", [90.0, 99.0, 100.0])
def test_percentiles_are_those_of_numpy(percent: float) -> None:
    values = drawn(5, "normal")
    step = 2 * seen(values).limit / BINS
    found = Calibration("percentile", I8, False, percent).choose(seen(values))
    assert found.high == pytest.approx(np.quantile(values, percent / 100), abs=2 * step + 1e-2)
    assert found.low == pytest.approx(np.quantile(values, 1 - percent / 100), abs=2 * step + 1e-2)
    both = Calibration("percentile", I8, True, percent).choose(seen(values))
    assert both.largest == pytest.approx(np.quantile(np.abs(values), percent / 100), abs=2 * step + 1e-2)


def brute_divergence(values: Array, bound: float, step: float) -> float:
    """The divergence of magnitudes up to a bound from 7 codes, bin by bin and by the textbook's words."""
    edges = np.arange(0.0, np.abs(values).max() + step, step)
    counts = np.histogram(np.abs(values), edges)[0].astype(float)
    middles = (edges[:-1] + edges[1:]) / 2
    alive = (counts > 0) & (middles > step)
    counts, middles = counts[alive], middles[alive]
    scale = bound / 7
    inside = middles <= bound + scale / 2
    reference = counts[inside].copy()
    reference[-1] += counts[~inside].sum()
    level = np.rint(middles[inside] / scale)
    spread = np.zeros(inside.sum())
    for code in set(level):
        spread[level == code] = counts[inside][level == code].mean()
    one, other = reference / reference.sum(), spread / spread.sum()
    return float((one * np.log(one / other)).sum())


def test_divergence_is_as_small_as_any_that_is_tried() -> None:
    values = np.abs(drawn(7, "outliers", 40000))
    values = np.concatenate([values, -values])
    how = Calibration("kl", I4, True)
    found = how.choose(seen(values)).largest
    step = 2 * seen(values).limit / BINS
    best = min(brute_divergence(values, bound, step) for bound in np.linspace(0.05, 1.0, 96) * values.max())
    assert brute_divergence(values, found, step) <= 1.15 * best
    assert found < 0.5 * values.max()  # rare large numbers are cut off


@pytest.mark.parametrize("method", METHODS)
def test_zeros_and_nothing_have_codes(method: str) -> None:
    how = Calibration(method, I8)
    for histogram in (Histogram(), seen(np.zeros(4, np.float32))):
        quant = how.codes(how.choose(histogram))
        assert quant.scale > 0
        assert code_values(np.zeros(1), quant, I8)[0] == 0.0
