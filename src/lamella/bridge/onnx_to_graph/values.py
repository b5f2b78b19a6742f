"""Values of an ONNX graph while it is translated: tensors, and contents that are known before the run.

A content is known when an initializer, a constant or the shape of a tensor gives it; extents that only the run tells
are part of it as symbolic integers. What is known becomes a tensor only where an operation reads it as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsFloat, cast

import numpy as np

from lamella.base.arrays import Array, element_type_of
from lamella.base.dim import Condition, Dim
from lamella.base.dtype import BOOL, I64, ElementType
from lamella.graph.nodes import Tensor

MOST_KNOWN = 4096
"""Items of a content that is computed before the run."""


@dataclass(slots=True, eq=False)
class Value:
    """One value: the tensor that it is, its content where that is known, or both.

    `known` is an array of numbers, or an array of objects where some are symbolic integers or conditions.
    """

    tensor: Tensor | None = None
    known: Array | None = None
    element: ElementType = I64
    name: str = ""
    """What the file calls it."""
    is_weight: bool = False
    """Whether it is an initializer, which becomes a variable of its name."""


def known_value(content: Array, name: str = "", element: ElementType | None = None) -> Value:
    """A value of a known content."""
    if content.dtype != object:
        return Value(None, content, element or element_type_of(content.dtype) or I64, name)
    is_truth = any(isinstance(item, Condition) for item in content.flat)
    return Value(None, content, BOOL if is_truth else element or I64, name)


def is_symbolic(content: Array) -> bool:
    """Whether a content has parts that only the run tells."""
    return content.dtype == object


def plain_if_possible(content: Array, dtype: np.dtype[np.generic]) -> Array:
    """A content of objects as numbers where all of them are, or as truths."""
    if content.dtype != object:
        return content
    if any(not isinstance(item, int | float | np.number | np.bool_) for item in content.flat):
        return content
    if content.size and all(isinstance(item, bool | np.bool_) for item in content.flat):
        return content.astype(np.bool_)
    return content.astype(dtype)


def object_array(items: list[object], shape: tuple[int, ...]) -> Array:
    """An array of objects; NumPy must not look into them."""
    found = np.empty(len(items), object)
    for index, item in enumerate(items):
        found[index] = item
    return found.reshape(shape)


def as_single(item: object) -> int | float | bool | Dim | Condition:
    """An item of a content as a number of Python, or the symbolic integer or condition that it is."""
    if isinstance(item, np.bool_ | bool):
        return bool(item)
    if isinstance(item, np.integer | int):
        return int(item)
    return item if isinstance(item, Dim | Condition) else float(cast(SupportsFloat, item))
