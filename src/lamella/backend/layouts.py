"""Arrays in the layout that a kernel declares: made anew, or copied there and back for a launch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lamella.base.arrays import Array, DType
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT
from lamella.base.records import dataclass
from lamella.lang.tensor.nodes import Function, Group, Memref
from lamella.lang.tensor.rules import running as rules

LAYOUT_CODES = frozenset({rules.ARGUMENT_STRIDE.code, rules.ARGUMENT_LAYOUT.code})
"""What is found of arrays that only lie otherwise than their memrefs say."""


def zeros_in_layout(kind: Memref, shape: tuple[int, ...], element: DType) -> Array:
    """An array of zeros in the layout of a memref, packed where its strides are not known."""
    if math.prod(shape) * element.itemsize > DEFAULT.max_total_bytes:
        raise InputError(
            f"an array of {math.prod(shape)} elements is too large to make up",
            hint="give a smaller one with --arg",
        )
    packed: Array = np.zeros(shape, element, order="F")
    if None in kind.stride or not packed.size:
        return packed
    steps = [stride or 0 for stride in kind.stride]
    span = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    if span * packed.itemsize > DEFAULT.max_total_bytes:
        raise InputError(f"the layout spans {span} elements", hint="give the array with --arg")
    flat = np.zeros(span, element)
    return as_strided(flat, shape, [step * flat.itemsize for step in steps])


def laid_out(kind: Memref, array: Array) -> Array:
    """A copy of an array in the layout of a memref."""
    found = zeros_in_layout(kind, array.shape, array.dtype)
    found[...] = array
    return found


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The arguments of a launch, those of another layout copied; the copies beside what they are copies of."""

    arguments: tuple[object, ...]
    copies: tuple[tuple[Array, Array], ...]

    def copy_back(self) -> None:
        """Give the arrays of the caller what the launch has written."""
        for copy, original in self.copies:
            if original.flags.writeable:
                original[...] = copy


def lay_out(function: Function, arguments: Sequence[object]) -> LaidOut | None:
    """Arguments whose arrays lie as their memrefs say; None where copies would not be what the caller's arrays are.

    That is so of arrays that share memory with each other or, being written, within themselves.
    """
    if any(np.may_share_memory(one, other) for one, other in combinations(_arrays(arguments), 2)):
        return None
    copies: list[tuple[Array, Array]] = []

    def copy(kind: Memref, item: object) -> object:
        if not isinstance(item, np.ndarray) or item.ndim != kind.order or _lies(kind, item):
            return item
        made = laid_out(kind, item)
        if not item.flags.writeable:
            made.flags.writeable = False
        copies.append((made, item))
        return made

    def place(kind: object, argument: object) -> object:
        if isinstance(kind, Group) and isinstance(argument, list | tuple):
            return [copy(kind.memref, item) for item in argument]
        return copy(kind, argument) if isinstance(kind, Memref) else argument

    types = (item.type for item in function.parameters)
    found = tuple(place(kind, argument) for kind, argument in zip(types, arguments, strict=True))
    if any(original.flags.writeable and _repeats(original) for _, original in copies):
        return None
    return LaidOut(found, tuple(copies))


def _arrays(arguments: Sequence[object]) -> Iterator[Array]:
    for argument in arguments:
        items = argument if isinstance(argument, list | tuple) else (argument,)
        yield from (item for item in items if isinstance(item, np.ndarray))


def _lies(kind: Memref, array: Array) -> bool:
    """Whether an array has the strides of a memref where they are used."""
    return not array.size or all(
        size <= 1
        or (given >= 0 and given % array.itemsize == 0 and wanted in (None, given // array.itemsize))
        for size, given, wanted in zip(array.shape, array.strides, kind.stride, strict=True)
    )


def _repeats(array: Array) -> bool:
    """Whether two positions of an array may be one element: steps do not pass over what the smaller ones reach."""
    reach = array.itemsize
    for step, size in sorted(
        (abs(step), size) for step, size in zip(array.strides, array.shape, strict=True)
    ):
        if size > 1 and step < reach:
            return True
        reach = max(reach, step * size)
    return False
