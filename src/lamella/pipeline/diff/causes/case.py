"""The case of a divergence: both computations with their numbers, to be run again with something changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lamella.backend.executor import GraphExecutable
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.graph.nodes import Node, Operation
from lamella.pipeline.diff.flow import CANNOT_RUN, Subgraph, listed
from lamella.pipeline.diff.gap import find_rearrangement, measure

EXPLAINS = 0.005
"""A change explains a difference that it makes smaller than this part of what it was."""
NOISE = 2e-6
"""What is always left of a difference in 32 bits."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why two computations differ: what kind of mistake it is, and a sentence with the numbers of this case."""

    kind: str
    sentence: str
    operation: Node | None = None
    """The operation that it is about, where the computations have several."""


class Computation:
    """One side of a divergence: some operations that compute a tensor, and the numbers of a run."""

    def __init__(self, part: Subgraph, values: Mapping[str, Array]) -> None:
        self.part = part
        self.values = values
        self._compiled: dict[tuple[int, ...], GraphExecutable | None] = {}
        self._kept: list[tuple[Node, ...]] = []

    @property
    def single(self) -> Operation | None:
        """The operation, where there is only one."""
        node = self.part.nodes[0] if len(self.part.nodes) == 1 else None
        return node if isinstance(node, Operation) else None

    @property
    def output(self) -> Array:
        """What the run computed."""
        return self.values[self.part.output.name]

    @cached_property
    def operands(self) -> dict[str, Array]:
        """What the computation reads from outside, constants left out."""
        inputs = listed(self.part.to_model().graph.inputs)
        return {item.name: self.values[item.name] for item in inputs if item.name in self.values}

    def run(self, changed: Mapping[str, Array], nodes: Sequence[Node] | None = None) -> Array | None:
        """What the reference computes with some operands changed, or by other operations; None where it cannot."""
        chosen = self.part.nodes if nodes is None else tuple(nodes)
        key = tuple(map(id, chosen))
        if key not in self._compiled:
            self._kept.append(chosen)  # identities stay their own
            self._compiled[key] = self._compile(chosen)
        executable = self._compiled[key]
        if executable is None:
            return None
        given = {**self.values, **changed}
        try:
            found = executable(**{name: given[name] for name in executable.inputs})
        except (*CANNOT_RUN, KeyError):
            return None
        return next(iter(found.values()))

    def _compile(self, nodes: tuple[Node, ...]) -> GraphExecutable | None:
        part = Subgraph(self.part.model, nodes, self.part.inputs, self.part.output)
        try:
            return compile_model(part.to_model())
        except CANNOT_RUN:
            return None


@dataclass(frozen=True, slots=True)
class Case:
    """Two computations of what is to be the same tensor, from operands that correspond, with other results."""

    left: Computation
    right: Computation
    borders: tuple[tuple[str, str], ...]
    """Tensors that both read: of the left, of the right."""
    tolerance: float = 1e-5

    def gap(self, got: Array | None) -> float:
        """How far a result of the right side would be from the left's, in parts of the largest number."""
        return self._gap(self.left.output, got)

    def gap_of_left(self, got: Array | None) -> float:
        """How far a result of the left side would be from the right's."""
        return self._gap(self.right.output, got)

    def _gap(self, wanted: Array, got: Array | None) -> float:
        if got is None or got.size != wanted.size:
            return float("inf")
        if got.shape == wanted.shape:
            return measure("", wanted, got).relative
        way = find_rearrangement(got, wanted, 1e-3)
        return float("inf") if way is None else measure("", wanted, way.apply(got, wanted.shape)).relative

    @property
    def before(self) -> float:
        """How far the results are apart."""
        one, other = self.left.output, self.right.output
        return measure("", one, other).relative if one.shape == other.shape else float("inf")

    def explains(self, got: Array | None) -> bool:
        """Whether the right side, changed so that it gives this, agrees with the left."""
        return self._is_small(self.gap(got))

    def explains_left(self, got: Array | None) -> bool:
        """Whether the left side, changed so that it gives this, agrees with the right."""
        return self._is_small(self.gap_of_left(got))

    def _is_small(self, gap: float) -> bool:
        return gap <= max(EXPLAINS * min(self.before, 1.0), NOISE) and gap < self.before / 4


def finite(*arrays: Array) -> bool:
    """Whether all numbers are finite."""
    return all(bool(np.isfinite(item).all()) for item in arrays)
