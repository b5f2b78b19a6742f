"""Programs from bare instructions: NEG and ADD on vectors, with numbers for the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from lamella.backend.nacvm import NacProgram, Result
from lamella.base.arrays import Array
from lamella.base.dtype import F32
from lamella.graph.build import Builder
from lamella.graph.nodes import Operation, Tensor
from lamella.lang.nac.nodes import INPUT, OUTPUT, File
from lamella.ops.library import Library

LENGTH = 3
LIBRARY = Library()


def weights(parameter: int) -> Array:
    """The weights of a parameter."""
    return np.full(LENGTH, parameter, np.float32)


def give_meaning(file: File, load: Callable[[int], Array] = weights, length: int = LENGTH) -> NacProgram:
    """A file of inputs, loads, negations and sums, with what it means."""
    builder = Builder(LIBRARY, "G")
    results: list[Result] = []
    for index, item in enumerate(file.instructions):
        if item.operation == INPUT:
            results.append(builder.input(f"v{index}", F32, (length,)))
        elif item.operation == OUTPUT:
            results.append(None)
        else:
            given = [results[index + offset] for offset in item.offsets]
            operands = [operand for operand in given if isinstance(operand, Tensor)]
            name = "aten.neg" if len(operands) == 1 else "aten.add"
            results.append(builder.call(name, *operands))
    made = {
        item.outputs[0]: item for item in builder.finish().operations() if isinstance(item.outputs[0], Tensor)
    }
    steps = tuple(_step(made, result) for result in results)
    return NacProgram(file, steps, tuple(results), (), LIBRARY, load)


def _step(made: Mapping[Tensor, Operation], result: Result) -> tuple[Operation, ...]:
    return (made[result],) if isinstance(result, Tensor) and result in made else ()


def judge(file: File, given: Array) -> list[Array]:
    """What the instructions compute, in plain NumPy."""
    held: list[Array] = []
    for index, item in enumerate(file.instructions):
        if item.operation == INPUT:
            held.append(weights(item.constants[0]) if item.variant == 1 else given)
        elif item.operation == OUTPUT:
            return [held[index + offset] for offset in item.offsets]
        else:
            values = [held[index + offset] for offset in item.offsets]
            held.append(-values[0] if len(values) == 1 else values[0] + values[1])
    return []
