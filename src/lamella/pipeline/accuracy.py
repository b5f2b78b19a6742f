"""Accuracy of a reduced precision: how far its outputs lie from those of the model as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lamella.base.arrays import Array
from lamella.graph.passes.reduce_precision import FULL

__all__ = ["FULL", "AccuracyReport", "compare_precision"]


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """The errors of all real outputs, in f64."""

    precision: str
    largest: float
    """The largest error of an element."""
    mean: float
    """The mean error of all elements."""
    scale: float
    """The largest magnitude of the outputs in full precision."""

    def line(self) -> str:
        """For people."""
        part = f", {self.largest / self.scale:.2g} of the largest output" if self.scale else ""
        return f"{self.precision}: differs from {FULL} by {self.largest:.3g} at most{part}, {self.mean:.3g} on average"

    def to_json(self) -> dict[str, object]:
        """As data."""
        facts = {"largest": self.largest, "mean": self.mean, "scale": self.scale}
        return {"accuracy": {"precision": self.precision, **facts}}


def compare_precision(
    precision: str, outputs: Mapping[str, Array], full: Mapping[str, Array]
) -> AccuracyReport:
    """The errors of real outputs against those of full precision; what is infinite in both is equal."""
    errors, sizes = [], []
    for name, exact in full.items():
        if not np.issubdtype(exact.dtype, np.floating) or not exact.size:
            continue
        wide, found = exact.astype(np.float64), outputs[name].astype(np.float64)
        same = np.isinf(wide) & (wide == found)
        errors.append(np.abs(np.where(same, 0.0, found) - np.where(same, 0.0, wide)).ravel())
        sizes.append(np.abs(np.where(same, 0.0, wide)).ravel())
    if not errors:
        return AccuracyReport(precision, 0.0, 0.0, 0.0)
    all_errors = np.concatenate(errors)
    scale = float(np.concatenate(sizes).max())
    return AccuracyReport(precision, float(all_errors.max()), float(all_errors.mean()), scale)
