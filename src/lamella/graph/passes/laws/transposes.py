"""What a transposition does to the dimensions of a tensor, read off its attributes; ATen has three of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from lamella.graph.nodes import Argument, Operation, Tensor, Value
from lamella.graph.rewrite import Walk

TRANSPOSE = "layout.transpose"
PERMUTE = "aten.permute"
TRANSPOSITIONS = frozenset((TRANSPOSE, PERMUTE, "aten.transpose", "aten.t"))
Order: TypeAlias = tuple[int, ...]
"""For each dimension of the result, the dimension of the source that it is."""


def order_of(node: Operation) -> Order:
    """The order of a transposition over all dimensions: `y[i[0], …] = x[…]` with `y.shape[k] = x.shape[order[k]]`."""
    (source,) = node.inputs
    rank = len(source.shape) if isinstance(source, Tensor) else 0
    attributes = dict(node.attributes)
    if node.operator == "aten.t":
        return tuple(reversed(range(rank)))
    if node.operator == "aten.transpose":
        return _exchange(rank, attributes["dim0"], attributes["dim1"])
    if node.operator == PERMUTE:
        return _order(rank, 0, attributes["dims"])
    return _order(rank, attributes["axis"], attributes["perm"])


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


def transposition(node: Operation, source: Argument, order: Order) -> Operation:
    """A transposition in the place of another, in the words of the same library."""
    if node.operator == TRANSPOSE:
        return replace(node, inputs=(source,), attributes=(("axis", 0), ("perm", order)))
    return replace(node, operator=PERMUTE, inputs=(source,), attributes=(("dims", order),))


def compose(first: Order, second: Order) -> Order:
    """The order of one transposition after another."""
    return tuple(first[axis] for axis in second)


def is_identity(order: Order) -> bool:
    """Whether an order leaves everything where it is."""
    return order == tuple(range(len(order)))


def transposed(walk: Walk, tensor: Argument) -> Operation | None:
    """The transposition that makes a tensor; None where it is made otherwise, or is quantised."""
    found = walk.maker(tensor)
    plain = isinstance(tensor, Tensor) and tensor.quantization is None
    return found if plain and found is not None and found.operator in TRANSPOSITIONS else None
