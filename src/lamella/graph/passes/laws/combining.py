"""Sums and products of several operations, told term by term.

`sub(add(x, y), y)` is `{x: 1, y: 1} + {y: -1} = {x: 1}`: what is left is the one tensor `x`. Products are told by their
exponents in the same way. For integers this is exact, since they wrap round; for floating types it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from lamella.graph.nodes import Operation, Tensor
from lamella.graph.passes.laws.reading import attribute, before, inputs_of
from lamella.graph.rewrite import Walk

SUMS = frozenset(("math.add", "math.sub", "aten.add", "aten.sub", "aten.rsub"))
PRODUCTS = frozenset(("math.mul", "math.div", "aten.mul", "aten.div"))


@dataclass(frozen=True, slots=True)
class Pair:
    """`left + weight · right`, or `left · right ** weight`."""

    left: Tensor
    right: Tensor
    weight: int | float


Read: TypeAlias = Callable[[Operation], Pair | None]


def sum_of(node: Operation) -> Pair | None:
    """A sum or a difference of two tensors; None where its factor is not a known number."""
    left, right = inputs_of(node)
    alpha = attribute(node, "alpha") if node.operator.startswith("aten.") else 1
    if alpha is None:
        return None
    if node.operator == "aten.rsub":
        return Pair(right, left, -alpha)
    return Pair(left, right, -alpha if node.operator.endswith(".sub") else alpha)


def product_of(node: Operation) -> Pair | None:
    """A product or a quotient of two tensors; None where it is rounded."""
    left, right = inputs_of(node)
    if dict(node.attributes).get("rounding_mode") is not None:
        return None
    return Pair(left, right, -1 if node.operator.endswith(".div") else 1)


def remaining(node: Operation, walk: Walk, operators: frozenset[str], read: Read) -> dict[str, Tensor] | None:
    """What is left of a pair once one of its sides is told by the pair that made it, if that is one tensor or nothing.

    None stands for everything else; the one tensor has the weight 1.
    """
    outer = _read_plain(node, read)
    if outer is None:
        return None
    sides = ((outer.left, 1, outer.right, outer.weight), (outer.right, outer.weight, outer.left, 1))
    for side, weight, other, rest in sides:
        maker = before(side, walk, operators)
        inner = None if maker is None else _read_plain(maker, read)
        if inner is not None:
            terms = ((inner.left, weight), (inner.right, inner.weight * weight), (other, rest))
            found = _sum_up(terms)
            if found is not None:
                return found
    return None


def _read_plain(node: Operation, read: Read) -> Pair | None:
    """A pair whose sides are aligned as all are by default, so that a tensor means the same in two of them."""
    aligned = any(value is not None for name, value in node.attributes if name.endswith("_align"))
    return None if aligned else read(node)


def _sum_up(terms: tuple[tuple[Tensor, int | float], ...]) -> dict[str, Tensor] | None:
    weights: dict[str, int | float] = {}
    for tensor, weight in terms:
        weights[tensor.name] = weights.get(tensor.name, 0) + weight
    kept = [name for name, weight in weights.items() if weight != 0]
    if len(kept) > 1 or any(weights[name] != 1 for name in kept):
        return None
    return {tensor.name: tensor for tensor, _ in terms if tensor.name in kept}
