"""Layouts of memrefs: how a type spells them, and arrays that have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LAYOUTS = ("packed", "padded", "dynamic", "scattered")
"""Packed, with known gaps, with unknown gaps behind columns, with unknown gaps everywhere."""
GAP = 3
MARGIN = 80
"""Elements before and behind an array."""
MARK = 0x5A


def strides_of(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """The strides of an array in elements."""
    found, step = [], 2 if layout == "scattered" else 1
    for size in shape:
        found.append(step)
        step = step * max(1, size) + (0 if layout == "packed" else GAP)
    return tuple(found)


def spell_memref(element: str, shape: tuple[int, ...], dynamic: bool, layout: str) -> str:
    """The type of a memref with such a shape and layout."""
    sizes = "".join(f"x{'?' if dynamic else size}" for size in shape)
    if layout == "packed" or not shape:
        return f"memref<{element}{sizes}>"
    strides = list(map(str, strides_of(shape, layout)))
    if layout == "dynamic":
        strides[1:] = ["?"] * (len(strides) - 1)
    elif layout == "scattered":
        strides = ["?"] * len(strides)
    return f"memref<{element}{sizes},strided<{','.join(strides)}>>"


def arrange(array: Array, layout: str) -> Array:
    """The same numbers in an array of a layout, with memory around it and between them that belongs to nobody."""
    strides = strides_of(array.shape, layout)
    length = 1 + sum(step * (size - 1) for step, size in zip(strides, array.shape, strict=True))
    memory = np.full((2 * MARGIN + max(1, length)) * array.itemsize, MARK, np.uint8)
    steps = tuple(step * array.itemsize for step in strides)
    found: Array = np.ndarray(array.shape, array.dtype, memory, MARGIN * array.itemsize, steps)
    found[...] = array
    return found


def is_marked(array: Array) -> bool:
    """Whether the memory that belongs to nobody is as it was."""
    memory = array.base
    if not isinstance(memory, np.ndarray):
        raise TypeError("the array was not arranged here")
    free = np.ones(len(memory), bool)
    steps = (*array.strides, 1)
    np.ndarray((*array.shape, array.itemsize), bool, free, MARGIN * array.itemsize, steps)[...] = False
    return bool(np.all(memory[free] == MARK))
