"""Arguments that share memory: a kernel may take it that what it writes is nobody else's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.source import Span
from lamella.lang.tensor.nodes import Function
from lamella.lang.tensor.rules import running as rules

MOST_WORK = 10_000
"""Steps for one exact comparison; whoever needs more is not found out."""
MOST_ACTIVE = 16
"""Blocks that one block is compared with."""
# The types of NumPy know only the two extremes of the work that may be done.
_shares_memory = cast(Callable[[Array, Array, int], bool], np.shares_memory)


@dataclass(frozen=True, slots=True)
class Block:
    """The memory of an array that belongs to a parameter; strides are in bytes and not negative."""

    name: str
    low: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    width: int

    @property
    def high(self) -> int:
        """The first byte behind the block; an empty one ends where it begins."""
        if 0 in self.shape:
            return self.low
        steps = zip(self.shape, self.strides, strict=True)
        return self.low + self.width + sum((size - 1) * step for size, step in steps)

    @property
    def is_folded(self) -> bool:
        """Whether several positions are one element: along a mode with a stride of 0."""
        return 0 not in self.shape and any(
            size > 1 and step == 0 for size, step in zip(self.shape, self.strides, strict=True)
        )

    def view(self) -> Array:
        """The block as an array, which nobody reads: only its addresses are compared."""
        memory = memoryview((ctypes.c_char * (self.high - self.low)).from_address(self.low)).cast("B")
        return np.ndarray(self.shape, np.dtype((np.void, self.width)), memory, 0, self.strides)


def find_folded(blocks: Sequence[Block], written: Mapping[str, object]) -> str | None:
    """A parameter that is written and has several positions for one element, or None."""
    return next((item.name for item in blocks if item.name in written and item.is_folded), None)


def find_overlap(blocks: Sequence[Block], written: Mapping[str, object]) -> tuple[str, str] | None:
    """Two parameters that certainly share memory, the first of them written, or None where no pair is certain."""
    active: list[Block] = []
    for block in sorted((item for item in blocks if 0 not in item.shape), key=lambda item: item.low):
        active = [item for item in active if item.high > block.low][-MOST_ACTIVE:]
        for other in active:
            named = (block.name, other.name) if block.name in written else (other.name, block.name)
            if block.name != other.name and named[0] in written and _share(block, other):
                return named
        active.append(block)
    return None


def _share(one: Block, other: Block) -> bool:
    try:
        return _shares_memory(one.view(), other.view(), MOST_WORK)
    except np.exceptions.TooHardError:
        return False


def overlap_finding(function: Function, names: tuple[str, str], written: Mapping[str, Span]) -> Diagnostic:
    """The finding about two parameters that share memory."""
    name, other = names
    parameter = next(item for item in function.parameters if item.value.name == name)
    labels = [Label(written[name], f"'%{name}' is written here")]
    return rules.OVERLAPPING_ARGUMENTS.at(parameter.span, hint=None, labels=labels, name=name, other=other)
