"""Compute before the run what does not depend on it.

`y = f(c)` with constants `c` alone becomes the constant `y`. Random operators, outputs of the graph, quantised tensors,
results with NaN (which no literal says) and results larger than `LARGEST` elements stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import LamellaError
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Node, Operation, Single, Tensor
from lamella.graph.passes.merge_equal import RANDOM
from lamella.graph.rewrite import Change, Walk, made, members, rewrite
from lamella.ops.problem import Problem

LARGEST = 4096
"""Elements of a constant that is still kept as text."""
Evaluate: TypeAlias = Callable[[Operation, Mapping[str, Array]], Sequence[Array]]
"""Runs one operation on arrays by the names of its inputs; one array for each tensor that it makes."""


def fold_constants(model: Model, evaluate: Evaluate) -> Model:
    """The model with constant operations computed by a backend."""

    def visit(node: Node, walk: Walk) -> Change | None:
        if not isinstance(node, Operation) or node.operator.startswith(RANDOM):
            return None
        constants = _constants(node, walk)
        outputs = [item for item in made(node) if isinstance(item, Tensor) and _is_foldable(item, walk)]
        if constants is None or len(outputs) != sum(1 for _ in made(node)):
            return None
        arrays = _try(evaluate, node, constants)
        folded = [_constant(item, array) for item, array in zip(outputs, arrays, strict=False)]
        found = tuple(item for item in folded if item is not None)
        return Change(constants=found) if found and len(found) == len(outputs) else None

    return replace(model, graph=rewrite(model.graph, visit))


def _constants(node: Operation, walk: Walk) -> dict[str, Array] | None:
    """The inputs of a node as arrays; None where one of them is not constant."""
    found: dict[str, Array] = {}
    for item in members(node.inputs):
        constant = walk.constant(item) if isinstance(item, Tensor) else None
        array = None if constant is None else array_of(constant)
        if array is None:
            return None
        found[item.name] = array
    return found


def _is_foldable(tensor: Tensor, walk: Walk) -> bool:
    static = all(isinstance(extent, int) for extent in tensor.shape)
    volume = math.prod(extent for extent in tensor.shape if isinstance(extent, int))
    fine = tensor.quantization is None and tensor.name not in walk.outputs
    return static and fine and volume <= LARGEST


def _try(evaluate: Evaluate, node: Operation, arrays: Mapping[str, Array]) -> Sequence[Array]:
    try:
        return evaluate(node, arrays)
    except (LamellaError, Problem):  # what fails when it is run fails at the run, if it is reached at all
        return ()


def array_of(constant: Constant) -> Array | None:
    """The values of a constant; None where an extent or a value is only known at the run."""
    tensor, value = constant.tensor, constant.value
    shape = [extent for extent in tensor.shape if isinstance(extent, int)]
    values = value if isinstance(value, tuple) else (value,)
    if len(shape) != len(tensor.shape) or not all(isinstance(item, int | float) for item in values):
        return None
    if tensor.quantization is not None:
        return None
    dtype = numpy_dtype(tensor.element)
    try:
        return (
            np.array(values, dtype).reshape(shape)
            if isinstance(value, tuple)
            else np.full(shape, value, dtype)
        )
    except OverflowError:
        return None


def _constant(tensor: Tensor, array: Array) -> Constant | None:
    """The constant with the values of an array, one value where they are all the same bits."""
    wide = array.astype(np.float64) if tensor.element.is_float else array
    values: list[Single] = wide.reshape(-1).tolist()
    if tensor.element.is_float and np.isnan(wide).any():
        return None
    if not values:
        return None
    uniform = len({repr(item) for item in values}) == 1
    return Constant(tensor, values[0] if uniform else tuple(values))
