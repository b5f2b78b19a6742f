"""What a transposition does to the dimensions of a tensor, read off its attributes."""

from __future__ import annotations

from typing import TypeAlias

from lamella.graph.nodes import Argument, Operation, Tensor
from lamella.graph.rewrite import Walk

TRANSPOSE = "layout.transpose"
Order: TypeAlias = tuple[int, ...]
"""For each dimension of the result, the dimension of the source that it is."""


def order_of(node: Operation) -> Order:
    """The order of a transposition over all dimensions: `y[i[0], …] = x[…]` with `y.shape[k] = x.shape[order[k]]`."""
    (source,) = node.inputs
    rank = len(source.shape) if isinstance(source, Tensor) else 0
    attributes = dict(node.attributes)
    axis, perm = attributes["axis"], attributes["perm"]
    if not isinstance(axis, int) or not isinstance(perm, tuple):
        return tuple(range(rank))
    first = axis + rank if axis < 0 else axis
    named = [item + rank if item < 0 else item for item in perm if isinstance(item, int)]
    return (*range(first), *named)


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
    return found if plain and found is not None and found.operator == TRANSPOSE else None
