"""Collective instructions on memrefs: axpby, cumsum, gemm, gemv, ger, hadamard, sum.

Each is `C := alpha * f(A, B) + beta * C`. It is computed in the accumulation type of the result and rounded once;
where beta is 0 the result is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from lamella.backend.arguments.shapes import SHAPES, describe_shapes
from lamella.backend.interpreter.faults import Fault
from lamella.backend.interpreter.memory import Reference
from lamella.backend.interpreter.numbers import Number, accumulation, convert
from lamella.base.arrays import Array
from lamella.lang.tensor.nodes import Blas
from lamella.lang.tensor.rules import running as rules

Formula: TypeAlias = Callable[[Blas, list[Array]], Array]


def update(blas: Blas, inputs: list[Reference], alpha: Number, beta: Number, element: str) -> Array:
    """The new elements of the result, whose element type is given and which is the last of the memrefs."""
    *sources, target = inputs
    wide = accumulation(element)
    arrays = _transpose(blas, [source.read() for source in sources])
    _agree(blas, arrays, target)
    value = convert(alpha, wide) * FORMULAS[blas.function](blas, [_widen(item, wide) for item in arrays])
    if beta != 0:
        value = value + convert(beta, wide) * _widen(target.read(), wide)
    return np.asarray(convert(value, element))


def _widen(values: Array, element: str) -> Array:
    return np.asarray(convert(values, element))


def _transpose(blas: Blas, arrays: list[Array]) -> list[Array]:
    """The operands as op() sees them; a vector is its own transpose."""
    flags = (*blas.transposes, *[False] * len(arrays))
    return [item.T if flag else item for item, flag in zip(arrays, flags, strict=False)]


def _agree(blas: Blas, arrays: list[Array], target: Reference) -> None:
    """Refuse shapes that do not fit, which the checker could not see where sizes are dynamic."""
    if not SHAPES[blas.function]([item.shape for item in arrays], target.shape):
        shown = describe_shapes([*(item.shape for item in arrays), target.shape])
        raise Fault(rules.SHAPES_DISAGREE, function=blas.function, shapes=shown)


FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "axpby": lambda _, arrays: arrays[0],
        "cumsum": lambda blas, arrays: np.cumsum(arrays[0], blas.mode, dtype=arrays[0].dtype),
        "sum": lambda _, arrays: np.sum(arrays[0], -1, dtype=arrays[0].dtype),
        "gemm": lambda _, arrays: np.matmul(*arrays),
        "gemv": lambda _, arrays: np.matmul(*arrays),
        "ger": lambda _, arrays: np.multiply.outer(*arrays),
        "hadamard": lambda _, arrays: np.multiply(*arrays),
    }
)
