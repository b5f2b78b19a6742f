"""Why two computations of one tensor differ, inferred from their numbers.

What is known of operators (normalisations, rotations, attention, activations) is recognised by what each side makes of
its operands, never by a name. What is not recognised is tried: the right side is computed again with an operand laid
out otherwise, an attribute of the left, an operation less, and the change that makes it agree is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from lamella.pipeline.diff.causes.attention import find_attention, find_reductions, find_rotary, find_softmax
from lamella.pipeline.diff.causes.case import NOISE, Case, Cause, Computation
from lamella.pipeline.diff.causes.functions import find_functions
from lamella.pipeline.diff.causes.norms import find_norms
from lamella.pipeline.diff.causes.operands import (
    find_constants,
    find_layouts,
    find_weights,
    find_wiring,
)
from lamella.pipeline.diff.causes.operations import (
    find_attributes,
    find_backend,
    find_missing,
    find_precision,
)
from lamella.pipeline.diff.causes.relations import relate
from lamella.pipeline.diff.gap import numbers_of

RECOGNISED: tuple[Callable[[Case], Iterator[Cause]], ...] = (
    find_weights,
    find_constants,
    find_functions,
    find_missing,
    find_rotary,
    find_softmax,
    find_attention,
    find_norms,
    find_wiring,
    find_attributes,
)
"""What is looked for, the most telling first."""
TRIED = (find_reductions, find_layouts, find_precision)
"""What is tried where nothing was recognised."""
VAGUE = frozenset({"attribute", "weights", "value", "offset", "place", "constant", "other operand"})
"""Kinds that say where a difference is, and not what it means: what is behind them is looked for too."""
ENOUGH = 2
"""Causes that are named at most."""


def infer(case: Case) -> tuple[Cause, ...]:
    """The causes of a divergence that its numbers prove, the first being the most telling; none where nothing fits."""
    if case.before <= NOISE and case.left.output.dtype == np.float32:
        return (Cause("rounding error", "the difference is no more than 32 bits leave to chance"),)
    found = list(islice(find_backend(case), ENOUGH))
    for find in () if found else RECOGNISED:
        found += islice(find(case), ENOUGH)
        if any(item.kind not in VAGUE for item in found):
            break
    for find in TRIED:
        if found:
            break
        found += islice(find(case), ENOUGH)
    found = found or list(_results(case))
    return tuple(sorted(found, key=lambda item: item.kind in VAGUE)[:ENOUGH])


def _results(case: Case) -> Iterator[Cause]:
    """How the results themselves are related."""
    relation = relate(numbers_of(case.left.output), numbers_of(case.right.output))
    if relation is not None:
        yield Cause(relation.kind, f"the result of the right {relation.words}, against the left's")


__all__ = ["Case", "Cause", "Computation", "find_missing", "infer"]
