"""Graphs on the CPU: each operation by its kernels, what has none by the reference."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lamella.backend.reference import Executable
from lamella.backend.reference.nodes.machine import Machine
from lamella.backend.reference.nodes.operators import (
    Held,
    Operators,
    Prepared,
    Values,
    dtypes_of,
    used_values,
)
from lamella.base.arrays import Array, DType
from lamella.base.dim import substitute, symbols
from lamella.base.dtype import ElementType
from lamella.base.limits import DEFAULT, Limits
from lamella.base.placement import REFERENCE, OperationPlacement
from lamella.graph.binding import signature
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Pack, tensors
from lamella.graph.rewrite import extents, members
from lamella.kernels.nodes import KernelCall, KernelGraph, KernelOperand
from lamella.lang.skriptnd.rules.graphs import NO_KERNEL
from lamella.ops.problem import Fault

Launch = Callable[[str, Sequence[object], int], None]
"""Runs a kernel by its name on arguments, for a number of work-groups."""
MOST_READY = 16
"""How many sets of extents stay ready."""
NO_VALUE = "a step of its kernels had no value"
STORED = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
"""The types in which arrays of other integers and of bool are handed over, bit for bit."""


def compile_graph(
    program: KernelGraph,
    launch: Launch,
    *,
    seed: int = 0,
    dtype: str = "f32",
    quantized: bool = False,
    limits: Limits = DEFAULT,
) -> KernelExecutable:
    """Make a graph of known extents callable whose kernels are launched by a function."""

    def specialise(extents: Mapping[str, int]) -> Specialised:
        return Specialised(program, launch)

    return KernelExecutable(program.model, specialise, seed, dtype, quantized, limits)


@dataclass(frozen=True, slots=True)
class Specialised:
    """A graph whose open extents have numbers, with what launches its kernels.

    A `strict` one refuses to run an operation on the reference that has a kernel.
    """

    program: KernelGraph
    launch: Launch
    strict: bool = False


Specialise = Callable[[Mapping[str, int]], Specialised]
"""Gives the open extents of a graph their numbers, and its operations their kernels."""


class KernelExecutable(Executable):
    """Runs a model by kernels for the extents of each call; those of the last few sets of extents stay ready."""

    def __init__(
        self,
        model: Model,
        specialise: Specialise,
        seed: int = 0,
        dtype: str = "f32",
        quantized: bool = False,
        limits: Limits = DEFAULT,
    ) -> None:
        super().__init__(model, seed, dtype, quantized, limits)
        self._specialise = specialise
        self._ready: OrderedDict[tuple[int | None, ...], tuple[Machine, KernelOperators]] = OrderedDict()
        self._last: KernelOperators | None = None
        found = members(model.graph.inputs)
        names = {symbol.name for item in found for extent in extents(item) for symbol in symbols(extent)}
        self.open_extents = tuple(sorted(names))
        """The extents that a call tells."""
        if not self.open_extents:
            self.machine_for({})

    @property
    def placement(self) -> list[OperationPlacement]:
        """Where each operation ran in the last call; nothing before the call that tells the open extents."""
        return [] if self._last is None else self._last.placement()

    def machine_for(self, extents: Mapping[str, int]) -> Machine:
        """The kernels for these extents, made where no recent call had them."""
        key = tuple(extents.get(name) for name in self.open_extents)
        if key not in self._ready:
            known = {name: extents[name] for name in self.open_extents if name in extents}
            operators = KernelOperators(self.machine, self._specialise(known))
            machine = replace(self.machine, operators=operators, rows={}, bodies={}, quantizers={})
            while len(self._ready) >= MOST_READY:
                self._ready.popitem(last=False)
            self._ready[key] = machine, operators
        self._ready.move_to_end(key)
        machine, self._last = self._ready[key]
        self._last.begin()
        return machine


@dataclass(frozen=True, slots=True)
class Step:
    """An operation of known shapes: the names of its inputs, its constants, room for its outputs, its kernels."""

    inputs: tuple[str, ...]
    constants: Mapping[str, Array | tuple[Array, ...]]
    rooms: tuple[tuple[str, tuple[int, ...], DType], ...]
    calls: tuple[KernelCall, ...]


class KernelOperators(Operators):
    """Runs operations by their kernels; a step without a value makes the reference run it, which tells why."""

    def __init__(self, machine: Machine, specialised: Specialised) -> None:
        super().__init__(machine.library, machine.storage, machine.limits)
        self._program, self._launch = specialised.program, specialised.launch
        self._strict = specialised.strict
        self._calls = specialised.program.calls
        self._steps: dict[int, Step | None] = {}
        """What operations of known shapes do, by the identity of what `prepare` holds for them."""
        self._faulty: set[object] = set()
        """Operations that the reference computed although they have kernels."""

    def placement(self) -> list[OperationPlacement]:
        """Where each operation of the graph runs."""
        found = []
        for node, place in self._program.placed():
            late = isinstance(node, Operation) and signature(node) in self._faulty
            found.append(OperationPlacement(place.operation, REFERENCE, NO_VALUE) if late else place)
        return found

    def run(
        self, operation: Operation, inputs: Sequence[Held], values: Values, random: np.random.Generator
    ) -> list[Held] | None:
        """The outputs of an operation; what does not depend on the numbers is found once."""
        found = self.prepare(operation)
        if id(found) not in self._steps:
            self._steps[id(found)] = self._plan(operation, found, used_values(operation, values))
        step = self._steps[id(found)]
        results = None if step is None else self._run_step(step, inputs)
        return super().run(operation, inputs, values, random) if results is None else results

    def begin(self) -> None:
        """Forget what the last call found."""
        self._faulty.clear()

    def _tell(self, operation: Operation) -> None:
        """Remember that the reference computed what has kernels: a step of them had no value, yet nothing was wrong."""
        if self._strict:
            raise Fault(NO_KERNEL, reason=NO_VALUE)
        self._faulty.add(signature(operation))

    def _plan(self, operation: Operation, found: Prepared, values: Values) -> Step | None:
        """The step of an operation; None where the numbers or the extents of a run have a say in it."""
        instance, calls = found.instance, self._calls.get(signature(operation))
        declared = [item.shape or () for item in instance.outputs if item.items is None]
        shapes = [[substitute(size, values) for size in shape] for shape in declared]
        known = all(isinstance(size, int) for shape in shapes for size in shape)
        if calls is None or instance.checks or not known or len(shapes) < len(instance.outputs):
            return None
        dtypes = [self.storage.dtype(item.element) for item in instance.outputs]
        given = [self.storage.dtype(item) for item in _elements(operation)]
        real = self.storage.real([*given, *dtypes])
        try:
            constants = self.tensors(instance, [None] * len(instance.inputs), values)
            formulas = found.specialise(values)
            outputs = [self.allocate(item, formulas, real, values) for item in instance.outputs]
        except Fault:
            return None
        arrays = [item for item in outputs if isinstance(item, np.ndarray)]
        if [item.dtype for item in arrays] != dtypes:
            return None
        rooms = tuple(
            (item.name, array.shape, array.dtype)
            for item, array in zip(instance.outputs, arrays, strict=True)
        )
        return Step(tuple(name for name, _ in instance.inputs), constants, rooms, calls)

    def _run_step(self, step: Step, inputs: Sequence[Held]) -> list[Held] | None:
        """The outputs of a step; None where one had no value."""
        held = {name: item for name, item in zip(step.inputs, inputs, strict=True) if item is not None}
        held |= step.constants
        outputs: list[Held] = []
        for name, shape, dtype in step.rooms:
            held[name] = room = np.zeros(shape, dtype)
            outputs.append(room)
        return outputs if all(self._run(call, held) for call in step.calls) else None

    def run_formulas(
        self, operation: Operation, found: Prepared, inputs: Sequence[Held], values: Values
    ) -> list[Held]:
        """The outputs of an operation that has formulas."""
        calls = self._calls.get(signature(operation))
        if calls is None:
            return super().run_formulas(operation, found, inputs, values)
        instance, formulas = found.instance, found.specialise(values)
        held = self.tensors(instance, inputs, values)
        stored = [self.storage.dtype(item.element) for item in instance.outputs]
        real = self.storage.real([*dtypes_of(inputs), *stored])
        for declared in instance.outputs:
            held[declared.name] = self.allocate(declared, formulas, real, values)
        if not all(self._run(call, held) for call in calls):
            results = super().run_formulas(operation, found, inputs, values)
            self._tell(operation)
            return results
        return [self.finish(held[item.name], item) for item in instance.outputs]

    def _run(self, call: KernelCall, held: Mapping[str, Array | tuple[Array, ...]]) -> bool:
        """Launch a kernel; whether every step had a value."""
        arguments: list[object] = [_argument(held, item) for item in call.operands]
        fault = np.zeros(1, np.int32)
        if call.has_fault:
            arguments.append(fault)
        self._launch(call.kernel, arguments, call.groups)
        return not fault[0]


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
    dense = np.require(array, requirements=("C", "A"))
    stored = STORED.get(operand.element)
    if stored is not None and dense.dtype != stored:
        dense = dense.view(stored)
    return dense.reshape(operand.shape[::-1]).T
