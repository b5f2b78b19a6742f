"""Fold transpositions of matrices into the flags of their products.

    matmul{transB=t}(A, transpose(B)) = matmul{transB=!t}(A, B)

and likewise for A: `x · weight.t()` reads the weight as it lies in memory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lamella.graph.model import Model
from lamella.graph.nodes import Node, Operation, Tensor
from lamella.graph.passes.cancel_transposes import order_of, transposed
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite
from lamella.ops.library import Library

FLAGS = ("transA", "transB")
"""The attributes by which an operator reads its first and its second operand transposed."""


def fold_transposes(model: Model) -> Model:
    """The model whose products read matrices as they are in memory."""
    return replace(model, graph=rewrite(model.graph, partial(_visit, model.library)))


def _visit(library: Library, node: Node, walk: RewriteWalk) -> Replacement | None:
    if not isinstance(node, Operation) or not set(FLAGS) <= {name for name, _ in node.attributes}:
        return None
    inputs, attributes = list(node.inputs), dict(node.attributes)
    for number, flag in enumerate(FLAGS):
        first = transposed(library, walk, inputs[number])
        if first is not None and _exchanges_last(order_of(first)) and isinstance(first.inputs[0], Tensor):
            inputs[number] = first.inputs[0]
            attributes[flag] = not attributes[flag]
    if inputs == list(node.inputs):
        return None
    return Replacement((replace(node, inputs=tuple(inputs), attributes=tuple(attributes.items())),))


def _exchanges_last(order: tuple[int, ...]) -> bool:
    """Whether an order exchanges the last two dimensions and nothing else."""
    rank = len(order)
    return rank >= 2 and order == (*range(rank - 2), rank - 1, rank - 2)
