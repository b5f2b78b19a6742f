"""What `transform(…, fn: name)` may do to a tensor of a checkpoint, and how each is undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array, cast, element_type_of

Shape: TypeAlias = tuple[int, ...]
STACK = "stack"
"""The function that puts tensors one behind the other along a new first dimension, one for each value of a placeholder
that stands only in the name of the tensor."""


@dataclass(frozen=True, slots=True)
class Function:
    """A transform: its effect on a shape and on numbers, and the name of the function that undoes it.

    `shape` gives a text where a tensor of a shape cannot be taken. Both know the number of rows of an attention head.
    """

    inverse: str
    shape: Callable[[Shape, int], Shape | str]
    apply: Callable[[Array, int], Array]
    computes: bool = False
    """Whether it makes other numbers, for which they must be floating ones."""


def _swap_shape(shape: Shape, head: int) -> Shape | str:
    return (*shape[:-2], shape[-1], shape[-2]) if len(shape) >= 2 else "it needs two dimensions"


def _swap(values: Array, head: int) -> Array:
    return np.swapaxes(values, -1, -2)


def _same(shape: Shape, head: int) -> Shape | str:
    return shape


def _negate(values: Array, head: int) -> Array:
    """The numbers with the other sign, by the sign bit alone: NaN keeps its bits."""
    return np.asarray(np.negative(values))


def _computed(function: Callable[[Array], Array]) -> Callable[[Array, int], Array]:
    """A function of numbers, computed in double precision and rounded once to the type they had."""

    def apply(values: Array, head: int) -> Array:
        element = element_type_of(values.dtype)
        with np.errstate(all="ignore"):
            found = function(values.astype(np.float64))
        return found if element is None else cast(found, element)

    return apply


def _squeezed(shape: Shape, head: int) -> Shape | str:
    fits = len(shape) >= 2 and shape[1] == 1
    return (shape[0], *shape[2:]) if fits else "its second dimension is not 1"


def _unsqueezed(shape: Shape, head: int) -> Shape | str:
    return (shape[0], 1, *shape[1:]) if shape else "it has no dimension"


def _pairs(shape: Shape, head: int) -> Shape | str:
    if head <= 0 or head % 2:
        return f"a head has {head} rows" if head else "the number of rows of a head (head_dim) is not known"
    fits = bool(shape) and shape[0] % head == 0
    return shape if fits else f"its rows are no heads of {head}"


def _interleave(values: Array, head: int) -> Array:
    """Rows k and k + head/2 of each head side by side."""
    return _turn(values, (2, head // 2))


def _separate(values: Array, head: int) -> Array:
    """The even rows of each head, then the odd ones."""
    return _turn(values, (head // 2, 2))


def _turn(values: Array, rows: tuple[int, int]) -> Array:
    heads = values.reshape(-1, *rows, *values.shape[1:]) if values.size else values
    return heads.swapaxes(1, 2).reshape(values.shape) if values.size else values


def _squeeze(values: Array, head: int) -> Array:
    return values.reshape(values.shape[0], *values.shape[2:])


def _unsqueeze(values: Array, head: int) -> Array:
    return values.reshape(values.shape[0], 1, *values.shape[1:])


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "transpose": Function("transpose", _swap_shape, _swap),
        "neg": Function("neg", _same, _negate, computes=True),
        "negate_exp": Function(
            "log_negate", _same, _computed(lambda x: np.negative(np.exp(x))), computes=True
        ),
        "log_negate": Function(
            "negate_exp", _same, _computed(lambda x: np.log(np.negative(x))), computes=True
        ),
        "exp": Function("log", _same, _computed(np.exp), computes=True),
        "log": Function("exp", _same, _computed(np.log), computes=True),
        "squeeze_1": Function("unsqueeze_1", _squeezed, _squeeze),
        "unsqueeze_1": Function("squeeze_1", _unsqueezed, _unsqueeze),
        "half_to_interleaved": Function("interleaved_to_half", _pairs, _interleave),
        "interleaved_to_half": Function("half_to_interleaved", _pairs, _separate),
    }
)
"""Every function of one tensor, by name."""


def function_names() -> tuple[str, ...]:
    """Every name that may stand behind `fn:`."""
    return (*FUNCTIONS, STACK)
