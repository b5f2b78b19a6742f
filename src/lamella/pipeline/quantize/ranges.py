"""Calibration of ranges: histograms of bounded size, and the interval of real numbers that codes are to cover.

minmax       all that was seen
percentile   all but the share of numbers outside two quantiles
mse          the interval whose codes have the least squared error, weighted by how often numbers occur
kl           the interval whose codes lose the least information: the Kullback-Leibler divergence of the histogram
             from what the codes make of it
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import Array
from lamella.base.dtype import ElementType
from lamella.base.quant import PerTensor

BINS = 8192
"""Bins of a histogram; an even number, so that neighbours are merged in pairs."""
SHRINKS = tuple(np.linspace(1.0, 0.05, 96).tolist())
"""Shares of the whole range that the methods with a search try, the whole one first."""
QUANTILE = 99.99
"""Percent of the numbers that stay inside where nobody says how many."""
TINY = 1e-9
"""The least scale: that of a tensor of zeros."""


@dataclass(frozen=True, slots=True)
class Range:
    """An interval of real numbers that codes cover."""

    low: float
    high: float

    def with_zero(self) -> Range:
        """The interval widened to zero, which every code must be able to say: padding is made of zeros."""
        return Range(min(self.low, 0.0), max(self.high, 0.0))

    def shrunk(self, low: float, high: float) -> Range:
        """The interval with each of its ends nearer to zero."""
        return Range(self.low * low, self.high * high)

    @property
    def largest(self) -> float:
        """The largest magnitude in it."""
        return max(abs(self.low), abs(self.high))


@dataclass(slots=True)
class Histogram:
    """How often numbers occur, in equal bins over [-limit, limit), and the exact least and largest of them.

    The limit is a power of two. Where a number lies beyond, it is doubled and neighbours are merged: what was counted
    stays exact, whatever comes in whichever order.
    """

    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    limit: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    not_finite: int = 0

    def add(self, values: Array) -> None:
        """Count the numbers of an array; NaN and infinities are counted apart."""
        flat = np.asarray(values, np.float32).reshape(-1)
        finite = flat[np.isfinite(flat)]
        self.not_finite += flat.size - finite.size
        if not finite.size:
            return
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
        self._reach(max(abs(self.low), abs(self.high)))
        # Not moved before it is rounded down: a tiny negative number would be lost beside the limit.
        half = BINS // 2
        places = np.floor(finite.astype(np.float64) / self.limit * half).astype(np.int64) + half
        self.counts += np.bincount(places, minlength=BINS)

    def _reach(self, magnitude: float) -> None:
        """Double the limit until it is beyond a magnitude."""
        if self.limit == 0.0:
            self.limit = 2.0 ** max(math.frexp(magnitude)[1], -126) if magnitude else 2.0**-126
        while magnitude >= self.limit:
            merged = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.concatenate(
                [np.zeros(BINS // 4, np.int64), merged, np.zeros(BINS // 4, np.int64)]
            )
            self.limit *= 2

    @property
    def total(self) -> int:
        """How many finite numbers were counted."""
        return int(self.counts.sum())

    def occupied(self) -> tuple[Array, Array]:
        """The middles of bins that hold something, and how much."""
        (places,) = np.nonzero(self.counts)
        middles = (places + 0.5) / (BINS // 2) * self.limit - self.limit
        # A bin at an end reaches beyond what was seen.
        return np.clip(middles, self.low, self.high), self.counts[places]

    def whole(self) -> Range:
        """All that was seen, and zero; only zero where nothing was."""
        return Range(self.low, self.high).with_zero() if self.total else Range(0.0, 0.0)


# --- codes of a range ---------------------------------------------------------------------------------------


def linear_codes(interval: Range, element: ElementType, symmetric: bool) -> PerTensor:
    """The scale and zero point with which the codes of an integer type cover an interval.

    Scales are numbers of f32, so that every format says them exactly. A symmetric code leaves out the least integer:
    the negative of each code is a code.
    """
    wide = interval.with_zero()
    if symmetric:
        return PerTensor(narrow_scale(wide.largest / element.maximum), 0)
    steps = element.maximum - element.minimum
    scale = narrow_scale((wide.high - wide.low) / steps)
    zero = round(element.minimum - wide.low / scale)
    return PerTensor(scale, min(max(zero, element.minimum), element.maximum))


def narrow_scale(scale: float) -> float:
    """A scale as a number of f32 that is not zero."""
    return float(np.float32(max(scale, TINY)))


def code_values(values: Array, quant: PerTensor, element: ElementType) -> Array:
    """What the codes of numbers stand for, in f64: rounded half to even, saturating."""
    least, most = element.minimum - quant.zero_point, element.maximum - quant.zero_point
    steps = np.clip(np.rint(np.asarray(values, np.float64) / quant.scale), least, most)
    return np.asarray(steps * quant.scale)


# --- methods ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Calibration:
    """How ranges are chosen: the method, the codes they are for, and the share that percentiles keep."""

    method: str
    element: ElementType
    symmetric: bool = False
    percent: float = QUANTILE

    def choose(self, seen: Histogram) -> Range:
        """The interval that the codes of a tensor are to cover, by what was seen of it."""
        return METHODS[self.method](seen, self) if seen.total else Range(0.0, 0.0)

    def codes(self, interval: Range) -> PerTensor:
        """The codes of an interval."""
        return linear_codes(interval, self.element, self.symmetric)


def _minmax(seen: Histogram, how: Calibration) -> Range:
    return seen.whole()


def _percentile(seen: Histogram, how: Calibration) -> Range:
    """The interval between two quantiles; symmetric codes take the quantile of magnitudes."""
    middles, counts = seen.occupied()
    share = how.percent / 100.0
    if how.symmetric:
        high = _quantile(np.abs(middles), counts, share)
        return Range(-high, high)
    low, high = _quantile(-middles, counts, share), _quantile(middles, counts, share)
    return Range(-low, high).with_zero()


def _quantile(values: Array, counts: Array, share: float) -> float:
    """The least value that this share of the numbers does not exceed."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(below, share * below[-1])])


def _mse(seen: Histogram, how: Calibration) -> Range:
    """The interval of least squared error: both ends together, then each end alone."""
    middles, counts = seen.occupied()

    def loss(interval: Range) -> float:
        error = middles - code_values(middles, how.codes(interval), how.element)
        return float(counts @ (error * error))

    return _search(seen.whole(), how, loss)


def _kl(seen: Histogram, how: Calibration) -> Range:
    """The interval of least divergence of what was seen from what the codes keep of it."""
    middles, counts = seen.occupied()
    # Every code says zero exactly, and a rectifier makes so many that nothing else would count.
    others = np.abs(middles) > 2 * seen.limit / BINS
    if not others.any():
        return seen.whole()
    middles, counts = middles[others], counts[others]

    def loss(interval: Range) -> float:
        return divergence(middles, counts, interval, how)

    return _search(seen.whole(), how, loss)


def _search(whole: Range, how: Calibration, loss: Callable[[Range], float]) -> Range:
    """The interval of least loss among those that shrink the whole one; the wider of equal ones."""
    best = min((whole.shrunk(part, part) for part in SHRINKS), key=loss)
    if how.symmetric or not (whole.low and whole.high):
        return best
    return min(_one_end_moved(whole, best), key=loss)


def _one_end_moved(whole: Range, best: Range) -> Iterator[Range]:
    yield best
    for part in SHRINKS:
        yield Range(whole.low * part, best.high)
        yield Range(best.low, whole.high * part)


def divergence(middles: Array, counts: Array, interval: Range, how: Calibration) -> float:
    """The Kullback-Leibler divergence of clipped numbers from their codes, each code spread over what it stands for.

    The reference has what lies outside the interval at its ends. What is spread does not: an interval that cuts much
    off cannot say how much the ends hold.
    """
    quant = how.codes(interval)
    least = (how.element.minimum - quant.zero_point) * quant.scale
    most = (how.element.maximum - quant.zero_point) * quant.scale
    inside = (middles >= least - quant.scale / 2) & (middles <= most + quant.scale / 2)
    if not inside.any():
        return math.inf
    kept = counts[inside].astype(np.float64)
    reference = kept.copy()
    outside = middles[~inside]
    reference[0] += counts[~inside][outside < 0].sum()
    reference[-1] += counts[~inside][outside > 0].sum()
    steps = np.rint(middles[inside] / quant.scale).astype(np.int64)
    _, level = np.unique(steps, return_inverse=True)
    spread = (np.bincount(level, kept) / np.bincount(level))[level]
    one, other = reference / reference.sum(), spread / spread.sum()
    return float(np.sum(one * np.log(one / other)))


METHODS: Mapping[str, Callable[[Histogram, Calibration], Range]] = MappingProxyType(
    {"minmax": _minmax, "percentile": _percentile, "mse": _mse, "kl": _kl}
)
"""The ways to choose a range."""
