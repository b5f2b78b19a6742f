"""Operations that no opcode computes, as kernels of the tensor language on the VPU.

A kernel reads and writes row-major regions in the types of the graph: numbers that the plan holds in fewer bits are
cast on the way in and out; integers of 64 bits are those of 32 that the plan has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lamella.base.dtype import I32, I64, ElementType, name_in
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.task import operation_to_task
from lamella.bridge.graph_to_plan.assembly import UniqueNames, identifier
from lamella.bridge.graph_to_plan.emitter import Emitter
from lamella.bridge.graph_to_plan.rows.call import static
from lamella.bridge.graph_to_plan.values import Shape, Value, natural
from lamella.graph.nodes import Argument, Operation, Tensor, tensors
from lamella.graph.rewrite import Substitution, results_of
from lamella.kernels.row_wise import by_rows
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Function, Memref, Number, Program
from lamella.ops.library import Library


class ComputeTasks:
    """The kernels of a plan, and what makes tasks of them."""

    def __init__(self, library: Library, emit: Emitter) -> None:
        self.library = library
        self.emit = emit
        self.functions: list[Function] = []
        self._names = UniqueNames()

    def run(self, operation: Operation, find: Callable[[Tensor], Value]) -> dict[str, Value]:
        """The results of an operation by name, by one task; Unsupported says why there is none."""
        narrow = _narrowed(operation)
        given = {item.name: (item, find(item)) for item in _members(narrow.inputs)}
        known = {
            name: number for name, (_, value) in given.items() if (number := _uniform(value)) is not None
        }
        kernel = operation_to_task(self.library, narrow, self._names.take(identifier(self.emit.label)), known)
        made = {item.name: item for item in results_of(narrow) if isinstance(item, Tensor)}
        function, shapes = _divisible(kernel.function)
        places = iter(shapes)
        given_values = [self.emit.reshape(given[name][1], next(places)) for name in kernel.inputs]
        inputs = [
            self.emit.as_elem(value, _element(given[name][0]))
            for name, value in zip(kernel.inputs, given_values, strict=True)
        ]
        regions = [self.emit.region(item, natural(item.shape)) for item in inputs]
        elements = [
            *(_element(made[name]) for name in kernel.outputs),
            *(str(item.element) for item in kernel.scratch),
        ]
        results = [
            self.emit.result(shape, elem, natural(shape))
            for shape, elem in zip(places, elements, strict=True)
        ]
        outputs = [self.emit.assembly.region(item, natural(item.shape)) for item in results]
        self.emit.assembly.task("compute", regions, outputs, {"op": function.name})
        self.functions.append(function)
        return {
            name: self.emit.reshape(self.emit.as_elem(item, self._wanted(made[name])), static(made[name]))
            for name, item in zip(kernel.outputs, results, strict=False)
        }

    def _wanted(self, tensor: Tensor) -> str:
        """The type in which the plan holds a result."""
        return self.emit.real if tensor.element.is_float and tensor.element.bits > 16 else _element(tensor)

    def text(self) -> str:
        """The program of all kernels; empty where there is none."""
        return write(Program(tuple(self.functions))) if self.functions else ""


def _divisible(function: Function) -> tuple[Function, tuple[Shape, ...]]:
    """The kernel for any number of rows where it computes them apart, and the shapes of its operands."""
    found = by_rows(function)
    if found is not None:
        return found.function, found.shapes
    shapes = (item.type.shape for item in function.parameters if isinstance(item.type, Memref))
    return function, tuple(tuple(size or 0 for size in reversed(shape)) for shape in shapes)


def _narrowed(operation: Operation) -> Operation:
    """The operation on integers of 32 bits where the graph has 64."""

    def change(tensor: Tensor) -> Tensor:
        return replace(tensor, element=_narrow(tensor.element))

    found = Substitution(change).node(operation)
    if not isinstance(found, Operation):
        raise Unsupported("it is no operation")
    types = tuple((name, _narrow(element)) for name, element in operation.types)
    outputs = tuple(_changed(item) for item in found.outputs)
    return replace(found, types=types, outputs=outputs)


def _changed(argument: Argument) -> Argument:
    if isinstance(argument, Tensor):
        return replace(argument, element=_narrow(argument.element))
    if isinstance(argument, tuple):
        return tuple(replace(item, element=_narrow(item.element)) for item in argument)
    return argument


def _narrow(element: ElementType) -> ElementType:
    return I32 if element == I64 else element


def _element(tensor: Tensor) -> str:
    """The element type of the region of a tensor."""
    found = "i8" if tensor.element.name == "bool" else name_in("nem", tensor.element)
    if found is None:
        raise Unsupported(f"no region has elements of type {tensor.element}")
    return found


def _members(arguments: tuple[Argument, ...]) -> list[Tensor]:
    return [item for argument in arguments for item in tensors(argument)]


def _uniform(value: Value) -> Number | None:
    """The number that a known tensor holds everywhere."""
    if value.array is None or not value.array.size:
        return None
    first = value.array.reshape(-1)[0]
    if not bool((value.array == first).all()):
        return None
    return float(first) if np.issubdtype(value.array.dtype, np.floating) else int(first)
