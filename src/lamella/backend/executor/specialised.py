"""Operations by the kernels of one set of extents: as segments, one by one, or by formulas what has none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from weakref import proxy

import numpy as np

from lamella.backend.arguments import dtype_of
from lamella.backend.executor.cutting import KernelStep, SegmentCutter, StepOutput
from lamella.backend.executor.run import last_reads, make_constant
from lamella.backend.executor.segments import ListMachine, OnceResults, Segment
from lamella.backend.formula.storage import TensorValue, known_shape
from lamella.backend.reference.operators import (
    BoundOperation,
    CheckedCall,
    FormulaRunner,
    Values,
    dtypes_of,
    used_values,
)
from lamella.base.arrays import Array, DType, strided
from lamella.base.dim import substitute
from lamella.base.dtype import ElementType
from lamella.base.errors import Found, Unsupported
from lamella.base.gc import gc_paused
from lamella.base.placement import REFERENCE, OperationPlacement
from lamella.base.records import dataclass
from lamella.graph.insert_calls import CALLS
from lamella.graph.nodes import Constant, Node, Operation, Pack, Tensor, tensors
from lamella.graph.rewrite import members
from lamella.kernels.nodes import KernelCall, KernelGraph, KernelOperand, find_temporaries
from lamella.lang.skriptnd.rules.graphs import NO_KERNEL, TOO_MUCH_MEMORY
from lamella.ops.fault import Fault
from lamella.ops.instance import Instance
from lamella.ops.library import Library
from lamella.ops.specialise import TermSpecialiser

Launch = Callable[[str, Sequence[object], int], None]
"""Runs a kernel by its name on arguments, for a number of work-groups."""
NO_VALUE = "a step of its kernels had no value"
STORED = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
"""The types in which arrays of other integers and of bool are handed over, bit for bit."""


@dataclass(frozen=True, slots=True)
class Specialised:
    """A graph whose open extents have numbers, with what launches its kernels.

    A `strict` one refuses to run an operation on the reference that has a kernel.
    """

    program: KernelGraph
    launch: Launch
    strict: bool = False
    machine: ListMachine | None = None
    """What runs launch lists; without one each operation is launched by itself."""
    replaces: tuple[Node, ...] = ()
    """The nodes of the graph that it was made from, whose place its own take."""
    compiled: int = 0
    """How many kernels machine code was made for, where others are shared with sets of extents before."""
    keep: Callable[[Segment, list[OperationPlacement]], None] | None = None
    """Keeps the compiled form of a graph that is one segment."""


class SpecialisedRunner:
    """Runs operations by the kernels of one set of extents, and by formulas what has none.

    Where a step of a kernel had no value, the formulas run the operation: they say why, if anything is wrong.
    """

    def __init__(
        self,
        formulas: FormulaRunner,
        specialised: Specialised,
        quantized: bool = False,
        results: OnceResults | None = None,
    ) -> None:
        self._formulas = formulas
        self._quantized = quantized
        self._program, self._launch = specialised.program, specialised.launch
        self._strict, self._replaces = specialised.strict, specialised.replaces
        self._keep = specialised.keep
        self._calls = specialised.program.calls
        self.tuning = specialised.program.tuning
        """What was measured to choose kernels."""
        self.compiled = specialised.compiled
        """How many kernels machine code was made for, where others are shared with sets of extents before."""
        self._steps: dict[tuple[int, object], KernelStep | None] = {}
        """What operations of known shapes do, by the identity of their bound operation, which `formulas` keeps."""
        self._without_value: set[object] = set()
        """Operations that the formulas computed although they have kernels."""
        self._rows: dict[int, Sequence[Node | Segment]] = {}
        """Rows of nodes that are cut into segments, by identity: the model keeps them alive."""
        self._cutter: SegmentCutter | None = None
        self._machine = specialised.machine
        if specialised.machine is not None:
            self._cutter = self._make_cutter(
                specialised.machine, OnceResults() if results is None else results
            )

    def _make_cutter(self, machine: ListMachine, results: OnceResults) -> SegmentCutter:
        program, storage = self._program, self._formulas.storage
        constants: dict[str, Array] = {}
        for item in program.model.graph.constants:
            with suppress(Fault):  # one that only the run knows is made there
                constants[item.tensor.name] = make_constant(item, storage, program.extents)
        # Not kept alive by what it keeps: else weights and machine code would wait for a collection of garbage.
        return SegmentCutter(program, machine, proxy(self), constants, results)

    def settle(self) -> None:
        """Bring states home that launches updated elsewhere."""
        if self._machine is not None:
            self._machine.settle()

    @property
    def most_bytes(self) -> int:
        """How much memory a run may use."""
        return self._formulas.storage.most_bytes

    @property
    def library(self) -> Library:
        """The operators of the graph, those that kernels were made for among them."""
        return self._program.model.library

    def constants_of(self, nodes: Sequence[Node]) -> Sequence[Constant]:
        """The constants that what stands in place of some nodes reads beside those of the graph."""
        return self._program.model.graph.constants if nodes is self._replaces else ()

    def cut(self, nodes: Sequence[Node], kept: Collection[str]) -> Sequence[Node | Segment]:
        """The nodes in order, with segments for those that launch lists run."""
        if self._cutter is None or not nodes:
            return nodes
        key = id(nodes)
        if key not in self._rows:
            # The nodes of the whole graph may have copies in them, for tensors that lie in another way inside.
            whole = self._program.model.graph.nodes if nodes is self._replaces else nodes
            with gc_paused():
                found = self._rows[key] = self._cutter.cut(whole, last_reads(whole, kept))
            if self._keep is not None and nodes is self._replaces and len(found) == 1:
                (segment,) = found
                if isinstance(segment, Segment) and set(kept) <= {
                    *segment.outputs,
                    *segment.in_place.values(),
                }:
                    self._keep(segment, self.placement())
        return self._rows[key]

    def memory_of(self, tensor: Tensor) -> tuple[tuple[int, ...], DType] | None:
        """The memory of a tensor whose shape the extents of the inputs tell, and which nothing quantises."""
        if self._quantized and tensor.quantization is not None:
            return None
        try:
            return known_shape(tensor.shape, self._program.extents), self._formulas.storage.dtype(
                tensor.element
            )
        except Fault:
            return None

    def plan_step(self, operation: Operation) -> KernelStep | None:
        """The step of an operation for the extents of the inputs; none of one that calls what stands outside."""
        if operation.operator in CALLS:
            return None
        try:
            bound = self._formulas.prepare(operation)
        except (Fault, Found):
            return None
        return self._planned(operation, bound, self._program.extents)

    def _planned(self, operation: Operation, bound: BoundOperation, values: Values) -> KernelStep | None:
        key = id(bound), self._program.key(operation)
        if key not in self._steps:
            self._steps[key] = self._plan(operation, bound, used_values(operation, values))
        return self._steps[key]

    def begin(self) -> None:
        """Forget where the operations of the last call ran."""
        self._without_value.clear()

    def placement(self) -> list[OperationPlacement]:
        """Where each operation of the graph runs."""
        places = []
        for node, place in self._program.placed():
            late = isinstance(node, Operation) and self._program.key(node) in self._without_value
            places.append(OperationPlacement(place.operation, REFERENCE, NO_VALUE) if late else place)
        return places

    def run(
        self,
        operation: Operation,
        inputs: Sequence[TensorValue],
        values: Values,
        random: np.random.Generator,
    ) -> list[TensorValue] | None:
        """The outputs of an operation; what does not depend on the numbers is found once."""
        bound = self._formulas.prepare(operation)
        step = self._planned(operation, bound, values)
        lies = any(
            item.name in self._program.layouts for item in members((*operation.inputs, *operation.outputs))
        )
        results = None if step is None or lies else self._run_step(step, inputs)
        if results is not None:
            return results
        call = self._formulas.check(operation, inputs, values)
        key = self._program.key(call.operation)
        calls = self._calls.get(key)
        if call.kind == "lower" and calls is not None and not lies:
            return self._run_calls(call, calls, inputs)
        if calls is not None:
            self._without_value.add(key)
        return self._formulas.run_checked(call, inputs, random)

    def _plan(self, operation: Operation, bound: BoundOperation, values: Values) -> KernelStep | None:
        """The step of an operation; None where the numbers or the extents of a run have a say in it."""
        instance, calls = bound.instance, self._calls.get(self._program.key(operation))
        if calls is None or not _is_known(instance, values):
            return None
        storage = self._formulas.storage
        dtypes = [storage.dtype(item.element) for item in instance.outputs]
        real = storage.real([*(storage.dtype(item) for item in _elements(operation)), *dtypes])
        try:
            constants = self._formulas.tensors(instance, [None] * len(instance.inputs), values)
            formulas = bound.specialise(values)
            allocated = [self._formulas.allocate(item, formulas, real, values) for item in instance.outputs]
        except Fault:
            return None
        outputs: list[StepOutput] = []
        for declared, value, dtype in zip(instance.outputs, allocated, dtypes, strict=True):
            shapes = tuple(item.shape for item in (value if isinstance(value, tuple) else (value,)))
            if not _are_stored(calls, declared.name, dtype):
                return None
            outputs.append(StepOutput(declared.name, shapes, dtype, isinstance(value, tuple)))
        return KernelStep(tuple(name for name, _ in instance.inputs), constants, tuple(outputs), calls)

    def _run_step(self, step: KernelStep, inputs: Sequence[TensorValue]) -> list[TensorValue] | None:
        """The outputs of a step; None where one had no value."""
        held = {name: item for name, item in zip(step.inputs, inputs, strict=True) if item is not None}
        held |= step.constants
        outputs: list[TensorValue] = []
        for item in step.outputs:
            arrays = tuple(np.zeros(shape, item.dtype) for shape in item.shapes)
            held[item.name] = arrays if item.is_pack else arrays[0]
            outputs.append(held[item.name])
        return outputs if self._run_all(step.calls, held) else None

    def _run_calls(
        self, call: CheckedCall, calls: Sequence[KernelCall], inputs: Sequence[TensorValue]
    ) -> list[TensorValue]:
        """The outputs of an operation whose shapes only this run tells."""
        formulas, instance, values = self._formulas, call.bound.instance, call.values
        held = formulas.tensors(instance, inputs, values)
        dtypes = [formulas.storage.dtype(item.element) for item in instance.outputs]
        real = formulas.storage.real([*dtypes_of(inputs), *dtypes])
        for declared, dtype in zip(instance.outputs, dtypes, strict=True):
            room = formulas.allocate(declared, call.bound.specialise(values), real, values)
            stored = formulas.finish(room, declared)
            written = _are_stored(calls, declared.name, dtype)
            held[declared.name] = stored if written and stored is not None else room
        if self._run_all(calls, held):
            return [formulas.finish(held[item.name], item) for item in instance.outputs]
        results = formulas.run_formulas(call, inputs)
        # The formulas found nothing wrong where the kernels had no value.
        if self._strict:
            raise Fault(NO_KERNEL, reason=NO_VALUE)
        self._without_value.add(self._program.key(call.operation))
        return results

    def _temporaries(
        self, calls: Sequence[KernelCall], held: Iterable[Array | tuple[Array, ...]]
    ) -> dict[str, Array]:
        """Memory that the kernels of an operation share with each other alone, where there is room beside the rest."""
        operands = find_temporaries(calls)
        types = {name: dtype_of(item.element) for name, item in operands.items()}
        needed = sum(item.reach * types[name].itemsize for name, item in operands.items())
        needed += sum(part.nbytes for item in held for part in (item if isinstance(item, tuple) else (item,)))
        limit = self._formulas.storage.most_bytes
        if operands and needed > limit:
            raise Fault(TOO_MUCH_MEMORY, needed=needed, limit=limit)
        return {name: np.zeros(item.reach, types[name]) for name, item in operands.items()}

    def _run_all(self, calls: Sequence[KernelCall], held: Mapping[str, Array | tuple[Array, ...]]) -> bool:
        """Launch kernels one behind the other; whether every step had a value and all stay in their memory."""
        try:
            room = {**held, **self._temporaries(calls, held.values())}
            return all(self._run(item, room) for item in calls)
        except Unsupported:
            return False

    def _run(self, call: KernelCall, held: Mapping[str, Array | tuple[Array, ...]]) -> bool:
        """Launch a kernel; whether every step had a value."""
        arguments: list[object] = [_argument(held, item) for item in call.operands]
        fault = np.zeros(1, np.int32)
        if call.has_fault:
            arguments.append(fault)
        self._launch(call.kernel, arguments, call.groups)
        return not fault[0]


def _is_known(instance: Instance, values: Values) -> bool:
    """Whether extents alone decide the shapes of the outputs and the assertions, and these hold."""
    shapes = [shape for item in instance.outputs for shape in item.items or (item.shape or (),)]
    if any(item.size is not None for item in instance.outputs):
        return False
    if not all(isinstance(substitute(size, values), int) for shape in shapes for size in shape):
        return False
    return all(TermSpecialiser(values).scalar(item.condition) is True for item in instance.checks)


def _are_stored(calls: Sequence[KernelCall], name: str, dtype: DType) -> bool:
    """Whether kernels hold an output in the type in which it is stored, and not in that which they compute with."""
    operands = (item for call in calls for item in call.operands if item.name == name)
    return all(dtype_of(item.element).itemsize == dtype.itemsize for item in operands)


def _elements(operation: Operation) -> list[ElementType]:
    """The element types of what goes into an operation."""
    packs = [item.element for item in operation.inputs if isinstance(item, Pack)]
    return [
        *packs,
        *(part.element for item in operation.inputs if not isinstance(item, Pack) for part in tensors(item)),
    ]


def _argument(held: Mapping[str, Array | tuple[Array, ...]], operand: KernelOperand) -> Array:
    """An array as a kernel takes it: no copy where it is dense and aligned, dimensions in the order of the modes."""
    found = held[operand.name]
    array = found[operand.item or 0] if isinstance(found, tuple) else found
    # Row-major, then reversed and transposed: the first mode of a memref is the one that runs fastest.
    dense = np.require(array, requirements=("C", "A"))
    stored = STORED.get(operand.element)
    if stored is not None and dense.dtype != stored:
        dense = dense.view(stored)
    if operand.strides is None:
        return dense.reshape(operand.shape[::-1]).T
    if operand.reach > dense.size:  # no proof of the kernel sees what lies behind the array
        raise Unsupported(f"'{operand.name}' would leave its memory")
    steps = [stride * dense.itemsize for stride in operand.strides]
    return strided(dense.reshape(-1)[operand.offset :], operand.shape, steps, dense.flags.writeable)
