"""Fold transpositions of matrices into the flags of their products.

    matmul{transB=t}(A, transpose(B)) = matmul{transB=!t}(A, B)

and likewise for A: `x · weight.t()` reads the weight as it lies in memory. That a flag means this is seen in the
formulas, which read the operand with its last two indices exchanged and are the same otherwise: an operator may have
such flags for another reason, as the gradient of a product has, whose result is transposed with its operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial

from lamella.base.errors import Found
from lamella.graph.binding import bind_operation
from lamella.graph.model import Model
from lamella.graph.nodes import Node, Operation, Tensor
from lamella.graph.passes.cancel_transposes import order_of, transposed
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Element, Guard, Lookup
from lamella.ops.library import Library
from lamella.ops.lower import contractions

FLAGS = ("transA", "transB")
"""The attributes by which an operator reads its first and its second operand transposed."""


def fold_transposes(model: Model) -> Model:
    """The model whose products read matrices as they are in memory."""
    return replace(model, graph=rewrite(model.graph, partial(_visit, model.library)))


def _visit(library: Library, node: Node, walk: RewriteWalk) -> Replacement | None:
    if not isinstance(node, Operation) or not set(FLAGS) <= {name for name, _ in node.attributes}:
        return None
    found = node
    for number, flag in enumerate(FLAGS):
        first = transposed(library, walk, node.inputs[number])
        if first is not None and _exchanges_last(order_of(first)) and isinstance(first.inputs[0], Tensor):
            inputs, attributes = list(found.inputs), dict(found.attributes)
            inputs[number] = first.inputs[0]
            attributes[flag] = not attributes[flag]
            made = replace(found, inputs=tuple(inputs), attributes=tuple(attributes.items()))
            found = made if _only_reads_transposed(library, found, made, number) else found
    return None if found is node else Replacement((found,))


def _only_reads_transposed(library: Library, first: Operation, second: Operation, number: int) -> bool:
    """Whether two operations compute the same but for the order in which they read an operand's last dimensions."""
    try:
        instance = bind_operation(library, first)
        name = instance.inputs[number][0]
        before, after = contractions(instance), contractions(bind_operation(library, second))
    except (Fault, Found):
        return False
    if not before:  # a composition: what its parts make of a flag is not looked at
        return False
    pairs = [(item.loops, item.sign) for item in before], [(item.loops, item.sign) for item in after]
    one, two = ([(item.targets, item.values, item.condition) for item in side] for side in (before, after))
    return pairs[0] == pairs[1] and _agree(one, two, name)


def _agree(one: object, two: object, name: str) -> bool:
    """Whether terms are the same, an operand's last two indices exchanged in the second; shared ones are met once."""
    waiting: list[tuple[object, object]] = [(one, two)]
    done: dict[tuple[int, int], tuple[object, object]] = {}
    while waiting:
        left, right = waiting.pop()
        if (id(left), id(right)) in done:
            continue
        # Held, so that no later term gets the number of one that is gone.
        done[id(left), id(right)] = left, right
        if type(left) is not type(right):
            return False
        if isinstance(left, Element) and isinstance(right, Element) and left.tensor == name:
            *outer, row, column = left.indices
            left = replace(left, indices=(*outer, column, row))
        if isinstance(left, tuple | list) and isinstance(right, tuple | list):
            sides: tuple[Sequence[object], ...] = left, right
        elif isinstance(left, Element | Apply | Guard | Lookup):
            sides = _parts(left), _parts(right)
        elif left != right:
            return False
        else:
            continue
        if len(sides[0]) != len(sides[1]):
            return False
        waiting += zip(*sides, strict=True)
    return True


def _parts(term: object) -> list[object]:
    """What a term is made of."""
    return [getattr(term, item.name) for item in fields(term)] if is_dataclass(term) else []


def _exchanges_last(order: tuple[int, ...]) -> bool:
    """Whether an order exchanges the last two dimensions and nothing else."""
    rank = len(order)
    return rank >= 2 and order == (*range(rank - 2), rank - 1, rank - 2)
