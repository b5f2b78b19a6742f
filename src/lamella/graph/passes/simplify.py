"""Leave out arithmetic that changes nothing.

    x - 0 = x     x * 1 = x     x / 1 = x     x ** 1 = x     -(-x) = x     !(!x) = x     min(x, x) = x
    cast<T>(x: T) = x     f(f(x)) = f(x) for abs, sign, floor, ceil, round     abs(-x) = abs(x)
    reshape(reshape(x)) = reshape(x), and = x where the shape is the same

Only what is exact for the element type is done. For integers `x + 0 = x` and `x * 0 = 0`; for floating types `x + 0`
turns -0 into 0, and `x * 0` is not 0 for infinities and NaN, so both stay (`x + -0` goes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Node, Operation, Single, Tensor, Value
from lamella.graph.rewrite import Change, Walk, rewrite

Law: TypeAlias = Callable[[Operation, Walk], Tensor | Operation | Constant | None]


def simplify(model: Model) -> Model:
    """The model without arithmetic that changes nothing."""
    return replace(model, graph=rewrite(model.graph, _visit))


def _visit(node: Node, walk: Walk) -> Change | None:
    law = _LAWS.get(node.operator) if isinstance(node, Operation) else None
    if law is None or not isinstance(node, Operation):
        return None
    found = law(node, walk)
    if isinstance(found, Operation):
        return Change((found,))
    output = node.outputs[0]
    if not isinstance(output, Tensor) or found is None:
        return None
    if isinstance(found, Constant):
        return None if output.name in walk.outputs else Change(constants=(found,))
    return Change(results={output.name: found})


def _inputs(node: Operation) -> tuple[Tensor, ...]:
    return tuple(item for item in node.inputs if isinstance(item, Tensor))


def _uniform(walk: Walk, tensor: Argument) -> Single | None:
    """The one value of a tensor that is constant and the same everywhere."""
    constant = walk.constant(tensor)
    if constant is None or constant.tensor.quantization is not None:
        return None
    value = constant.value
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else None
    return value


def _is(value: Single | None, number: int) -> bool:
    """Whether a value is a number, with the sign that a zero has in integers."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value != number:
        return False
    return math.copysign(1.0, value) > 0 or number < 0


# --- neutral elements ---------------------------------------------------------------------------------------


def _drop_right(number: int) -> Law:
    """`f(x, number) = x`."""

    def law(node: Operation, walk: Walk) -> Tensor | None:
        x, y = _inputs(node)
        return x if _is(_uniform(walk, y), number) else None

    return law


def _add(node: Operation, walk: Walk) -> Tensor | None:
    """A sum with zero; in floating types only negative zero changes nothing."""
    x, y = _inputs(node)
    for term, other in ((y, x), (x, y)):
        value = _uniform(walk, term)
        if _is(value, 0) and other.element.is_integer:
            return other
        if isinstance(value, float) and value == 0.0 and math.copysign(1.0, value) < 0:
            return other
    return None


def _mul(node: Operation, walk: Walk) -> Tensor | Constant | None:
    """A product with one, and for integers with zero."""
    x, y = _inputs(node)
    for factor, other in ((y, x), (x, y)):
        value = _uniform(walk, factor)
        if _is(value, 1):
            return other
        if _is(value, 0) and other.element.is_integer:
            return _zero(node)
    return None


def _zero(node: Operation) -> Constant | None:
    output = node.outputs[0]
    static = isinstance(output, Tensor) and all(isinstance(extent, int) for extent in output.shape)
    return (
        Constant(output, 0) if static and isinstance(output, Tensor) and output.quantization is None else None
    )


def _either(node: Operation, walk: Walk) -> Tensor | None:
    """`f(x, x) = x`."""
    x, y = _inputs(node)
    return x if x.name == y.name else None


# --- one operation after another ----------------------------------------------------------------------------


def _before(node: Operation, walk: Walk, operators: tuple[str, ...]) -> Operation | None:
    """The operation that makes the input, where it is one of these and its result is not quantised."""
    found = walk.maker(node.inputs[0])
    if found is None or found.operator not in operators:
        return None
    return (
        found
        if all(isinstance(item, Tensor) and item.quantization is None for item in found.outputs)
        else None
    )


def _undo(node: Operation, walk: Walk) -> Tensor | None:
    """`f(f(x)) = x`."""
    first = _before(node, walk, (node.operator,))
    return _inputs(first)[0] if first else None


def _repeat(node: Operation, walk: Walk) -> Tensor | None:
    """`f(f(x)) = f(x)`."""
    return _inputs(node)[0] if _before(node, walk, (node.operator,)) else None


def _abs(node: Operation, walk: Walk) -> Tensor | Operation | None:
    negated = _before(node, walk, ("math.neg",))
    return replace(node, inputs=negated.inputs) if negated else _repeat(node, walk)


def _keep(node: Operation, walk: Walk) -> Tensor | None:
    """An operation that copies: its input stands for its output where their types and shapes are the same."""
    return _inputs(node)[0]


def _gather_shapes(node: Operation, walk: Walk) -> Tensor | Operation | None:
    """Row-major order is the same before and after, so the first input can be given the last shape at once."""
    first = _before(node, walk, tuple(_RESHAPING))
    source, output = (_inputs(first) if first else _inputs(node))[0], node.outputs[0]
    if not isinstance(output, Tensor):
        return None
    if source.shape == output.shape:
        return source
    static = all(isinstance(extent, int) and extent > 0 for extent in (*source.shape, *output.shape))
    return _reshape(source, node, output) if first and static else None


def _reshape(source: Tensor, node: Operation, output: Tensor) -> Operation:
    attributes: tuple[tuple[str, Value], ...] = (
        ("axis", 0),
        ("rank", len(source.shape)),
        ("shape", output.shape),
    )
    return replace(node, operator="layout.reshape", inputs=(source,), attributes=attributes)


def _same_shape(node: Operation, walk: Walk) -> Tensor | None:
    """An operation that only repeats what is there."""
    source, output = _inputs(node)[0], node.outputs[0]
    return source if isinstance(output, Tensor) and source.shape == output.shape else None


def _slice(node: Operation, walk: Walk) -> Tensor | None:
    """A slice of everything, forwards."""
    strides = dict(node.attributes).get("stride")
    forwards = isinstance(strides, tuple) and all(step == 1 for step in strides)
    return _same_shape(node, walk) if forwards else None


def _single(node: Operation, walk: Walk) -> Tensor | None:
    """An operation on a pack of one tensor; a sum begins with 0, which only integers do not notice."""
    pack = node.inputs[0]
    if not isinstance(pack, tuple) or len(pack) != 1:
        return None
    return None if node.operator == "math.sum_n" and pack[0].element.is_float else pack[0]


_RESHAPING: Mapping[str, Law] = MappingProxyType(
    dict.fromkeys(
        ("layout.reshape", "layout.flatten", "layout.unflatten", "layout.squeeze", "layout.unsqueeze"),
        _gather_shapes,
    )
)
_LAWS: Mapping[str, Law] = MappingProxyType(
    {
        "math.add": _add,
        "math.sub": _drop_right(0),
        "math.mul": _mul,
        **dict.fromkeys(("math.div", "math.pow"), _drop_right(1)),
        **dict.fromkeys(("math.min", "math.max", "math.and", "math.or"), _either),
        **dict.fromkeys(("math.neg", "math.not"), _undo),
        **dict.fromkeys(("math.sign", "math.floor", "math.ceil", "math.round"), _repeat),
        "math.abs": _abs,
        **dict.fromkeys(("math.iden", "layout.cast"), _keep),
        **_RESHAPING,
        **dict.fromkeys(("layout.tile", "layout.broadcast"), _same_shape),
        "layout.slice": _slice,
        **dict.fromkeys(
            (
                "layout.concat",
                "math.sum_n",
                "math.prod_n",
                "math.min_n",
                "math.max_n",
                "math.any_n",
                "math.all_n",
            ),
            _single,
        ),
    }
)
