"""Leave out arithmetic that changes nothing but for special numbers and rounding.

These equations are the optimiser's of NAC, and hold for real numbers; for floating ones they do not:

    x + 0 = x              but -0 + 0 is 0
    x * 0 = 0              but for infinities and NaN it is NaN, and for negative x it is -0
    (x + y) - y = x        but the sum is rounded, may overflow, and is NaN where y is infinite or NaN
    (x - y) + y = x        likewise
    (x * y) / y = x        but the product is rounded, may overflow or vanish, and y may be 0, infinite or NaN
    (x / y) * y = x        likewise

Terms are found on either side, with equal factors `alpha` too. Integers are left to `simplify`, which does for them
what is exact; quotients of integers are rounded down and stay. Nobody runs this pass unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Operation, Tensor
from lamella.graph.passes.laws.combining import PRODUCTS, SUMS, Read, product_of, remaining, sum_of
from lamella.graph.passes.laws.reading import Law, applying, inputs_of, uniform, zero
from lamella.graph.rewrite import Walk, rewrite


def relax(model: Model) -> Model:
    """The model without arithmetic that would change nothing if numbers were real."""
    return replace(model, graph=rewrite(model.graph, applying(_LAWS)))


def _is_zero(walk: Walk, tensor: Tensor) -> bool:
    value = uniform(walk, tensor)
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def _left(node: Operation, walk: Walk, operators: frozenset[str], read: Read) -> Tensor | None:
    """The one tensor that is left where terms or factors cancel."""
    found = remaining(node, walk, operators, read)
    return next(iter(found.values()), None) if found else None


def _sum(node: Operation, walk: Walk) -> Tensor | None:
    pair = sum_of(node)
    if pair is None or not pair.left.element.is_float:
        return None
    if _is_zero(walk, pair.right):
        return pair.left
    if pair.weight == 1 and _is_zero(walk, pair.left):
        return pair.right
    return _left(node, walk, SUMS, sum_of)


def _product(node: Operation, walk: Walk) -> Tensor | Constant | None:
    x, y = inputs_of(node)
    if not x.element.is_float:
        return None
    if node.operator.endswith(".mul") and (_is_zero(walk, x) or _is_zero(walk, y)):
        return zero(node)
    return _left(node, walk, PRODUCTS, product_of)


_LAWS: Mapping[str, Law] = MappingProxyType(
    {**dict.fromkeys(sorted(SUMS), _sum), **dict.fromkeys(sorted(PRODUCTS), _product)}
)
