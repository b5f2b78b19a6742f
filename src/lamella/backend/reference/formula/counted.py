"""Outputs whose extent only the run tells: assignments that happen are counted, and each is written at its number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lamella.backend.reference.formula.cells import Access, Cells, Formula
from lamella.backend.reference.formula.evaluate import Evaluation, Tensors
from lamella.backend.reference.formula.scalars import INTEGER
from lamella.base.arrays import Array
from lamella.ops.formula import Counter


def counts(formula: Formula) -> bool:
    """Whether a formula uses a counter."""
    return any(isinstance(cell.term, Counter) for cell in formula.cells.cells)


def condition_counts(formula: Formula) -> bool:
    """Whether a step's happening depends on how many happened before."""
    roots = [number for access in formula.accesses() for number in _tested_cells(access)]
    roots += [] if formula.condition is None else [formula.condition]
    return any(isinstance(formula.cells[number].term, Counter) for number in formula.cells.needed(roots))


def _tested_cells(access: Access) -> Iterator[int]:
    yield from (place.at for place in access.places if place.skips)


def resize(formula: Formula, tensors: Tensors, count: int) -> None:
    """Give the targets as many elements along the counted dimensions as there are assignments."""
    for target in formula.targets:
        tensor = tensors[target.tensor]
        if isinstance(tensor, tuple):
            number = target.item or 0
            items = [
                *tensor[:number],
                _resized(formula.cells, target, tensor[number], count),
                *tensor[number + 1 :],
            ]
            tensors[target.tensor] = tuple(items)
        else:
            tensors[target.tensor] = _resized(formula.cells, target, tensor, count)


def _resized(cells: Cells, target: Access, tensor: Array, count: int) -> Array:
    shape = [
        count if isinstance(cells[place.at].term, Counter) else size
        for place, size in zip(target.places, tensor.shape, strict=True)
    ]
    return tensor if tuple(shape) == tensor.shape else np.zeros(shape, tensor.dtype)


def number_steps(evaluation: Evaluation, active: Array | None, before: int) -> int:
    """Give each active step of a box its number, in the order of the loops; how many there are by then."""
    used = (
        np.ones(evaluation.shape, np.bool_) if active is None else np.broadcast_to(active, evaluation.shape)
    )
    numbers = np.cumsum(used.reshape(-1), dtype=INTEGER).reshape(evaluation.shape)
    evaluation.counted = numbers + (before - 1)
    return before + int(np.count_nonzero(used))
