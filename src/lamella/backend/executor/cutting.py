"""Rows of nodes cut into segments, for one set of extents: operations that have kernels become launch lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from math import prod
from typing import Protocol

import numpy as np

from lamella.backend.arguments import written_parameters
from lamella.backend.executor.segments import BYTE, ListMachine, OnceResult, OnceResults, Segment, TensorShape
from lamella.base.arrays import Array, DType
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass, replace
from lamella.graph.nodes import Argument, Node, Operation, Pack, Tensor, tensors
from lamella.kernels.launches import FILL, LaunchList
from lamella.kernels.nodes import InPlaceCalls, KernelCall, KernelGraph
from lamella.kernels.schedule import (
    OperandKey,
    ScheduledOperation,
    Scheduler,
    hoist,
    name_temporary,
    split,
)
from lamella.kernels.state_updates import update_in_place
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Function, Program


@dataclass(frozen=True, slots=True)
class StepOutput:
    """An output of an operation: its name, the shape of it or of each tensor of a pack, its type."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: DType
    is_pack: bool = False


@dataclass(frozen=True, slots=True)
class KernelStep:
    """An operation of known shapes: the names of its inputs, its constants, its outputs, its kernels."""

    inputs: tuple[str, ...]
    constants: Mapping[str, Array | tuple[Array, ...]]
    outputs: tuple[StepOutput, ...]
    calls: tuple[KernelCall, ...]


class StepPlanner(Protocol):
    """What knows operations for one set of extents."""

    @property
    def most_bytes(self) -> int:
        """How much memory a run may use."""

    def plan_step(self, operation: Operation) -> KernelStep | None:
        """What an operation does; None where the numbers of a run have a say in it."""

    def memory_of(self, tensor: Tensor) -> TensorShape | None:
        """The shape and the type in which a tensor is held; None where only the run tells."""


class SegmentCutter:
    """Cuts rows of nodes into segments, for one set of extents."""

    def __init__(
        self,
        program: KernelGraph,
        machine: ListMachine,
        planner: StepPlanner,
        constants: Mapping[str, Array],
        results: OnceResults,
    ) -> None:
        graph = program.model.graph
        updated = {item.variable.name for item in graph.updates}
        self._streams = program.model.streams
        # What comes and goes is read as it lies: copies in another layout would stay.
        self._fixed = {item.name for item in graph.variables} - updated - self._streams.keys()
        self._constants = constants
        self._machine = machine
        self._planner = planner
        self._results = results
        self._writes = KernelWrites(program.program)
        self._in_place, self._nodes = program.in_place, graph.nodes
        leaving = Counter(item.name for argument in graph.outputs for item in tensors(argument))
        leaving.update(item.value.name for item in graph.updates)
        self._leaving = set(leaving)
        self._updates = [item for item in graph.updates if leaving[item.value.name] == 1]
        """Those whose value is nothing else: only such a one can be where the last value was."""
        self._whole = 0
        """The operations of a row that is all of the graph; states are updated in place in such a row alone."""
        self._layouts = program.layouts

    def cut(self, nodes: Sequence[Node], last_reads: Mapping[str, int]) -> list[Node | Segment]:
        """The nodes in order, those that launch lists can run as segments; `last_reads` tells who reads a name last."""
        found: list[Node | Segment] = []
        row: list[_PlannedOperation] = []
        self._whole = len(nodes) if nodes is self._nodes else 0
        for number, node in enumerate(nodes):
            planned = self._planned(node)
            if planned is not None:
                row.append(planned)
                continue
            found += [*self._segments(row, number, last_reads), node]
            row = []
        return [*found, *self._segments(row, len(nodes), last_reads)]

    def _planned(self, node: Node) -> _PlannedOperation | None:
        if not isinstance(node, Operation):
            return None
        if any(isinstance(item, Pack) for item in (*node.inputs, *node.outputs)):
            return None
        sizes = {
            item.name: self._planner.memory_of(item) for item in (*_flat(node.inputs), *_flat(node.outputs))
        }
        known = {name: memory for name, memory in sizes.items() if memory is not None}
        step = self._planner.plan_step(node) if len(known) == len(sizes) else None
        return None if step is None else _PlannedOperation(node, step, known)

    def _segments(
        self, row: Sequence[_PlannedOperation], end: int, last_reads: Mapping[str, int]
    ) -> list[Node | Segment]:
        """A row that ends before a node as one segment; in parts where a launch can be neither proved nor tested."""
        if not row:
            return []
        made = {item.name for planned in row for item in _flat(planned.operation.outputs)}
        may_overwrite = len(row) == self._whole and bool(self._updates) and self._leaving <= made
        for overwriting in (True, False) if may_overwrite else (False,):
            try:
                return [self._build(row, end, last_reads, overwriting)]
            except (Unsupported, LamellaError):
                continue
        if len(row) == 1:
            return [row[0].operation]
        half = len(row) // 2
        first = self._segments(row[:half], end - len(row) + half, last_reads)
        return [*first, *self._segments(row[half:], end, last_reads)]

    def _build(
        self, row: Sequence[_PlannedOperation], end: int, last_reads: Mapping[str, int], overwriting: bool
    ) -> Segment:
        memory = {name: found for planned in row for name, found in planned.memory.items()}
        made = {item.name for planned in row for item in _flat(planned.operation.outputs)}
        read = {item.name: item for planned in row for item in _flat(planned.operation.inputs)}
        constants = {name: self._constants[name] for name in read if name in self._constants}
        inputs = {name: item for name, item in read.items() if name not in made and name not in constants}
        sizes = {name: self._size(name, *item) for name, item in memory.items()}
        outputs = {name: memory[name] for name in memory if name in made and last_reads.get(name, -1) >= end}
        states = {name: self._in_place[name] for name in made if name in self._in_place}
        states = states if len(row) == self._whole else {}
        undo = {name: name_temporary((name,), item.undo) for name, item in states.items()}
        saved = {undo[name]: item.saved_bytes for name, item in states.items()}
        outputs = {name: item for name, item in outputs.items() if name not in states}
        outputs |= {name: ((size,), BYTE) for name, size in saved.items()}
        sizes |= saved
        if any(name in inputs or name in outputs for name in self._layouts):
            raise Unsupported("a tensor that leaves it does not lie row by row")
        operations = []
        for planned in row:
            own = planned.constants()
            constants |= own
            sizes |= {name: array.nbytes for name, array in own.items()}
            operations.append(_in_state(planned.scheduled(), states))
        scheduler = Scheduler(sizes, self._writes, self._halos(memory))
        for name in (*inputs, *constants):
            scheduler.give(name)
        for item in operations:
            scheduler.add(item)
        whole = replace(scheduler.finish((*inputs, *constants), outputs), undo=frozenset(saved))
        if overwriting and not states:
            updates = {item.variable.name: item.value.name for item in self._updates}
            whole = update_in_place(whole, updates, self._writes.function)
            outputs = {name: item for name, item in outputs.items() if name in whole.outputs}
        nodes = tuple(planned.operation for planned in row)
        fixed = tuple(name for name in inputs if name in self._fixed)
        segment = Segment(nodes, inputs, outputs, self._machine, constants, fixed=fixed)
        segment.states = {item.state: (name, undo[name]) for name, item in states.items()}
        segment.updated = {
            item.variable.name: item.value.name
            for item in self._updates
            if item.variable.name in whole.overwritten
        }
        if states:
            taken_back = [item for item in operations if item.state]
            segment.restore = self._machine.compile(self._restoring(taken_back, states, sizes))
        return self._compile(whole, segment)

    def _restoring(
        self,
        operations: Sequence[ScheduledOperation],
        states: Mapping[str, InPlaceCalls],
        sizes: Mapping[str, int],
    ) -> LaunchList:
        """What gives states back what operations overwrote."""
        scheduler = Scheduler(sizes, self._writes)
        given: dict[str, None] = {}
        for item in operations:
            call = states[item.outputs[0]].restore
            names = [
                name_temporary(item.outputs, operand.name)
                if operand.is_temporary
                else item.tensors[operand.name, operand.item]
                for operand in call.operands
            ]
            given |= dict.fromkeys((item.state, *(name for name in names if name != item.outputs[0])))
        for name in given:
            scheduler.give(name)
        for item in operations:
            scheduler.add(replace(item, calls=(states[item.outputs[0]].restore,)))
        return scheduler.finish(given, ())

    def _halos(self, memory: Mapping[str, TensorShape]) -> dict[str, int]:
        """The padded tensors, each with a number that those share whose halos lie at the same places."""
        numbers: dict[object, int] = {}
        return {
            name: numbers.setdefault((memory[name], layout), len(numbers) + 1)
            for name, layout in self._layouts.items()
            if layout.is_padded and name in memory
        }

    def _size(self, name: str, shape: Sequence[int], dtype: DType) -> int:
        """The bytes of a tensor as it lies."""
        layout = self._layouts.get(name)
        return dtype.itemsize * (prod(shape) if layout is None else layout.size(shape))

    def _compile(self, whole: LaunchList, segment: Segment) -> Segment:
        first, second = hoist(whole, {*self._fixed, *segment.constants})
        parts = split(first)
        # Launches are proved on memory of their sizes, so what is far too much is refused before that.
        self._require_room(max((_touched(item) for item in (second, *parts)), default=0))
        changing = {name for name in segment.inputs if name not in self._fixed}
        second = replace(second, bound=frozenset(second.inputs.keys() - changing))
        segment.each = self._machine.compile(second)
        segment.each.stream(self._streams)
        segment.once = [self._once(item, segment.constants) for item in parts]
        brought = [name for name in segment.inputs if name not in self._fixed and name in whole.inputs]
        read = sum(whole.buffers[whole.inputs[name].buffer].size for name in brought)
        self._require_room(
            max(read + segment.bytes, *(item.launches.arena_bytes for item in segment.once), 0)
        )
        return segment

    def _require_room(self, size: int) -> None:
        if size > self._planner.most_bytes:
            raise Unsupported("it needs more memory than there may be")

    def _once(self, whole: LaunchList, constants: Mapping[str, Array]) -> OnceResult:
        """The result of launches that run once; that of equal ones for other extents, where there is one."""
        key = self._describe(whole, constants)
        found = self._results.get(key)
        if found is None:
            own = {name: constants[name] for name in whole.inputs if name in constants}
            inputs = tuple(name for name in whole.inputs if name not in own)
            sizes = {name: whole.buffers[name].size for name in whole.outputs}
            kept = {name: self._machine.keep(size) for name, size in sizes.items()}
            found = OnceResult(self._machine.compile(whole, once=True), inputs, kept, own, key)
            self._results[key] = found
        return found

    def _describe(self, whole: LaunchList, constants: Mapping[str, Array]) -> str:
        """A text that two lists share only where they compute the same: kernels by their text, constants by theirs."""
        names = {name: f"in {name}" for name in whole.inputs}
        for name in names.keys() & constants.keys():
            array = constants[name]
            names[name] = f"{array.dtype} {array.shape} {sha256(array.tobytes()).hexdigest()}"
        parts = [f"{names.get(name, name)} {buffer}" for name, buffer in whole.buffers.items()]
        for launch in whole.launches:
            text = "" if launch.kernel == FILL else self._writes.text(launch.kernel)
            places = [replace(item, buffer=names.get(item.buffer, item.buffer)) for item in launch.arguments]
            parts.append(f"{text} {places} {launch.groups}")
        return sha256("\n".join((*parts, *whole.outputs)).encode()).hexdigest()


def _touched(whole: LaunchList) -> int:
    """The bytes of the buffers of that launch which has the largest."""
    return max(
        (
            sum(whole.buffers[name].size for name in {item.buffer for item in launch.arguments})
            for launch in whole.launches
        ),
        default=0,
    )


def _in_state(item: ScheduledOperation, states: Mapping[str, InPlaceCalls]) -> ScheduledOperation:
    """An operation as it writes into a state, where it is one that does."""
    found = states.get(item.outputs[0]) if len(item.outputs) == 1 else None
    return item if found is None else replace(item, calls=found.calls, state=found.state)


class KernelWrites(Mapping[str, Sequence[bool]]):
    """For each kernel of a program, which of its parameters it may write; found when it is asked for."""

    def __init__(self, program: Program) -> None:
        self._functions = {item.name: item for item in program.functions}
        self._found: dict[str, list[bool]] = {}
        self._texts: dict[str, str] = {}

    def __getitem__(self, kernel: str) -> Sequence[bool]:
        if kernel not in self._found:
            function = self._functions[kernel]
            written = written_parameters(function)
            self._found[kernel] = [item.value.name in written for item in function.parameters]
        return self._found[kernel]

    def function(self, kernel: str) -> Function:
        """A kernel by its name."""
        return self._functions[kernel]

    def text(self, kernel: str) -> str:
        """The text of a kernel, whatever its name."""
        if kernel not in self._texts:
            self._texts[kernel] = write(Program((replace(self._functions[kernel], name="kernel"),)))
        return self._texts[kernel]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)


@dataclass(frozen=True, slots=True)
class _PlannedOperation:
    """An operation of a row with what it does, and the memory of its tensors."""

    operation: Operation
    step: KernelStep
    memory: Mapping[str, TensorShape]

    def constants(self) -> dict[str, Array]:
        """The constants of its operator, by names of their own."""
        found: dict[str, Array] = {}
        for name, value in self.step.constants.items():
            for number, array in enumerate(value if isinstance(value, tuple) else (value,)):
                found[self._constant(name, number)] = np.ascontiguousarray(array).reshape(array.shape)
        return found

    def _constant(self, name: str, number: int) -> str:
        # Operations that differ in names alone share their step, and so the constants.
        return f"{id(self.step)}\n{name}\n{number}"

    def scheduled(self) -> ScheduledOperation:
        """The operation for a scheduler: the tensor of each operand by its name."""
        operation, step = self.operation, self.step
        names: dict[OperandKey, str] = {}
        sides = (
            *zip(step.inputs, operation.inputs, strict=True),
            *zip((item.name for item in step.outputs), operation.outputs, strict=True),
        )
        for name, argument in sides:
            for number, item in enumerate(tensors(argument)):
                names[name, number if isinstance(argument, tuple) else None] = item.name
        for name, value in step.constants.items():
            for number, _ in enumerate(value if isinstance(value, tuple) else (value,)):
                key = number if isinstance(value, tuple) else None
                names[name, key] = self._constant(name, number)
        outputs = tuple(item.name for item in _flat(operation.outputs))
        return ScheduledOperation(operation.operator, step.calls, names, outputs, operation.origin)


def _flat(arguments: Iterable[Argument]) -> Iterator[Tensor]:
    return (item for argument in arguments for item in tensors(argument))
