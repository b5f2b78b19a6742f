"""Constant folding: compute before the run what does not depend on it.

`y = f(c)` with constants `c` alone becomes the constant `y`. Random operators, outputs of the graph, quantised tensors,
results with NaN (which no literal says) and results larger than `LARGEST` elements stay as they are, and so does what
reads more than `MOST_READ` elements. Variables are not constants: what is computed from weights stays.

A generator, which makes a tensor out of nothing but a shape and one value (`aten.zeros`, `aten.full`, `aten.arange`),
is shorter than its result: it stays for those who read it at the run, and what is computed from it is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Found
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Node, Operation, Pack, Single, Tensor
from lamella.graph.rewrite import Replacement, RewriteWalk, members, results_of, rewrite
from lamella.ops.library import Library

LARGEST = 4096
"""Elements of a constant that is still kept as text."""
MOST_READ = 16 * LARGEST
"""Elements of all constants that one operation reads."""
MOST_MADE = 256 * LARGEST
"""Elements that one run of the pass writes down; what comes after them is left alone."""
DEEPEST = 2
"""How many generators may stand behind each other: one value, and what is full of it."""
Evaluate: TypeAlias = Callable[[Operation, Mapping[str, Array]], Sequence[Array]]
"""Runs one operation on arrays by the names of its inputs; one array for each tensor that it makes."""


def fold_constants(model: Model, evaluate: Evaluate) -> Model:
    """The model with constant operations computed by a backend."""
    return replace(model, graph=rewrite(model.graph, _Folding(model.library, evaluate).visit))


class _Folding:
    """Computes operations, and counts the elements that were written down for them."""

    def __init__(self, library: Library, evaluate: Evaluate) -> None:
        self.library = library
        self.evaluate = evaluate
        self.left = MOST_MADE

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """Constants in the place of an operation on constants."""
        if not isinstance(node, Operation):
            return None
        traits = self.library.traits(node.operator)
        if "random" in traits or "generator" in traits:
            return None
        # A constant cannot be an output of a graph in its text.
        if any(item.name in walk.outputs for item in results_of(node)):
            return None
        outputs, arrays = self._compute(node, walk, DEEPEST)
        change = _folded(outputs, arrays) if outputs else None
        if change is None:
            return None
        self.left -= sum(len(item.value) for item in change.constants if isinstance(item.value, tuple))
        return change if self.left >= 0 else None

    def _compute(
        self, node: Operation, walk: RewriteWalk, depth: int
    ) -> tuple[Sequence[Tensor], Sequence[Array]]:
        """The results of an operation on constants; nothing where it is none, or fails."""
        outputs = [item for item in results_of(node) if isinstance(item, Tensor) and _is_foldable(item)]
        if self.left < 0 or len(outputs) != sum(1 for _ in results_of(node)):
            return (), ()
        constants = self._constants(node, walk, depth)
        arrays = () if constants is None else _try(self.evaluate, node, constants)
        return (outputs, arrays) if len(arrays) == len(outputs) else ((), ())

    def _constants(self, node: Operation, walk: RewriteWalk, depth: int) -> dict[str, Array] | None:
        """The inputs of a node as arrays; None where one of them is not constant, or they are too large."""
        read = dict.fromkeys(members(node.inputs))
        if not all(self._is_known(item, walk) for item in read) or sum(map(_volume, read)) > MOST_READ:
            return None
        arrays = {item.name: self._array(item, walk, depth) for item in read if isinstance(item, Tensor)}
        found = {name: array for name, array in arrays.items() if array is not None}
        return found if len(found) == len(read) else None

    def _is_known(self, item: Tensor | Pack, walk: RewriteWalk) -> bool:
        """Whether a tensor is a constant, or the result of a generator."""
        if not isinstance(item, Tensor):
            return False
        maker = walk.maker(item)
        generated = maker is not None and "generator" in self.library.traits(maker.operator)
        return generated or walk.constant(item) is not None

    def _array(self, tensor: Tensor, walk: RewriteWalk, depth: int) -> Array | None:
        constant, maker = walk.constant(tensor), walk.maker(tensor)
        if constant is not None:
            return array_of(constant)
        if maker is None or not depth:
            return None
        _, arrays = self._compute(maker, walk, depth - 1)
        return arrays[0] if arrays else None


def _folded(outputs: Sequence[Tensor], arrays: Sequence[Array]) -> Replacement | None:
    folded = [_constant(item, array) for item, array in zip(outputs, arrays, strict=True)]
    found = tuple(item for item in folded if item is not None)
    return Replacement(constants=found) if found and len(found) == len(outputs) else None


def _volume(tensor: Tensor | Pack) -> int:
    return math.prod(extent for extent in tensor.shape if isinstance(extent, int))


def _is_foldable(tensor: Tensor) -> bool:
    static = all(isinstance(extent, int) for extent in tensor.shape)
    return static and tensor.quantization is None and _volume(tensor) <= LARGEST


def _try(evaluate: Evaluate, node: Operation, arrays: Mapping[str, Array]) -> Sequence[Array]:
    try:
        return evaluate(node, arrays)
    except (LamellaError, Found):  # what fails when it is run fails at the run, if it is reached at all
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
        with np.errstate(over="ignore"):  # what is too large for the type is infinite
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
    # By their texts, since 0.0 and -0.0 compare equal.
    uniform = len({repr(item) for item in values}) == 1
    return Constant(tensor, values[0] if uniform else tuple(values))
