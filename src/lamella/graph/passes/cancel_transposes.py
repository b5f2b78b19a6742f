"""Join transpositions that follow each other.

`transpose(transpose(x, p), q) = transpose(x, p[q])`, and `transpose(x, p) = x` where `p` changes nothing.
The transpositions of ATen are joined to `aten.permute`.
"""

from __future__ import annotations

from dataclasses import replace

from lamella.graph.model import Model
from lamella.graph.nodes import Node, Operation, Tensor
from lamella.graph.passes.laws.transposes import (
    TRANSPOSITIONS,
    compose,
    is_identity,
    order_of,
    transposed,
    transposition,
)
from lamella.graph.rewrite import Change, Walk, rewrite


def cancel_transposes(model: Model) -> Model:
    """The model with at most one transposition at a time."""
    return replace(model, graph=rewrite(model.graph, join))


def join(node: Node, walk: Walk) -> Change | None:
    """One transposition for two that follow each other, or none where they undo each other."""
    if not isinstance(node, Operation) or node.operator not in TRANSPOSITIONS:
        return None
    (source,), (output,) = node.inputs, node.outputs
    order = order_of(node)
    first = transposed(walk, source)
    if first is not None:
        order, source = compose(order_of(first), order), first.inputs[0]
    if is_identity(order) and isinstance(source, Tensor) and isinstance(output, Tensor):
        return Change(results={output.name: source})
    if first is None:
        return None
    return Change((transposition(node, source, order),))
