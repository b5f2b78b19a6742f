"""Hypotheses on how numbers are held: a backend that differs from the formulas, narrower operands or weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lamella.base.arrays import Array
from lamella.pipeline.diff.causes.case import Case, Cause, Computation
from lamella.pipeline.diff.causes.relations import NARROW, STEPS
from lamella.pipeline.diff.gap import numbers_of

NEARER = 0.1
"""Narrow operands explain a difference that they make smaller than this part of what it was."""


def find_backend(case: Case) -> Iterator[Cause]:
    """A side whose numbers are not those of its formulas, which agree with the other side."""
    for name, side, other, explains in (
        ("right", case.right, case.left, case.explains),
        ("left", case.left, case.right, case.explains_left),
    ):
        if explains(side.run({})):
            yield from _narrow(case, name, other)
            yield Cause(
                "backend", f"by its formulas the {name} would agree: what runs it makes the difference"
            )
            return


def find_precision(case: Case) -> Iterator[Cause]:
    """Operands that one side rounds to a narrower type: the other comes much nearer to it when it does so too."""
    for name, other in (("right", case.left), ("left", case.right)):
        found = list(_narrow(case, name, other))
        if found:
            yield from found
            return


def _narrow(case: Case, name: str, other: Computation) -> Iterator[Cause]:
    """How a side holds its operands, by what the other would compute with such ones."""
    gap = case.gap_of_left if other is case.left else case.gap
    for word, kind in NARROW.items():
        # No rounding makes a difference of many of its steps. Sums are rounded in other places: numbers come near.
        if case.before <= 32 * STEPS[word] and gap(other.run(_rounded(other, kind))) < NEARER * case.before:
            yield Cause("accumulate type", f"the {name} computes with operands in {word}")
            return
    for bits in (8, 4):
        for weight, value in other.operands.items():
            for axis in (0, value.ndim - 1) if value.ndim > 1 and value.dtype.kind == "f" else ():
                if gap(other.run({weight: _steps(value, bits, axis)})) < NEARER * case.before:
                    yield Cause(
                        "precision", f"the {name} computes with weights of {bits} bits for each channel"
                    )
                    return


def _rounded(side: Computation, kind: type) -> dict[str, Array]:
    """The operands of a side rounded to a type."""
    with np.errstate(over="ignore"):
        return {
            name: value.astype(kind).astype(value.dtype)
            for name, value in side.operands.items()
            if value.dtype.kind in "fV"
        }


def _steps(value: Array, bits: int, axis: int) -> Array:
    """Weights in whole steps of the largest of each channel."""
    numbers = numbers_of(value)
    rest = tuple(item for item in range(value.ndim) if item != axis)
    step = np.abs(numbers).max(axis=rest, keepdims=True) / (2 ** (bits - 1) - 1)
    found: Array = (np.rint(numbers / np.where(step == 0, 1, step)) * step).astype(value.dtype)
    return found
