"""Hypotheses on operands: weights that differ, operands that are exchanged, laid out otherwise or held narrower.

Each is tested: the right side is computed again with the operand changed, and is to give the numbers of the left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, permutations

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.graph.nodes import Constant, Operation, Tensor
from lamella.pipeline.diff.causes.case import Case, Cause
from lamella.pipeline.diff.causes.relations import (
    GATES,
    Relation,
    blocks,
    rearrangements,
    relate,
)
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.diff.gap import is_close, measure, numbers_of

LARGEST = 1 << 22
"""Numbers of an operand up to which it is rearranged."""
MOST, FEWEST = 400, 8
"""Rearrangements that are tried of one operand: many of small ones, few of large ones."""
WORK = 20_000_000
"""Numbers that are rearranged and computed in all."""
NAMED = {"transposed": "transposed weight", "block order": "gate order", "interleaved": "rope layout"}
GATE_KINDS = {2: "gate and up", 3: "gates or projections", 4: "gates"}


def find_weights(case: Case) -> Iterator[Cause]:
    """Operands that correspond by name and hold other numbers."""
    wrong = [
        (one, other)
        for one, other in case.borders
        if one in case.left.operands
        and other in case.right.operands
        and measure("", case.left.values[one], case.right.values[other]).relative > case.tolerance
        and case.left.values[one].shape == case.right.values[other].shape
        and not _is_laid_out(case, one, other)
    ]
    if not wrong:
        return
    changed = {other: case.left.values[one] for one, other in wrong}
    if case.explains(case.right.run(changed)):
        for one, other in wrong:
            yield _weight(case, one, other, wrong)


def _is_laid_out(case: Case, one: str, other: str) -> bool:
    """Whether operands under other names are known to be the same numbers in another layout."""
    return one != other and is_close(
        np.sort(numbers_of(case.left.values[one]), axis=None),
        np.sort(numbers_of(case.right.values[other]), axis=None),
        1e-5,
    )


def _weight(case: Case, one: str, other: str, wrong: Sequence[tuple[str, str]]) -> Cause:
    """What is known about a weight that differs."""
    mine, theirs = numbers_of(case.left.values[one]), numbers_of(case.right.values[other])
    for name, value in case.left.values.items():
        if name != one and value.shape == theirs.shape and is_close(numbers_of(value), theirs, 1e-6):
            words = f"'{printable(other)}' of the right holds what '{printable(name)}' of the left does"
            return Cause("exchanged weights", words)
    found = relate(mine, theirs) or Relation("weights", "holds other numbers")
    kind = NAMED.get(found.kind, "weights" if found.kind == "order" else found.kind)
    return Cause(kind, f"'{printable(other)}' {found.words}, against '{printable(one)}' of the left")


# --- other constants ----------------------------------------------------------------------------------------


def find_constants(case: Case) -> Iterator[Cause]:
    """Single operations that read other constants."""
    left, right = case.left.single, case.right.single
    if left is None or right is None or left.operator != right.operator:
        return
    known = [
        {item.tensor.name: item for item in side.part.model.graph.constants}
        for side in (case.left, case.right)
    ]
    for place, (mine, theirs) in enumerate(zip(left.inputs, right.inputs, strict=False)):
        pair = [
            names.get(item.name) if isinstance(item, Tensor) else None
            for names, item in zip(known, (mine, theirs), strict=True)
        ]
        if pair[0] is None or pair[1] is None or pair[0].value == pair[1].value:
            continue
        if case.explains(_with_constant(case, right, place, pair[0])):
            yield _constant(case, place, pair[0], pair[1])


def _with_constant(case: Case, operation: Operation, place: int, constant: Constant) -> Array | None:
    """The right operation with a constant of the left."""
    tensor = replace(constant.tensor, name=f"{constant.tensor.name} of the left")
    inputs = (*operation.inputs[:place], tensor, *operation.inputs[place + 1 :])
    graph = case.right.part.model.graph
    model = replace(
        case.right.part.model,
        graph=replace(graph, constants=(*graph.constants, Constant(tensor, constant.value))),
    )
    part = replace(case.right.part, model=model, nodes=(replace(operation, inputs=inputs),))
    return part.run(case.right.values)


def _constant(case: Case, place: int, one: Constant, other: Constant) -> Cause:
    values = [item.value if not isinstance(item.value, tuple) else "several numbers" for item in (one, other)]
    words = f"operand {place + 1} is {values[0]} on the left, {values[1]} on the right"
    small = all(isinstance(value, float) and 0 <= value < 1e-2 for value in values)
    return Cause("eps" if small else "constant", words)


# --- operands of another place ------------------------------------------------------------------------------


def find_wiring(case: Case) -> Iterator[Cause]:
    """Operations that read the same tensors in another order, or another tensor."""
    operation = case.right.single
    if operation is None:
        return
    names = [item.name for item in listed(operation.inputs) if item.name in case.right.values]
    shapes = {name: case.right.values[name].shape for name in names}
    for first in range(len(names)):
        for second in range(first + 1, len(names)):
            one, other = names[first], names[second]
            if shapes[one] == shapes[other] and one != other:
                changed = {one: case.right.values[other], other: case.right.values[one]}
                if case.explains(case.right.run(changed)):
                    yield Cause(
                        "swapped operands",
                        f"operands {first + 1} and {second + 1} are exchanged on the right",
                    )
                    return
    yield from _other_operand(case, operation, names)


def _other_operand(case: Case, operation: Operation, names: Sequence[str]) -> Iterator[Cause]:
    """A right operation that reads another tensor than the left one does in the same place."""
    left = case.left.single
    if left is None or left.operator != operation.operator:
        return
    mine = [item.name for item in listed(left.inputs) if item.name in case.left.values]
    if len(mine) != len(names):
        return
    for place, (one, other) in enumerate(zip(mine, names, strict=True)):
        value = case.left.values[one]
        there = case.right.values[other]
        if (one, other) in case.borders or value.shape != there.shape:
            continue
        if case.explains(case.right.run({other: value})):
            yield _other(case, place, one, other)
            return


def _other(case: Case, place: int, one: str, other: str) -> Cause:
    """An operand that is another one, or a variable whose numbers are made from the left's.

    Where a divergence stands alone its weights are inputs, one of each side where they differ.
    """
    graph = case.right.part.model.graph
    leaves = {item.name for item in (*graph.variables, *listed(graph.inputs))}
    found = relate(numbers_of(case.left.values[one]), numbers_of(case.right.values[other]))
    if other in leaves and found is not None and found.kind != "order":
        words = f"'{printable(other)}' {found.words}, against '{printable(one)}' of the left"
        return Cause(NAMED.get(found.kind, found.kind), words)
    words = f"operand {place + 1} is '{printable(one)}' on the left, '{printable(other)}' on the right"
    return Cause("other operand", words)


# --- operands laid out otherwise ----------------------------------------------------------------------------


def find_layouts(case: Case) -> Iterator[Cause]:
    """Operands that the right side takes for laid out otherwise than the left does."""
    for name, value in case.right.operands.items():
        if value.ndim == 0 or value.size > LARGEST or value.dtype.kind not in "fV":
            continue
        most = max(FEWEST, min(MOST, WORK // (value.size + case.right.output.size)))
        for change in islice(rearrangements(value.shape), most):
            changed = change.apply(numbers_of(value)).astype(value.dtype)
            if not np.array_equal(changed, value) and case.explains(case.right.run({name: changed})):
                kind = NAMED.get(change.kind, "layout")
                yield Cause(
                    kind, f"as the left reads it, '{printable(name)}' of the right {_is(change.words)}"
                )
                return
    yield from _gates(case)


def _is(words: str) -> str:
    return f"is {words}" if words.startswith(("transposed", "permuted")) else words


def _gates(case: Case) -> Iterator[Cause]:
    """Blocks of several weights at once in another order: gates of a recurrent layer."""
    sizes = [value.shape[0] for value in case.right.operands.values() if value.ndim]
    for extent in sorted({size for size in sizes if sizes.count(size) > 1}, reverse=True):
        for count in (item for item in GATES if extent % item == 0 and extent > item):
            for order in permutations(range(count)):
                places = blocks(extent, order)
                changed = {
                    name: value[places]
                    for name, value in case.right.operands.items()
                    if value.ndim and value.shape[0] == extent
                }
                if order != tuple(range(count)) and case.explains(case.right.run(changed)):
                    words = (
                        f"the {GATE_KINDS[count]} of the right are in the order {list(order)} of the left's"
                    )
                    yield Cause("gate order", words)
                    return
