"""Hypotheses on operations: a backend, an attribute or a precision that differs, an operation that one side lacks.

Each is tested by computing one side again with the change, which is to give the numbers of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lamella.base.arrays import Array
from lamella.graph.nodes import Node, Operation, Tensor, Value
from lamella.graph.rewrite import copy_of
from lamella.pipeline.diff.causes.case import Case, Cause, Computation
from lamella.pipeline.diff.causes.relations import NARROW, STEPS, relate
from lamella.pipeline.diff.flow import listed, word_of
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


SHOWN = 60


def find_attributes(case: Case) -> Iterator[Cause]:
    """Attributes of one operator that differ, one alone or all together."""
    left, right = case.left.single, case.right.single
    if left is None or right is None or left.operator != right.operator:
        return
    one, other = dict(left.attributes), dict(right.attributes)
    differing = [name for name in one if name in other and one[name] != other[name]]
    for name in differing:
        if _explains_attributes(case, right, {**other, name: one[name]}):
            yield Cause(
                "attribute",
                f"'{name}' is {_shown(one[name])} on the left, {_shown(other[name])} on the right",
            )
            return
    if len(differing) > 1 and _explains_attributes(
        case, right, {**other, **{name: one[name] for name in differing}}
    ):
        names = ", ".join(f"'{name}'" for name in differing)
        yield Cause("attribute", f"the attributes {names} differ")


def _explains_attributes(case: Case, operation: Operation, attributes: dict[str, Value]) -> bool:
    changed = replace(operation, attributes=tuple(attributes.items()))
    return case.explains(case.right.run({}, (changed,)))


def _shown(value: Value) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def find_missing(case: Case) -> Iterator[Cause]:
    """An operation of one side without which it gives what the other does."""
    for word, absent, side, explains in (
        ("left", "right", case.left, case.explains_left),
        ("right", "left", case.right, case.explains),
    ):
        for node in side.part.nodes:
            for source, rest in _without(side, node):
                if explains(side.run({}, rest)):
                    yield _missing(side, node, source, word, absent)
                    return


def _without(side: Computation, node: Node) -> Iterator[tuple[Tensor, tuple[Node, ...]]]:
    """The operations of a side without one of them: what it reads stands for what it makes."""
    results = listed(node.outputs)
    if not isinstance(node, Operation) or len(results) != 1:
        return
    for source in listed(node.inputs):
        if source.shape == results[0].shape:
            copy = copy_of(source, results[0])
            yield source, tuple(copy if item is node else item for item in side.part.nodes)


def _missing(side: Computation, node: Node, source: Tensor, word: str, absent: str) -> Cause:
    """What is missing, by what the operation does to its numbers."""
    result = listed(node.outputs)[0]
    before, after = side.values.get(source.name), side.values.get(result.name)
    found = None if before is None or after is None else relate(numbers_of(before), numbers_of(after))
    what = f"{word_of(node)}, which the {word} has, is missing on the {absent}"
    kinds = {
        "scale": "scale missing",
        "bias": "bias missing",
        "offset": "bias missing",
        "transposed": "layout",
        "precision": "accumulate type",
    }
    if found is None:
        return Cause("operation missing", what, node)
    return Cause(kinds.get(found.kind, "operation missing"), f"{what}: its result {found.words}", node)
