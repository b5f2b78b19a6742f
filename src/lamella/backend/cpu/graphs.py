"""Graphs on the CPU: each operation by its kernels, what has none by the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lamella.backend.reference import Executable, compile_model
from lamella.backend.reference.nodes.operators import Held, Operators, Prepared, Values, dtypes_of
from lamella.backend.reference.storage import Storage
from lamella.base.arrays import Array
from lamella.base.limits import DEFAULT, Limits
from lamella.graph.binding import signature
from lamella.graph.nodes import Operation
from lamella.kernels.nodes import Call, KernelGraph, Operand
from lamella.ops.library import Library

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


def _argument(held: Mapping[str, Array | tuple[Array, ...]], operand: Operand) -> Array:
    """An array as a kernel takes it: no copy, its dimensions in the order of the modes."""
    found = held[operand.name]
    array = found[operand.item or 0] if isinstance(found, tuple) else found
    dense = np.ascontiguousarray(array)
    stored = STORED.get(operand.element)
    if stored is not None and dense.dtype != stored:
        dense = dense.view(stored)
    return dense.reshape(operand.shape[::-1]).T
