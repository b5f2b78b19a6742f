"""Graphs on the CPU: each operation by its kernels, what has none by the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lamella.backend.reference import Executable, compile_model
from lamella.backend.reference.nodes.operators import Held, Operators, Prepared, Values, dtypes_of
from lamella.backend.reference.storage import Storage
from lamella.base.arrays import Array, DType
from lamella.base.dtype import ElementType
from lamella.base.limits import DEFAULT, Limits
from lamella.graph.binding import signature
from lamella.graph.nodes import Operation, Pack, tensors
from lamella.kernels.nodes import Call, KernelGraph, Operand
from lamella.ops.library import Library
from lamella.ops.problem import Fault

Launch = Callable[[str, Sequence[object], int], None]
"""Runs a kernel by its name on arguments, for a number of work-groups."""
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
) -> Executable:
    """Make a graph callable whose kernels are launched by a function."""

    def operators(library: Library, storage: Storage, limits: Limits) -> Operators:
        return KernelOperators(library, storage, limits, program.calls, launch)

    return compile_model(
        program.model, seed=seed, dtype=dtype, quantized=quantized, limits=limits, operators=operators
    )


@dataclass(frozen=True, slots=True)
class Step:
    """An operation of known shapes: the names of its inputs, its constants, room for its outputs, its kernels."""

    inputs: tuple[str, ...]
    constants: Mapping[str, Array | tuple[Array, ...]]
    rooms: tuple[tuple[str, tuple[int, ...], DType], ...]
    calls: tuple[Call, ...]


class KernelOperators(Operators):
    """Runs operations by their kernels; a step without a value makes the reference run it, which tells why."""

    def __init__(
        self,
        library: Library,
        storage: Storage,
        limits: Limits,
        calls: Mapping[object, tuple[Call, ...]],
        launch: Launch,
    ) -> None:
        super().__init__(library, storage, limits)
        self._calls = calls
        self._launch = launch
        self._steps: dict[int, Step | None] = {}
        """What operations of known shapes do, by the identity of what `prepare` holds for them."""

    def run(
        self, operation: Operation, inputs: Sequence[Held], values: Values, random: np.random.Generator
    ) -> list[Held] | None:
        """The outputs of an operation; what does not depend on the numbers is found once."""
        found = self.prepare(operation)
        if id(found) not in self._steps:
            self._steps[id(found)] = self._plan(operation, found)
        step = self._steps[id(found)]
        results = None if step is None else self._run_step(step, inputs)
        return super().run(operation, inputs, values, random) if results is None else results

    def _plan(self, operation: Operation, found: Prepared) -> Step | None:
        """The step of an operation; None where the numbers or the extents of a run have a say in it."""
        instance, calls = found.instance, self._calls.get(signature(operation))
        shapes = [item.shape or () for item in instance.outputs if item.items is None]
        known = all(isinstance(size, int) for shape in shapes for size in shape)
        if calls is None or instance.checks or not known or len(shapes) < len(instance.outputs):
            return None
        dtypes = [self.storage.dtype(item.element) for item in instance.outputs]
        given = [self.storage.dtype(item) for item in _elements(operation)]
        real = self.storage.real([*given, *dtypes])
        try:
            constants = self.tensors(instance, [None] * len(instance.inputs), {})
            outputs = [self.allocate(item, found.specialise({}), real, {}) for item in instance.outputs]
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
        for call in calls:
            if not self._run(call, held):
                return super().run_formulas(operation, found, inputs, values)
        return [self.finish(held[item.name], item) for item in instance.outputs]

    def _run(self, call: Call, held: Mapping[str, Array | tuple[Array, ...]]) -> bool:
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


def _argument(held: Mapping[str, Array | tuple[Array, ...]], operand: Operand) -> Array:
    """An array as a kernel takes it: no copy where it is dense and aligned, dimensions in the order of the modes."""
    found = held[operand.name]
    array = found[operand.item or 0] if isinstance(found, tuple) else found
    dense = np.require(array, requirements=("C", "A"))
    stored = STORED.get(operand.element)
    if stored is not None and dense.dtype != stored:
        dense = dense.view(stored)
    return dense.reshape(operand.shape[::-1]).T
