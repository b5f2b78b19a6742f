"""What quantisation costs: the error of each tensor and of a whole file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.bridge.nac_to_graph.weights.arrays import original_shape, read_weight
from lamella.lang.nac.check.data import DTYPES
from lamella.lang.nac.nodes import Method, Tensor

_CHUNK = 1 << 20
"""Elements that are compared at a time, so that doubles of a large tensor do not fill the memory."""


@dataclass(frozen=True, slots=True)
class WeightError:
    """How far the stored numbers of a tensor are from the original ones.

    `stored` names the method, or the element type of what is not quantised; `before` and `after` count bytes, scales
    included; `largest` and `relative` are maxima of |w' - w| and of |w' - w| / |w| (w not 0); `total`, `signal` and
    `noise` are sums of |w' - w|, of w² and of (w' - w)².
    """

    name: str
    stored: str
    shape: tuple[int, ...]
    before: int
    after: int
    largest: float = 0.0
    relative: float = 0.0
    total: float = 0.0
    signal: float = 0.0
    noise: float = 0.0

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def mean(self) -> float:
        """The mean of |w' - w|."""
        return self.total / self.count if self.count else 0.0

    @property
    def sqnr(self) -> float:
        """The ratio of signal to quantisation noise in decibels; infinite where nothing is lost."""
        return _decibels(self.signal, self.noise)


@dataclass(frozen=True, slots=True)
class Report:
    """The errors of all tensors of a file."""

    method: Method
    tensors: tuple[WeightError, ...]

    @property
    def before(self) -> int:
        """Bytes of the weights as they were."""
        return sum(item.before for item in self.tensors)

    @property
    def after(self) -> int:
        """Bytes of the weights and scales as they are stored."""
        return sum(item.after for item in self.tensors)

    @property
    def worst(self) -> WeightError | None:
        """The tensor with the largest error of an element, the first of several."""
        return max(self.tensors, key=lambda item: item.largest, default=None)

    @property
    def relative(self) -> float:
        """The largest relative error of an element."""
        return max((item.relative for item in self.tensors), default=0.0)

    @property
    def mean(self) -> float:
        """The mean error of all elements."""
        count = sum(item.count for item in self.tensors)
        return sum(item.total for item in self.tensors) / count if count else 0.0

    @property
    def sqnr(self) -> float:
        """The ratio of signal to quantisation noise of all elements in decibels."""
        return _decibels(
            math.fsum(item.signal for item in self.tensors), math.fsum(item.noise for item in self.tensors)
        )


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal else -math.inf


def measure(name: str, original: Array, tensor: Tensor, method: Method = Method.NONE) -> WeightError:
    """The error of a tensor beside the array that it was made of; `method` is that of the file."""
    stored = _stored_as(tensor)
    sizes = original.nbytes, len(tensor.data) + _scale_bytes(tensor)
    shape = original_shape(tensor)
    if stored == str(original.dtype):
        return WeightError(name, stored, shape, *sizes)
    wanted, found = original.reshape(-1), read_weight(tensor, method).reshape(-1)
    parts = [
        _compare(wanted[at : at + _CHUNK], found[at : at + _CHUNK]) for at in range(0, wanted.size, _CHUNK)
    ]
    largest = max((part[0] for part in parts), default=0.0)
    relative = max((part[1] for part in parts), default=0.0)
    sums = (math.fsum(part[index] for part in parts) for index in (2, 3, 4))
    return WeightError(name, stored, shape, *sizes, largest, relative, *sums)


def _stored_as(tensor: Tensor) -> str:
    method = tensor.quantization.method
    return DTYPES[tensor.dtype][0] if method is Method.NONE else method.name


def _scale_bytes(tensor: Tensor) -> int:
    """Bytes of the scales of a tensor."""
    scales = getattr(tensor.quantization, "scales", None)
    if scales is not None:
        return len(scales)
    return 4 if tensor.quantization.method is Method.INT8_TENSOR else 0


def _compare(wanted: Array, found: Array) -> Sequence[float]:
    """Largest and largest relative error, and the sums of errors, of squares and of squared errors.

    What is not finite has no error where it is kept, and no signal.
    """
    exact, given = wanted.astype(np.float64), found.astype(np.float64)
    same = (exact == given) | (np.isnan(exact) & np.isnan(given))
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.where(same, 0.0, np.abs(given - exact))
        signal = np.where(np.isfinite(exact), exact, 0.0)
        beside = errors[signal != 0] / np.abs(signal[signal != 0])
        squares = float(np.sum(signal * signal)), float(np.sum(errors * errors))
        return float(errors.max()), float(beside.max(initial=0.0)), float(np.sum(errors)), *squares


def report_lines(report: Report) -> list[str]:
    """A report as people read it: a line for each tensor, then the whole file."""
    rows: list[tuple[str, ...]] = [("tensor", "stored", "bytes", "max abs", "max rel", "mean", "SQNR dB")]
    rows += [
        (printable(item.name, 80), item.stored, *_numbers(item, item.largest)) for item in report.tensors
    ]
    worst = report.worst
    rows.append(("all", report.method.name, *_numbers(report, worst.largest if worst else 0.0)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), *_right(row[2:], widths[2:])])
        for row in rows
    ]


def _numbers(item: WeightError | Report, largest: float) -> tuple[str, ...]:
    errors = (f"{value:.3g}" for value in (largest, item.relative, item.mean))
    return (str(item.after), *errors, f"{item.sqnr:.1f}")


def _right(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
