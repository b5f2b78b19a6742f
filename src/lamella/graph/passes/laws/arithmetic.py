"""Laws of arithmetic that are exact, bit by bit, for the element type they are used on."""

from __future__ import annotations

import math
from dataclasses import replace

from lamella.graph.nodes import Constant, Operation, Single, Tensor
from lamella.graph.passes.laws.combining import SUMS, remaining, sum_of
from lamella.graph.passes.laws.reading import Law, before, inputs_of, is_number, uniform, zero
from lamella.graph.rewrite import Walk

_NEGATIONS = frozenset(("math.neg", "aten.neg"))


# --- neutral elements ---------------------------------------------------------------------------------------


def drop_right(number: int) -> Law:
    """`f(x, number) = x`."""

    def law(node: Operation, walk: Walk) -> Tensor | None:
        x, y = inputs_of(node)
        return x if is_number(uniform(walk, y), number) else None

    return law


def divide(node: Operation, walk: Walk) -> Tensor | None:
    """A quotient by one that is not rounded."""
    x, y = inputs_of(node)
    rounded = dict(node.attributes).get("rounding_mode") is not None
    return x if not rounded and is_number(uniform(walk, y), 1) else None


def divide_down(node: Operation, walk: Walk) -> Tensor | None:
    """A quotient of integers by one."""
    x, y = inputs_of(node)
    return x if x.element.is_integer and is_number(uniform(walk, y), 1) else None


def add(node: Operation, walk: Walk) -> Tensor | Constant | None:
    """A sum or a difference with zero, or of integers where terms cancel."""
    pair = sum_of(node)
    if pair is None:
        return None
    integer = pair.left.element.is_integer
    if _is_nothing(uniform(walk, pair.right), pair.weight, integer):
        return pair.left
    if pair.weight == 1 and _is_nothing(uniform(walk, pair.left), 1, integer):
        return pair.right
    return _cancel(node, walk) if integer else None


def _is_nothing(value: Single | None, weight: int | float, integer: bool) -> bool:
    """Whether `x + weight · value = x`: for integers any zero, in floating types the negative one alone."""
    if integer and weight == 0:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    if 0 not in (value, weight) or not math.isfinite(weight):
        return False
    return integer or math.copysign(1.0, value) * math.copysign(1.0, weight) < 0


def _cancel(node: Operation, walk: Walk) -> Tensor | Constant | None:
    found = remaining(node, walk, SUMS, sum_of)
    if found is None:
        return None
    return next(iter(found.values())) if found else zero(node)


def multiply(node: Operation, walk: Walk) -> Tensor | Constant | None:
    """A product with one, and for integers with zero."""
    x, y = inputs_of(node)
    for factor, other in ((y, x), (x, y)):
        value = uniform(walk, factor)
        if is_number(value, 1):
            return other
        if is_number(value, 0) and other.element.is_integer:
            return zero(node)
    return None


def either(node: Operation, walk: Walk) -> Tensor | None:
    """`f(x, x) = x`."""
    x, y = inputs_of(node)
    return x if x.name == y.name else None


# --- one operation after another ----------------------------------------------------------------------------


def undo(node: Operation, walk: Walk) -> Tensor | None:
    """`f(f(x)) = x`."""
    first = before(node.inputs[0], walk, frozenset((node.operator,)))
    return inputs_of(first)[0] if first else None


def repeat(node: Operation, walk: Walk) -> Tensor | None:
    """`f(f(x)) = f(x)`."""
    return inputs_of(node)[0] if before(node.inputs[0], walk, frozenset((node.operator,))) else None


def absolute(node: Operation, walk: Walk) -> Tensor | Operation | None:
    """The absolute value of an absolute value, or of a negative; zeros keep their sign, so only of integers."""
    negated = before(node.inputs[0], walk, _NEGATIONS)
    if negated is not None and inputs_of(node)[0].element.is_integer:
        return replace(node, inputs=negated.inputs)
    return repeat(node, walk)


# --- copies and choices -------------------------------------------------------------------------------------


def keep(node: Operation, walk: Walk) -> Tensor | None:
    """An operation that copies: its input stands for its output where their types and shapes are the same."""
    return inputs_of(node)[0]


def clamp(node: Operation, walk: Walk) -> Tensor | None:
    """Bounds that are not there."""
    return inputs_of(node)[0] if len(inputs_of(node)) == 1 else None


def choose(node: Operation, walk: Walk) -> Tensor | Operation | None:
    """A choice whose condition is known, or between a tensor and itself."""
    condition, x, y = inputs_of(node)
    value = uniform(walk, condition)
    if x.name == y.name:
        return x
    return spread(node, x if value else y) if isinstance(value, bool | int) else None


def unmask(node: Operation, walk: Walk) -> Tensor | Operation | None:
    """A mask that is the same everywhere: all of the tensor, or the one value."""
    x, mask, value = inputs_of(node)
    known = uniform(walk, mask)
    return spread(node, value if known else x) if isinstance(known, bool | int) else None


def spread(node: Operation, source: Tensor) -> Tensor | Operation | None:
    """A tensor in the shape of an operation's result; what stretches it is ATen's, and only in a graph of ATen."""
    output = node.outputs[0]
    if not isinstance(output, Tensor):
        return None
    if source.shape == output.shape:
        return source
    static = all(isinstance(extent, int) for extent in (*source.shape, *output.shape))
    if not node.operator.startswith("aten.") or not static:
        return None
    return Operation(
        "aten.expand",
        (source,),
        node.outputs,
        (("size", output.shape),),
        (("T", source.element),),
        origin=node.origin,
    )
