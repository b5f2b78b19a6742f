"""The numbers of two graphs on the same inputs, tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Tensor
from lamella.graph.rewrite import copy_of
from lamella.pipeline.comparing.aligning import Alignment, results
from lamella.pipeline.options import Options


@dataclass(frozen=True, slots=True)
class Apart:
    """How far two arrays are from each other, and the largest number of the first."""

    name: str
    largest: float
    scale: float

    @property
    def relative(self) -> float:
        """The difference in parts of the largest number; infinite where shapes or types differ."""
        return self.largest / self.scale if self.scale else self.largest


@dataclass(frozen=True, slots=True)
class Diverging:
    """A pair of operations whose results differ although all before them agree."""

    left: Operation
    right: Operation
    apart: Apart


def apart(name: str, one: Array, other: Array) -> Apart:
    """The largest difference of two arrays; equal infinities and NaN are no difference."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return Apart(name, math.inf, 1.0)
    left, right = (item.astype(np.float64) for item in (one, other))
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        gaps = np.where(same, 0.0, np.abs(left - right))
    largest = float(gaps.max(initial=0.0))
    scale = float(np.abs(left[np.isfinite(left)]).max(initial=0.0))
    return Apart(name, math.inf if math.isnan(largest) else largest, scale)


def values_of(model: Model, wanted: Iterable[Tensor], options: Options) -> Mapping[str, Array]:
    """What some tensors of a model hold in a run; random inputs are the same wherever their names are."""
    copies = {
        f"value of {item.name}": (item, replace(item, name=f"value of {item.name}", quantization=None))
        for item in wanted
    }
    nodes = (*model.graph.nodes, *(copy_of(*pair) for pair in copies.values()))
    outputs = tuple(copy for _, copy in copies.values())
    graph = replace(model.graph, nodes=nodes, outputs=outputs, updates=())
    run = compile_model(replace(model, graph=graph), seed=options.start_seed, limits=options.limits)
    return {copies[name][0].name: array for name, array in run().items()}


def find_diverging(
    alignment: Alignment, one: Mapping[str, Array], other: Mapping[str, Array], tolerance: float
) -> Diverging | None:
    """The first pair of operations whose results differ by more than a tolerance."""
    for left, right in alignment.pairs:
        for mine, theirs in zip(results(left), results(right), strict=True):
            gap = apart(mine.name, one[mine.name], other[theirs.name])
            if gap.relative > tolerance:
                return Diverging(left, right, gap)
    return None
