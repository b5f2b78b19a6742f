"""Runs the nodes of a graph in order: operations, branches, loops; tensors are freed after their last use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import count, islice
from math import prod
from typing import Protocol

import numpy as np

from lamella.backend.executor.extents import Extents, require_checks
from lamella.backend.executor.findings import findings_at
from lamella.backend.executor.segments import Segment
from lamella.backend.formula.storage import Storage, TensorValue, known_extent, known_shape, known_single
from lamella.backend.progress import Progress, clock_of, no_progress
from lamella.base.arrays import Array
from lamella.base.dim import Dim, Logic, Test, substitute, symbols
from lamella.base.limits import Limits
from lamella.base.liveness import last_uses, live_ranges
from lamella.base.origin import GroupOrigin, Origin
from lamella.base.placement import OperationPlacement
from lamella.base.records import dataclass
from lamella.graph.binding import quantizer_of
from lamella.graph.compose.decompose import DecomposedCall, compose_call
from lamella.graph.insert_calls import CALLS
from lamella.graph.nodes import (
    Argument,
    Constant,
    Loop,
    Node,
    Operation,
    Pack,
    Region,
    Tensor,
    regions,
    tensors,
)
from lamella.kernels.launches import LaunchTime
from lamella.lang.skriptnd.rules.graphs import LOOP_TOO_LONG, TOO_MUCH_MEMORY
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction
from lamella.ops.instance import Instance
from lamella.ops.library import Library

KNOWN_TOO_LONG = LOOP_TOO_LONG.also("the loop takes {steps} steps; the limit is {limit}", LOOP_TOO_LONG.hint)


class OperatorRunner(Protocol):
    """Runs single operations: by their formulas, by kernels, or by whatever a backend has."""

    @property
    def library(self) -> Library:
        """The operators that it runs, those that were made of several for the extents of a call among them."""

    def begin(self, extents: Mapping[str, int], /) -> None:
        """A call starts in which the open extents of the inputs have these numbers."""

    def formulas_of(self, operation: Operation, /) -> tuple[Instance, Sequence[Contraction]]:
        """An operation bound to its definition, with its formulas."""

    def run(
        self,
        operation: Operation,
        inputs: Sequence[TensorValue],
        values: Mapping[str, int],
        random: np.random.Generator,
        /,
    ) -> list[TensorValue] | None:
        """The outputs of an operation in their stored types; None for one that only its components can run."""

    def placement(self) -> list[OperationPlacement]:
        """Where each operation ran in the last call, where there is a choice."""

    def cut(self, nodes: Sequence[Node], kept: Collection[str], /) -> Sequence[Node | Segment]:
        """The nodes in order, with segments for those that run in one call; `kept` is read behind the last one."""

    def constants_of(self, nodes: Sequence[Node], /) -> Sequence[Constant]:
        """The constants that what stands in place of some nodes reads beside those of the graph."""


@dataclass(slots=True)
class ExecutionContext:
    """What all runs of one executable share; the caches are by identity of nodes, which the model keeps alive."""

    storage: Storage
    limits: Limits
    quantized: bool
    runner: OperatorRunner
    last_uses: dict[int, tuple[Sequence[object], list[tuple[str, ...]]]] = field(default_factory=dict)
    bodies: dict[int, tuple[Operation, DecomposedCall]] = field(default_factory=dict)
    """What operations are composed of, with these, which not every model keeps alive."""
    quantizers: dict[str, Operation] = field(default_factory=dict)
    calls: dict[object, Callable[[Array], Array]] = field(default_factory=dict)
    """What stands outside and changes tensors, by the numbers of the calls in the graph."""


class GraphRun:
    """One run of some nodes: the environment of live tensors by name; regions share the one around them."""

    def __init__(self, context: ExecutionContext, extents: Extents, random: np.random.Generator) -> None:
        self.context = context
        self.extents = extents
        self.random = random
        self.held: dict[str, Array | tuple[Array, ...]] = {}
        self.late: dict[str, Constant] = {}
        self.bytes = 0
        self.steps: Iterator[int] = count()

    # --- tensors --------------------------------------------------------------------------------------------

    def get(self, argument: Argument) -> TensorValue:
        """The array of a tensor, or those of a pack."""
        if isinstance(argument, tuple):
            return tuple(self.array(item) for item in argument)
        if isinstance(argument, Pack):
            return self.held[argument.name]
        return None if argument is None else self.array(argument)

    def array(self, tensor: Tensor) -> Array:
        """The array of a tensor."""
        if tensor.name in self.late:
            return self._fill(self.late[tensor.name])
        found = self.held[tensor.name]
        return found[0] if isinstance(found, tuple) else found

    def put(self, argument: Argument, value: TensorValue) -> None:
        """Hold what a node gave, quantised where the tensor says so; symbols of its shape are bound."""
        if isinstance(argument, Tensor) and isinstance(value, np.ndarray):
            self.extents.bind(argument.name, argument.shape, value.shape)
            self._hold(argument.name, self._quantize(argument, value))
        elif isinstance(argument, Pack) and isinstance(value, tuple):
            self.extents.bind_extent(f"the length of '{argument.name}'", argument.size, len(value))
            self._hold(argument.name, value)
        elif isinstance(argument, tuple) and isinstance(value, tuple):
            self.extents.bind_extent("the length of a pack", len(argument), len(value))
            for item, array in zip(argument, value, strict=True):
                self.put(item, array)

    def _hold(self, name: str, value: Array | tuple[Array, ...]) -> None:
        self._drop(name)
        self.held[name] = value
        self.reserve(_size(value))

    def reserve(self, size: int) -> None:
        """Count bytes that are held, or no longer where they are negative."""
        self.bytes += size
        self.require_room(0)

    def require_room(self, size: int) -> None:
        """Refuse what would take more memory than there may be, before it is taken."""
        most = self.context.storage.most_bytes
        if self.bytes + size > most:
            raise Fault(TOO_MUCH_MEMORY, needed=self.bytes + size, limit=most)

    def _drop(self, name: str) -> None:
        if name in self.held:
            self.bytes -= _size(self.held.pop(name))

    def put_constant(self, constant: Constant) -> None:
        """Hold a constant; one whose extents or values a node still has to tell is made whenever it is used."""
        if open_symbols(constant) <= self.extents.keys():
            self.put(constant.tensor, self._fill(constant))
        else:
            self.late[constant.tensor.name] = constant

    def _fill(self, constant: Constant) -> Array:
        return make_constant(constant, self.context.storage, self.extents)

    def _quantize(self, tensor: Tensor, value: Array) -> Array:
        if tensor.quantization is None or not self.context.quantized:
            return value
        quantizers = self.context.quantizers
        operation = quantizers.get(tensor.name) or quantizer_of(tensor)
        if operation is None:
            return value
        quantizers[tensor.name] = operation
        found = self._run(operation, [value])[0]
        return found if isinstance(found, np.ndarray) else value

    # --- nodes ----------------------------------------------------------------------------------------------

    def run(
        self,
        nodes: Sequence[Node],
        inputs: Iterable[str],
        kept: Iterable[str],
        progress: Progress = no_progress,
    ) -> None:
        """Run nodes in order and let go of what is not needed any more."""
        kept = frozenset(kept)
        steps = self.context.runner.cut(nodes, kept)
        for constant in self.context.runner.constants_of(nodes):
            if constant.tensor.name not in self.held:
                self.put_constant(constant)
        # By identity: hashing a row of steps would cost more than the run of a small graph. It is kept beside, so that
        # its identity stays its own.
        known = self.context.last_uses.get(id(steps))
        if known is None:
            order = [
                node for step in steps for node in (step.operations if isinstance(step, Segment) else (step,))
            ]
            known = self.context.last_uses[id(steps)] = steps, _last_uses(order, inputs, kept)
        unused = iter(known[1])
        for step in progress(steps, len(steps)):
            if isinstance(step, Segment):
                left: Sequence[Node] = () if self._run_segment(step, progress) else step.operations
            else:
                left = (step,)
            for node in left:
                with findings_at(node.operator if isinstance(node, Operation) else "the graph", node.origin):
                    for argument, value in zip(node.outputs, self._run_node(node), strict=True):
                        self.put(argument, value)
            for names in islice(unused, len(step.operations) if isinstance(step, Segment) else 1):
                for name in names:
                    self._drop(name)

    def _run_segment(self, segment: Segment, progress: Progress) -> bool:
        """Run some operations in one call; False where a step had no value and nothing was done."""
        if segment.updated or segment.states:
            return (
                False  # it would write into the states themselves, which only a run of the whole graph may do
            )
        times: list[LaunchTime] | None = None if clock_of(progress) is None else []
        last = segment.operations[-1]
        with findings_at(last.operator, last.origin):
            self.require_room(segment.bytes)
            given = {name: self.array(tensor) for name, tensor in segment.inputs.items()}
            found = segment.run(given, times=times)
            if found is None:
                return False
            for name, array in found.items():
                self._hold(name, array)
        tell_times(progress, times)
        return True

    def _run_node(self, node: Node) -> Sequence[TensorValue]:
        if isinstance(node, Operation):
            return self._run(node, [self.get(item) for item in node.inputs])
        if isinstance(node, Loop):
            return _run_loop(self, node, self.context.limits.max_steps)
        chosen = next(
            (number for number, item in enumerate(node.conditions) if _is_true(self.region(item))), -1
        )
        return self.region(node.branches[chosen])

    def _run(self, operation: Operation, inputs: Sequence[TensorValue]) -> list[TensorValue]:
        self.require_room(self._size_of(operation.outputs))
        if operation.operator in CALLS and (called := self._call(operation, inputs)) is not None:
            return called
        found = self.context.runner.run(operation, inputs, self.extents, self.random)
        return self._compose(operation, inputs) if found is None else found

    def _call(self, operation: Operation, inputs: Sequence[TensorValue]) -> list[TensorValue] | None:
        """What a function outside of the graph makes of a tensor; None where there is none."""
        (given,) = inputs
        function = self.context.calls.get(dict(operation.attributes).get("number"))
        if function is None or not isinstance(given, np.ndarray):
            return None
        return [function(given)]

    def _size_of(self, outputs: Sequence[Argument]) -> int:
        """The bytes of tensors, as far as their extents are known."""
        total, dtype = 0, self.context.storage.dtype
        for tensor in (item for argument in outputs for item in tensors(argument)):
            known = [substitute(extent, self.extents) for extent in tensor.shape]
            shape = [extent for extent in known if isinstance(extent, int)]
            if len(shape) == len(known):
                total += prod(shape) * dtype(tensor.element).itemsize
        return total

    def _compose(self, operation: Operation, inputs: Sequence[TensorValue]) -> list[TensorValue]:
        """Run an operation by its components, in an environment of its own."""
        key, context = id(operation), self.context
        if key not in context.bodies:
            body = compose_call(context.runner.library, operation, limits=context.limits)
            whole = body._replace(nodes=_with_origins(body.nodes, operation.origin))
            context.bodies[key] = operation, whole
        _, body = context.bodies[key]
        inner = GraphRun(context, Extents(self.extents), self.random)
        # Memory and steps count on: limits hold for the run, however deep its operators are composed.
        inner.bytes, inner.steps = self.bytes, self.steps
        for argument, value in zip(operation.inputs, inputs, strict=True):
            inner.put(argument, value)
        for constant in body.constants:
            inner.put_constant(constant)
        inner.run(body.nodes, (), names_of(operation.outputs))
        return [inner.get(item) for item in operation.outputs]

    def region(self, region: Region, values: Sequence[Array] = ()) -> list[Array]:
        """The outputs of a region for some inputs; extents that are bound inside it stay inside."""
        # Extents are bound anew in each step of a loop: a symbol of the last step would refuse other shapes in this.
        before = dict(self.extents)
        for tensor, value in zip(region.inputs, values, strict=True):
            self.put(tensor, value)
        names = [tensor.name for tensor in region.inputs]
        require_checks(region.checks, self.extents)
        self.run(region.nodes, names, names_of(region.outputs))
        require_checks(region.checks, self.extents)
        for name in self.extents.keys() - before.keys():
            del self.extents[name]
        return [self.array(tensor) for tensor in region.outputs]


def _with_origins(nodes: tuple[Node, ...], origin: Origin | None) -> tuple[Node, ...]:
    """The components of a group with the origins of the operations that they were before it was one."""
    if not isinstance(origin, GroupOrigin) or len(origin.members) != len(nodes):
        return nodes
    return tuple(replace(node, origin=item) for node, item in zip(nodes, origin.members, strict=True))


def tell_times(progress: Progress, times: Iterable[LaunchTime] | None) -> None:
    """Tell the times of launches to who wants them."""
    clock = clock_of(progress)
    if clock is not None:
        for item in times or ():
            clock.record(item)


def open_symbols(constant: Constant) -> set[str]:
    """The symbols in the shape and the values of a constant."""
    values = constant.value if isinstance(constant.value, tuple) else (constant.value,)
    found = (item for item in (*constant.tensor.shape, *values) if isinstance(item, Dim | Test | Logic))
    return {part.name for item in found for part in symbols(item)}


def make_constant(constant: Constant, storage: Storage, extents: Mapping[str, int]) -> Array:
    """The array of a constant whose extents are known."""
    tensor, value = constant.tensor, constant.value
    shape = known_shape(tensor.shape, extents)
    several = isinstance(value, tuple)
    singles = [known_single(item, extents) for item in (value if isinstance(value, tuple) else (value,))]
    return storage.constant(tensor.element, shape, singles if several else singles[0])


def _size(value: Array | tuple[Array, ...]) -> int:
    """The bytes of what is held."""
    return sum(item.nbytes for item in value) if isinstance(value, tuple) else value.nbytes


# --- loops ---------------------------------------------------------------------------------------------------


def _run_loop(run: GraphRun, loop: Loop, most_steps: int) -> list[TensorValue]:
    """The outputs of a loop: the carried tensors, then the rows of the scan outputs."""
    state = [run.array(tensor) for tensor in loop.carried]
    rows: list[list[Array]] = [[] for _ in range(len(loop.body.outputs) - len(loop.carried))]
    scans = [item for item in map(run.get, loop.scans) if isinstance(item, tuple)]
    collected = 0
    for step in _steps(run, loop, scans, most_steps):
        local = [scan[step] for scan in scans]
        local += [np.asarray(step, np.int64)] if loop.index else []
        if loop.pretest and not _goes_on(run, loop, [*state, *local]):
            break
        results = run.region(loop.body, [*state, *local])
        state = results[: len(state)]
        for row, value in zip(rows, results[len(state) :], strict=True):
            row.append(value)
            run.reserve(value.nbytes)
            collected += value.nbytes
        if not loop.pretest and not _goes_on(run, loop, [*state, *local]):
            break
    run.reserve(-collected)
    return [*state, *(tuple(row) for row in rows)]


def _goes_on(run: GraphRun, loop: Loop, values: Sequence[Array]) -> bool:
    return loop.condition is None or _is_true(run.region(loop.condition, values))


def _is_true(results: Sequence[Array]) -> bool:
    """Whether the one result of a condition is true."""
    return bool(results[0].reshape(-1)[0])


def _steps(run: GraphRun, loop: Loop, scans: Sequence[tuple[Array, ...]], most_steps: int) -> Iterator[int]:
    """The indices of the steps that count and scans allow."""
    ends = [len(scan) for scan in scans]
    if isinstance(loop.count, Tensor):
        ends.append(int(run.array(loop.count).reshape(-1)[0]))
    elif loop.count is not None:
        ends.append(known_extent(loop.count, run.extents))
    end = min(ends) if ends else None
    if end is not None and end > most_steps and loop.condition is None:
        raise Fault(KNOWN_TOO_LONG, steps=end, limit=most_steps)
    for step in count():
        if end is not None and step >= end:
            return
        if next(run.steps) >= most_steps:
            raise Fault(LOOP_TOO_LONG, limit=most_steps)
        yield step


# --- liveness ------------------------------------------------------------------------------------------------


def names_of(arguments: Iterable[Argument]) -> Iterator[str]:
    """The names under which arguments are held."""
    for argument in arguments:
        if isinstance(argument, Pack):
            yield argument.name
        else:
            yield from (item.name for item in tensors(argument))


def _uses_of(node: Node) -> Iterator[str]:
    """The names that a node and everything inside it reads."""
    if isinstance(node, Operation):
        yield from names_of(node.inputs)
    if isinstance(node, Loop):
        yield from names_of((*node.carried, *node.scans))
        if isinstance(node.count, Tensor):
            yield node.count.name
    for region in regions(node):
        yield from names_of(region.outputs)
        for inner in region.nodes:
            yield from _uses_of(inner)


def last_reads(nodes: Sequence[Node], kept: Iterable[str]) -> dict[str, int]:
    """The last node of a row that reads each name; what is kept is read behind them all."""
    return last_uses(_uses_of(node) for node in nodes) | dict.fromkeys(kept, len(nodes))


def _last_uses(nodes: Sequence[Node], inputs: Iterable[str], kept: Iterable[str]) -> list[tuple[str, ...]]:
    """For each node, the names that this row of nodes was given or defined and that nothing after it needs."""
    steps = ((_uses_of(node), names_of(node.outputs)) for node in nodes)
    found: list[list[str]] = [[] for _ in nodes]
    stay = set(kept)
    for name, alive in live_ranges(steps, before=inputs).items():
        if name not in stay and nodes:
            # What nothing uses is dropped behind the first node: there is no step before it.
            found[max(alive.last, 0)].append(name)
    return [tuple(row) for row in found]
