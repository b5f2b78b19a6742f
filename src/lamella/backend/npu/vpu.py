"""The VPU: `compute` tasks as kernels of the tensor language, by its letter.

Three ways give the same bytes. The interpreter is the judge. A `foreach` over arrays (`lanes.py`) takes its arithmetic
for many indices at a time. A kernel that holds only instructions whose result the language fixes to the bit may run as
machine code where it has much to do; one with functions such as `exp`, which the interpreter computes in double and
rounds once, never does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lamella.backend import cpu, interpreter
from lamella.backend.arguments import dtype_of, written_parameters
from lamella.backend.named import NamedKernels
from lamella.backend.npu.lanes import run_in_lanes, runs_in_lanes
from lamella.backend.npu.opcodes import OpcodeInput, OpcodeReport, apply
from lamella.backend.npu.opcodes.call import element_of
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.limits import DEFAULT, Limits
from lamella.base.optional import need
from lamella.base.source import Source
from lamella.kernels.operation_count import count_operations
from lamella.kernels.rewrite import walk
from lamella.kernels.row_wise import row_operands
from lamella.lang.nem.check.kernels import COMPUTE, GROUPS, fit
from lamella.lang.nem.resolved import AttributeValue, ComputeKernel, KernelParameter, Task, TensorType
from lamella.lang.nem.rules import KERNEL_FAULT
from lamella.lang.nem.words import ELEMENTS
from lamella.lang.tensor import check, parse, write
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    Barrier,
    Builtin,
    Cast,
    Compare,
    Constant,
    Expand,
    For,
    Foreach,
    Function,
    Fuse,
    If,
    Instruction,
    LifetimeStop,
    Load,
    Memref,
    Parameter,
    Program,
    Scalar,
    SizeOf,
    Store,
    Subview,
    Yield,
)
from lamella.plan.stcb.nodes import bad_stream

EXACT = (
    *(Alloca, Arith, Barrier, Builtin, Cast, Compare, Constant, Expand, For, Foreach, Fuse, If, LifetimeStop),
    *(Load, SizeOf, Store, Subview, Yield),
)
"""Instructions whose result the language fixes to the bit."""
FAULT = "fault"
"""The output of one element in which a kernel says that a step has no value."""
WORTH_COMPILING = 1 << 14
"""Operations of a launch that are worth machine code: it takes a tenth of a second to make."""


# --- kernels of a text ---------------------------------------------------------------------------------------


def kernels_of(program: Program) -> dict[str, ComputeKernel]:
    """The kernels of a checked program, each as a text of its own."""
    return {function.name: _kernel(function) for function in program.functions}


def _kernel(function: Function) -> ComputeKernel:
    written = written_parameters(function)
    rows = row_operands(function)
    parameters = tuple(
        replace(_parameter(item, item.value.name in written), by_rows=item.value.name in rows)
        for item in function.parameters
    )
    return ComputeKernel(function.name, write(Program((function,))), parameters, _problem(function))


def _parameter(item: Parameter, written: bool) -> KernelParameter:
    if isinstance(item.type, Memref):
        return KernelParameter(item.value.name, item.type.element, item.type.shape, item.type.stride, written)
    return KernelParameter(item.value.name, str(item.type))


def _problem(function: Function) -> str:
    """Why a function cannot be a task."""
    for item in function.parameters:
        if not isinstance(item.type, Memref | Scalar):
            return f"%{item.value.name} is neither a memref nor a scalar"
        if isinstance(item.type, Memref) and item.type.element not in ELEMENTS:
            return f"no region has elements of type {item.type.element} (%{item.value.name})"
        if isinstance(item.type, Scalar) and item.type.name in ("c32", "c64"):
            return f"no attribute is a complex number (%{item.value.name})"
    return ""


@lru_cache(maxsize=1024)
def _function(text: str) -> Function:
    """The one function of the text of a kernel; a LamellaError says what is wrong with it."""
    parsed = parse(Source("kernel", text))
    found = errors(parsed.findings) or errors(check(parsed.program))
    if found:
        raise LamellaError(found)
    if len(parsed.program.functions) != 1:
        raise bad_stream("the text of a kernel is not one function")
    return parsed.program.functions[0]


def kernel_of_text(name: str, text: str) -> ComputeKernel:
    """The kernel of a stored text; a stream whose text is not canonical or not that of the name is refused."""
    kernel = _kernel(_function(text))
    if (kernel.name, kernel.text) != (name, text):
        raise bad_stream(f"the text of kernel '{name}' is another one's, or not canonical")
    return kernel


def count_work(task: Task, kernel: ComputeKernel) -> int | None:
    """The scalar operations of a task that fits its kernel; None where the text does not tell."""
    shapes: dict[str, tuple[int, ...]] = {}
    memrefs = [item for item in kernel.parameters if item.shape is not None]
    for parameter, region in zip(memrefs, (*task.inputs, *task.outputs), strict=True):
        place = None if region.type is None else fit(parameter, region.type)
        if place is None:
            return None
        shapes[parameter.name] = place[0]
    scalars = {name: value for name, value in task.attributes.items() if isinstance(value, int)}
    groups = scalars.get(GROUPS, 1)
    return count_operations(_function(kernel.text), shapes, scalars, groups)


# --- execution -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Launchable:
    """A kernel with what runs it."""

    kernel: ComputeKernel
    function: Function
    judge: NamedKernels
    exact: bool
    lanes: bool


class Vpu:
    """Runs the tasks of a plan: `compute` by its kernels, every other opcode as it is defined."""

    def __init__(self, kernels: Mapping[str, ComputeKernel], limits: Limits = DEFAULT) -> None:
        self.kernels = kernels
        self.limits = limits
        self._ready: dict[str, _Launchable] = {}
        self._fast: dict[str, NamedKernels | None] = {}

    def apply(
        self,
        opcode: str,
        inputs: Sequence[OpcodeInput],
        outputs: Sequence[TensorType],
        attributes: Mapping[str, AttributeValue],
        report: OpcodeReport,
    ) -> list[Array]:
        """The results of a task, one array per output."""
        name = str(attributes.get("op", ""))
        if opcode != COMPUTE or name not in self.kernels:
            return apply(opcode, inputs, outputs, attributes, report)
        found = self._find(name)
        memrefs = [item for item in found.kernel.parameters if item.shape is not None]
        types = [*(item.type for item in inputs), *outputs]
        arrays = [_lay_out(parameter, kind) for parameter, kind in zip(memrefs, types, strict=True)]
        for item, array in zip(inputs, arrays, strict=False):
            array[...] = item.array.view(array.dtype).reshape(-1).reshape(array.shape[::-1]).transpose()
        groups = attributes.get(GROUPS, 1)
        given = dict(zip((item.name for item in memrefs), arrays, strict=True))
        arguments = [given.get(item.name, attributes.get(item.name)) for item in found.kernel.parameters]
        count = groups if isinstance(groups, int) else 1
        way = self._way(found, given, attributes)
        if way is not None or not run_in_lanes(found.function, arguments, count, self.limits):
            for array in arrays[len(inputs) :]:
                array[...] = 0
            (way or found.judge).call(name, arguments, count)
        fault = given.get(FAULT)
        if fault is not None and fault.size == 1 and fault.item():
            report(KERNEL_FAULT, name=name)
        results = arrays[len(inputs) :]
        return [_take(array, kind) for array, kind in zip(results, outputs, strict=True)]

    def _find(self, name: str) -> _Launchable:
        if name not in self._ready:
            kernel = self.kernels[name]
            function = _function(kernel.text)
            judge = interpreter.compile_program(Program((function,)), limits=self.limits)
            exact = all(_is_exact(item.instruction) for item in walk(function.body))
            self._ready[name] = _Launchable(kernel, function, judge, exact, runs_in_lanes(function))
        return self._ready[name]

    def _way(
        self, found: _Launchable, arrays: Mapping[str, Array], scalars: Mapping[str, AttributeValue]
    ) -> NamedKernels | None:
        """What runs a launch: machine code where that is worth it, gives the same bytes and can be had; None: lanes."""
        slow = None if found.lanes else found.judge
        integers = {name: value for name, value in scalars.items() if isinstance(value, int)}
        shapes = {name: array.shape for name, array in arrays.items()}
        work = count_operations(found.function, shapes, integers, integers.get(GROUPS, 1))
        if not found.exact or (work is not None and work < WORTH_COMPILING):
            return slow
        name = found.kernel.name
        if name not in self._fast:
            self._fast[name] = _compiled(found.function, self.limits)
        return self._fast[name] or slow


def _is_exact(instruction: Instruction) -> bool:
    """Whether the language fixes the result to the bit; the order of atomic sums is open."""
    return isinstance(instruction, EXACT) and not (isinstance(instruction, Store) and instruction.flag)


def _compiled(function: Function, limits: Limits) -> NamedKernels | None:
    try:
        need("llvmlite")
        return cpu.compile_program(Program((function,)), limits=limits)
    except LamellaError:
        return None


def _lay_out(parameter: KernelParameter, kind: TensorType) -> Array:
    """Memory for an operand as its memref asks for it; it begins as zero."""
    place = fit(parameter, kind)
    shape, strides = place if place is not None else (kind.shape[::-1], kind.strides[::-1])
    element = dtype_of(parameter.elem)
    reach = sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    memory = np.zeros(reach + 1, element)
    return as_strided(memory, shape, [step * element.itemsize for step in strides])


def _take(array: Array, kind: TensorType) -> Array:
    """An operand as an array of its region, whose last dimension was the first mode."""
    return np.ascontiguousarray(array.transpose()).view(numpy_dtype(element_of(kind))).reshape(kind.shape)
