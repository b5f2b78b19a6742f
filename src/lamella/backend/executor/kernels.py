"""Graphs with kernels on the executor: each operation by its kernels, what has none by its formulas."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from lamella.backend.executor import GraphExecutable
from lamella.backend.executor.batches import EndRun
from lamella.backend.executor.extents import Extents
from lamella.backend.executor.results import Out, RunResult
from lamella.backend.executor.segments import FeedingList, ListMachine, OnceResults, Segment
from lamella.backend.executor.specialised import Launch, Specialised, SpecialisedRunner
from lamella.backend.executor.stored import StoredExtents, StoredExtentsRunner
from lamella.backend.formula.storage import Storage, TensorValue
from lamella.backend.progress import clock_of
from lamella.backend.reference.operators import (
    FormulaRunner,
    Values,
)
from lamella.base.arrays import Array
from lamella.base.diagnostic import NOTE, Diagnostic
from lamella.base.dim import symbols
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.placement import OperationPlacement
from lamella.base.source import NOWHERE
from lamella.base.tuning import TuningReport
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Node, Operation
from lamella.graph.rewrite import extents, members
from lamella.kernels.nodes import KernelGraph
from lamella.lang.skriptnd.rules.graphs import OPEN_EXTENTS
from lamella.ops.formula import Contraction
from lamella.ops.instance import Instance
from lamella.ops.library import Library

MOST_READY = 64
"""How many sets of extents stay ready: launch lists, whose machine code most of them share."""
COMPILED_AGAIN = OPEN_EXTENTS.also(
    "{count} had to be compiled for {sizes}: no code of calls before serves these extents"
)


def compile_graph(
    program: KernelGraph,
    launch: Launch,
    *,
    seed: int = 0,
    dtype: str = "f32",
    quantized: bool = False,
    limits: Limits = DEFAULT,
    machine: ListMachine | None = None,
) -> KernelExecutable:
    """Make a graph of known extents callable whose kernels are launched by a function, or as lists by a machine."""

    def specialise(extents: Mapping[str, int]) -> Specialised:
        return Specialised(program, launch, machine=machine)

    return KernelExecutable(program.model, specialise, seed, dtype, quantized, limits)


Specialise = Callable[[Mapping[str, int]], Specialised]
"""Gives the open extents of a graph their numbers, and its operations their kernels."""
FindStored = Callable[[Mapping[str, int]], StoredExtents | None]
"""Finds what was compiled for such extents before."""


class KernelExecutable(GraphExecutable):
    """The executor with a runner of kernels: they are made for the open extents of each call."""

    def __init__(
        self,
        model: Model,
        specialise: Specialise,
        seed: int = 0,
        dtype: str = "f32",
        quantized: bool = False,
        limits: Limits = DEFAULT,
    ) -> None:
        inputs = members(model.graph.inputs)
        names = {symbol.name for item in inputs for extent in extents(item) for symbol in symbols(extent)}
        runner = partial(
            KernelRunner,
            specialise=specialise,
            open_extents=tuple(sorted(names)),
            quantized=quantized,
        )
        super().__init__(model, runner, seed, dtype, quantized, limits)
        if isinstance(self._context.runner, KernelRunner):
            self._settle = self._context.runner.settle
        # What every call needs is ready before the first.
        self._context.runner.cut(model.graph.nodes, self._needed)

    def keep_extents(self, find_stored: FindStored) -> None:
        """Let calls find what was compiled for their extents before."""
        if isinstance(self._context.runner, KernelRunner):
            self._context.runner.find_stored = find_stored

    def _begin(self, inputs: Mapping[str, npt.ArrayLike], out: Out, is_ahead: bool = False) -> EndRun:
        runner = self._context.runner
        if isinstance(runner, KernelRunner):
            runner.is_watched = clock_of(self.progress) is not None
        end = super()._begin(inputs, out, is_ahead)

        def finish() -> dict[str, Array]:
            found = end()
            if isinstance(runner, KernelRunner):
                self.findings = [*self.findings, *runner.findings]
            return found

        return finish

    def _run_nodes(self, taken: Mapping[str, TensorValue], extents: Extents) -> RunResult:
        if isinstance(self._context.runner, KernelRunner):
            self._context.runner.compile_whole(extents)
        return super()._run_nodes(taken, extents)

    def feed_back(self, output: str, following: str, count: int) -> Array | None:
        """What a device chooses by itself, call after call; None where the last call was no one list of such."""
        with self._busy:
            self._land()
            graph = self.model.graph
            steps = self._context.runner.cut(graph.nodes, self._needed)
            segment = steps[0] if len(steps) == 1 else None
            if not isinstance(segment, Segment) or not segment.can_choose(output, following):
                return None
            updates = [item for item in graph.updates if item.variable.name not in segment.in_place]
            carried = {
                item.value.name: (
                    item.variable.name,
                    segment.machine.empty(*segment.outputs[item.value.name]),
                )
                for item in updates
            }
            each = segment.each
            found = (
                each.feed_back(output, following, count, carried) if isinstance(each, FeedingList) else None
            )
            for name, array in carried.values() if found is not None else ():
                self._spare.replace(self._state, name, array)
            return found

    @property
    def tuning(self) -> TuningReport | None:
        """What was measured to choose the kernels of the last call; None where nothing was."""
        runner = self._context.runner
        return runner.tuning() if isinstance(runner, KernelRunner) else None

    def segments(self, extents: Mapping[str, int]) -> list[Segment]:
        """The launch lists of a call whose open extents are these."""
        self._context.runner.begin(extents)
        steps = self._context.runner.cut(self.model.graph.nodes, self._needed)
        return [item for item in steps if isinstance(item, Segment)]

    def whole_segment(self) -> Segment | None:
        """The segment that the whole graph is; None where it is several, has other nodes, or updates in place."""
        found = self.only_segment()
        return found if found is not None and self._needed <= found.outputs.keys() else None

    def only_segment(self) -> Segment | None:
        """The same where states may be updated in place."""
        steps = self._context.runner.cut(self.model.graph.nodes, self._needed)
        found = steps[0] if len(steps) == 1 else None
        if not isinstance(found, Segment) or not self._needed <= {*found.outputs, *found.in_place.values()}:
            return None
        return found


class KernelRunner:
    """Runs operations by kernels for the extents of each call; those of the last few sets of extents stay ready."""

    def __init__(
        self,
        library: Library,
        storage: Storage,
        limits: Limits,
        *,
        specialise: Specialise,
        open_extents: Sequence[str],
        quantized: bool = False,
    ) -> None:
        self._quantized = quantized
        self.find_stored: FindStored | None = None
        """Finds what was compiled for open extents before."""
        self.is_watched = False
        """Whether somebody wants to see the steps of a call, which a compiled form that was kept does not have."""
        self._results = OnceResults()
        """What weights become, for all extents: a copy for each set of them would be a model for each."""
        self._make_formulas = partial(FormulaRunner, storage=storage, limits=limits)
        self._formulas = self._make_formulas(library)
        self._specialise = specialise
        self._open_extents = open_extents
        self._ready: OrderedDict[tuple[int | None, ...], SpecialisedRunner | StoredExtentsRunner] = (
            OrderedDict()
        )
        self._current: SpecialisedRunner | StoredExtentsRunner | None = None
        self.findings: list[Diagnostic] = []
        """What there is to say about the kernels of the last call."""
        self._has_run = False
        if not open_extents:
            self.begin({})

    def begin(self, extents: Mapping[str, int]) -> None:
        """Take the kernels for these extents; they are made where no recent call had them."""
        key = tuple(extents.get(name) for name in self._open_extents)
        self.findings = []
        if self.is_watched and isinstance(self._ready.get(key), StoredExtentsRunner):
            del self._ready[key]
        if key not in self._ready:
            known = {name: extents[name] for name in self._open_extents if name in extents}
            made = self._make(known)
            # Least recently used first: a generation that grows by one token each call would keep all its kernels.
            while len(self._ready) >= MOST_READY:
                self._ready.popitem(last=False)
            self._ready[key] = made
            self.findings = self._tell(known, made.compiled)
        self._ready.move_to_end(key)
        self._current = self._ready[key]
        self._current.begin()

    def _make(self, extents: Mapping[str, int]) -> SpecialisedRunner | StoredExtentsRunner:
        """What runs operations for some extents: what was kept, or what is compiled now."""
        kept = None if self.find_stored is None or self.is_watched else self.find_stored(extents)
        opened = None if kept is None else kept.read(self._results)
        return self._compile(extents) if opened is None else StoredExtentsRunner(*opened)

    @gc_paused()
    def _compile(self, extents: Mapping[str, int]) -> SpecialisedRunner:
        specialised = self._specialise(extents)
        # What a machine fuses for these extents is an operator of theirs.
        formulas = self._make_formulas(specialised.program.model.library)
        return SpecialisedRunner(formulas, specialised, self._quantized, self._results)

    def compile_whole(self, extents: Mapping[str, int]) -> None:
        """Compile what was kept after all: nodes are to be run one by one."""
        if isinstance(self._current, StoredExtentsRunner):
            self._current.settle()
            known = {name: extents[name] for name in self._open_extents if name in extents}
            key = tuple(extents.get(name) for name in self._open_extents)
            self._ready[key] = self._current = self._compile(known)
            self._current.begin()

    def settle(self) -> None:
        """Bring states home that launches updated elsewhere."""
        for item in self._ready.values():
            item.settle()

    def _tell(self, extents: Mapping[str, int], compiled: int) -> list[Diagnostic]:
        """That kernels had to be compiled for the extents of a call, unless it is the first."""
        first, self._has_run = not self._has_run, True
        if first or not compiled:
            return []
        sizes = ", ".join(f"{name} = {size}" for name, size in extents.items())
        count = f"{compiled} kernel{'s' * (compiled > 1)}"
        return [replace(COMPILED_AGAIN.at(NOWHERE, sizes=sizes, count=count), severity=NOTE)]

    def placement(self) -> list[OperationPlacement]:
        """Where each operation ran in the last call; nothing before the call that tells the open extents."""
        return [] if self._current is None else self._current.placement()

    def tuning(self) -> TuningReport | None:
        """What was measured to choose the kernels of the last call."""
        return self._current.tuning if isinstance(self._current, SpecialisedRunner) else None

    def constants_of(self, nodes: Sequence[Node]) -> Sequence[Constant]:
        """The constants that what stands in place of some nodes reads beside those of the graph."""
        return () if self._current is None else self._current.constants_of(nodes)

    def cut(self, nodes: Sequence[Node], kept: Collection[str]) -> Sequence[Node | Segment]:
        """The nodes in order, with segments for those that launch lists run."""
        return nodes if self._current is None else self._current.cut(nodes, kept)

    @property
    def library(self) -> Library:
        """The operators of this call."""
        current = self._current
        return current.library if isinstance(current, SpecialisedRunner) else self._formulas.library

    def formulas_of(self, operation: Operation) -> tuple[Instance, Sequence[Contraction]]:
        """An operation bound to its definition, with its formulas."""
        return self._formulas.formulas_of(operation)

    def run(
        self,
        operation: Operation,
        inputs: Sequence[TensorValue],
        values: Values,
        random: np.random.Generator,
    ) -> list[TensorValue] | None:
        """The outputs of an operation, by the kernels of this call."""
        current = self._current
        runner = current if isinstance(current, SpecialisedRunner) else self._formulas
        return runner.run(operation, inputs, values, random)
