"""Graphs whose compiled form was kept: one segment, and the way to the whole where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from lamella.backend.executor import GraphExecutable
from lamella.backend.executor.batches import EndRun
from lamella.backend.executor.extents import Extents
from lamella.backend.executor.results import Out, RunResult
from lamella.backend.executor.run import OperatorRunner
from lamella.backend.executor.segments import OnceResults, Segment
from lamella.backend.formula.storage import Storage, TensorValue
from lamella.backend.progress import StepClock
from lamella.base.arrays import Array
from lamella.base.limits import DEFAULT, Limits
from lamella.base.optional import load_late
from lamella.base.placement import OperationPlacement
from lamella.base.records import dataclass
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Node, Operation
from lamella.ops.formula import Contraction
from lamella.ops.instance import Instance
from lamella.ops.library import Library


class StoredExecutable(GraphExecutable):
    """A graph that runs as one segment that was compiled before.

    It is compiled after all where a launch finds something wrong, which only the formulas can tell, and where somebody
    wants to see the steps of a run; but for one that runs in parts of its batch, whose steps are those of the parts.
    """

    def __init__(
        self,
        model: Model,
        stored: tuple[Segment, list[OperationPlacement]],
        compile_whole: Callable[[], GraphExecutable],
        seed: int = 0,
        dtype: str = "f32",
        limits: Limits = DEFAULT,
    ) -> None:
        def make_runner(library: Library, storage: Storage, limits: Limits) -> StoredRunner:
            return StoredRunner((library, storage, limits), *stored)

        super().__init__(model, make_runner, seed, dtype, False, limits)
        self._segment = stored[0]
        self._settle = stored[0].machine.settle
        self._compile_whole = compile_whole
        self._in_parts = stored[0].parts > 1
        self._whole: GraphExecutable | None = None

    def whole_segment(self) -> Segment:
        """The segment that the whole graph is."""
        return self._segment

    def _begin(self, inputs: Mapping[str, npt.ArrayLike], out: Out, is_ahead: bool = False) -> EndRun:
        if self._whole is None and (self._in_parts or not isinstance(self.progress, StepClock)):
            return super()._begin(inputs, out, is_ahead)
        whole = self._take_whole()
        whole.progress, whole.draws = self.progress, self.draws
        end = whole._begin(inputs, out, is_ahead)

        def finish() -> dict[str, Array]:
            found = end()
            self.findings, self.drawn = whole.findings, whole.drawn
            return found

        return finish

    def _run_nodes(self, taken: Mapping[str, TensorValue], extents: Extents) -> RunResult:
        self._settle()  # inputs that lie on a device, which that one does not know
        return self._take_whole()._run_nodes(taken, extents)

    def _take_whole(self) -> GraphExecutable:
        """The graph as it is compiled, with the variables as they are now."""
        if self._whole is None:
            self._whole = self._compile_whole()
            self._whole.state = self.state
            self.model = self._whole.model
        return self._whole


@dataclass(frozen=True, slots=True)
class StoredExtents:
    """A graph for some extents whose compiled form was kept."""

    read: Callable[[OnceResults], tuple[Segment, list[OperationPlacement]] | None]
    """Reads it; None where it is nothing that can be read. What runs once is shared with other extents."""


class StoredExtentsRunner:
    """What a graph asks for extents whose compiled form was kept: it is one segment."""

    compiled = 0
    """How many kernels machine code was made for."""

    def __init__(self, segment: Segment, placement: list[OperationPlacement]) -> None:
        self._segment, self._placement = segment, placement

    def begin(self) -> None:
        """A call starts."""

    def settle(self) -> None:
        """Bring states home that launches updated elsewhere."""
        self._segment.machine.settle()

    def placement(self) -> list[OperationPlacement]:
        """Where each operation runs."""
        return self._placement

    def constants_of(self, nodes: Sequence[Node]) -> Sequence[Constant]:
        """The constants that what stands in place of some nodes reads beside those of the graph."""
        return ()

    def cut(self, nodes: Sequence[Node], kept: Collection[str]) -> Sequence[Node | Segment]:
        """The one segment that all nodes are."""
        return (self._segment,)


class Formulas(Protocol):
    """What has the runner of formulas: `lamella.backend.reference.operators`."""

    FormulaRunner: Callable[[Library, Storage, Limits], OperatorRunner]


class StoredRunner:
    """What a graph asks that is one segment; single operations are run by their formulas."""

    def __init__(
        self,
        parts: tuple[Library, Storage, Limits],
        segment: Segment,
        placement: list[OperationPlacement],
    ) -> None:
        self._parts = parts
        self._segment = segment
        self._placement = placement

    @cached_property
    def _formulas(self) -> OperatorRunner:
        """What runs operations by their formulas; loaded when it is asked for, which few runs do."""
        reference = cast(Formulas, load_late("lamella.backend.reference.operators"))
        return reference.FormulaRunner(*self._parts)

    @property
    def library(self) -> Library:
        """The operators of the graph."""
        return self._parts[0]

    def begin(self, extents: Mapping[str, int]) -> None:
        """A call starts; there are no open extents."""

    def placement(self) -> list[OperationPlacement]:
        """Where each operation runs."""
        return self._placement

    def constants_of(self, nodes: Sequence[Node]) -> Sequence[Constant]:
        """The constants that what stands in place of some nodes reads beside those of the graph."""
        return ()

    def cut(self, nodes: Sequence[Node], kept: Collection[str]) -> Sequence[Node | Segment]:
        """The one segment that all nodes are."""
        return (self._segment,)

    def formulas_of(self, operation: Operation) -> tuple[Instance, Sequence[Contraction]]:
        """An operation bound to its definition, with its formulas."""
        return self._formulas.formulas_of(operation)

    def run(
        self,
        operation: Operation,
        inputs: Sequence[TensorValue],
        values: Mapping[str, int],
        random: np.random.Generator,
    ) -> list[TensorValue] | None:
        """The outputs of an operation, by its formulas."""
        return self._formulas.run(operation, inputs, values, random)
