"""Join transpositions that follow each other.

`transpose(transpose(x, p), q) = transpose(x, p[q])`, and `transpose(x, p) = x` where `p` changes nothing.
The transpositions of ATen are joined to `aten.permute`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypeAlias

from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor, Value
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite
from lamella.ops.library import Library

TRANSPOSE = "layout.transpose"
PERMUTE = "aten.permute"
Order: TypeAlias = tuple[int, ...]
"""For each dimension of the result, the dimension of the source that it is."""


def cancel_transposes(model: Model) -> Model:
    """The model with at most one transposition at a time."""
    return replace(model, graph=rewrite(model.graph, partial(join_transposes, model.library)))


def join_transposes(library: Library, node: Node, walk: RewriteWalk) -> Replacement | None:
    """One transposition for two that follow each other, or none where they undo each other."""
    if not isinstance(node, Operation) or not is_transposition(library, node):
        return None
    (source,), (output,) = node.inputs, node.outputs
    order = order_of(node)
    first = transposed(library, walk, source)
    if first is not None:
        order, source = _compose(order_of(first), order), first.inputs[0]
    if _is_identity(order) and isinstance(source, Tensor) and isinstance(output, Tensor):
        return Replacement(results={output.name: source})
    if first is None:
        return None
    return Replacement((_transposition(node, source, order),))


def order_of(node: Operation) -> Order:
    """The order of a transposition over all dimensions: `y[i[0], …] = x[…]` with `y.shape[k] = x.shape[order[k]]`."""
    (source,) = node.inputs
    rank = len(source.shape) if isinstance(source, Tensor) else 0
    attributes = dict(node.attributes)
    # A permutation says its order by one of three sets of attributes; without any, the dimensions are reversed.
    if "perm" in attributes:
        return _order(rank, attributes["axis"], attributes["perm"])
    if "dims" in attributes:
        return _order(rank, 0, attributes["dims"])
    if "dim0" in attributes:
        return _exchange(rank, attributes["dim0"], attributes["dim1"])
    return tuple(reversed(range(rank)))


def _order(rank: int, axis: Value, perm: Value) -> Order:
    """The dimensions before an axis as they are, those from there on in a given order."""
    if not isinstance(axis, int) or not isinstance(perm, tuple):
        return tuple(range(rank))
    first = axis + rank if axis < 0 else axis
    named = [item + rank if item < 0 else item for item in perm if isinstance(item, int)]
    return (*range(first), *named)


def _exchange(rank: int, first: Value, second: Value) -> Order:
    """All dimensions as they are but for two."""
    order = list(range(rank))
    if rank and isinstance(first, int) and isinstance(second, int):
        order[first], order[second] = order[second], order[first]
    return tuple(order)


def _transposition(node: Operation, source: Argument, order: Order) -> Operation:
    """A transposition in the place of another, in the words of the same library."""
    if node.operator == TRANSPOSE:
        return replace(node, inputs=(source,), attributes=(("axis", 0), ("perm", order)))
    return replace(node, operator=PERMUTE, inputs=(source,), attributes=(("dims", order),))


def _compose(first: Order, second: Order) -> Order:
    """The order of one transposition after another."""
    return tuple(first[axis] for axis in second)


def _is_identity(order: Order) -> bool:
    """Whether an order leaves everything where it is."""
    return order == tuple(range(len(order)))


def transposed(library: Library, walk: RewriteWalk, tensor: Argument) -> Operation | None:
    """The transposition that makes a tensor; None where it is made otherwise, or is quantised."""
    maker = walk.maker(tensor)
    if maker is None or not isinstance(tensor, Tensor) or tensor.quantization is not None:
        return None
    return maker if is_transposition(library, maker) else None


def is_transposition(library: Library, node: Operation) -> bool:
    """Whether an operation puts the dimensions of its input in another order."""
    return "permutation" in library.traits(node.operator)
