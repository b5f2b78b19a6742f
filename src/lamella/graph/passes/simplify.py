"""Leave out arithmetic that changes nothing.

    x - 0 = x     x * 1 = x     x / 1 = x     x ** 1 = x     -(-x) = x     !(!x) = x     min(x, x) = x
    cast<T>(x: T) = x     cast<T>(cast<R>(x: T)) = x where R is wider     f(f(x)) = f(x) for abs, sign, relu, roundings
    reshape(reshape(x)) = reshape(x), and = x where the shape is the same; likewise what repeats, pads, cuts nothing
    where(true, x, y) = x     where(c, x, x) = x     clamp(x) = x     zeros_like(x) = zeros, without x

The operators of ATen have the laws of those of the library; copies (clone, alias, detach, dropout) go. A sum with a
factor, `x + alpha * y`, is one with `alpha * y`.

Only what is exact for the element type is done. For integers `x + 0 = x`, `x * 0 = 0`, `(x + y) - y = x` and
`abs(-x) = abs(x)`; for floating types `x + 0` turns -0 into 0, `x * 0` is not 0 for infinities and NaN, sums are
rounded, and the absolute value of a zero keeps its sign, so these stay (`x + -0` goes). `relax` does what is left of
sums and products.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from lamella.base.dtype import ElementType, Kind
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Operation, Single, Tensor
from lamella.graph.passes.laws import shapes
from lamella.graph.passes.laws.combining import SUMS, remaining, sum_of
from lamella.graph.passes.laws.reading import Law, applying, before, inputs_of, is_number, uniform, zero
from lamella.graph.rewrite import Walk, rewrite

# --- laws of arithmetic that are exact, bit by bit, for the element type they are used on -------------------


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


# --- laws of conversions between element types --------------------------------------------------------------


CASTS = frozenset(("layout.cast", "aten.to_copy", "aten.type_as"))
_DIGITS: Mapping[str, int] = MappingProxyType({"bf16": 8, "f16": 11, "f32": 24, "f64": 53})
"""Bits of an integer that a floating type still says exactly."""
_WIDER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"bf16": ("f32", "f64"), "f16": ("f32", "f64"), "f32": ("f64",)}
)


def cast(node: Operation, walk: Walk) -> Tensor | None:
    """A cast to the type that is there, or back from one that says everything the first type says."""
    source, output = inputs_of(node)[0], node.outputs[0]
    first = before(source, walk, CASTS)
    if first is None or not isinstance(output, Tensor) or source.element == output.element:
        return source
    start = inputs_of(first)[0]
    return start if start.element == output.element and says_all(source.element, start.element) else None


def says_all(wide: ElementType, narrow: ElementType) -> bool:
    """Whether each value of a type is one of another type too."""
    if narrow.kind is Kind.BOOL:
        return wide.is_integer or wide.name in _DIGITS
    if narrow.is_float:
        return wide.name in _WIDER.get(narrow.name, ())
    if not narrow.is_integer:
        return False
    if wide.is_integer:
        return wide.minimum <= narrow.minimum and narrow.maximum <= wide.maximum
    return wide.is_float and narrow.bits <= _DIGITS.get(wide.name, 0)


def simplify(model: Model) -> Model:
    """The model without arithmetic that changes nothing."""
    return replace(model, graph=rewrite(model.graph, applying(_LAWS)))


_LIBRARY: Mapping[Law, str] = MappingProxyType(
    {
        add: "math.add math.sub",
        multiply: "math.mul",
        drop_right(1): "math.div math.pow aten.pow",
        either: "math.min math.max math.and math.or",
        undo: "math.neg math.not",
        repeat: "math.sign math.floor math.ceil math.round nn.relu",
        absolute: "math.abs",
        keep: "math.iden",
        choose: "math.select",
        shapes.same_shape: "layout.tile layout.broadcast",
        shapes.cut: "layout.slice",
        shapes.single: "layout.concat math.sum_n math.prod_n math.min_n math.max_n math.any_n math.all_n",
        cast: " ".join(sorted(CASTS)),
        shapes.gather_shapes: " ".join(sorted(shapes.RESHAPING)),
    }
)
_ATEN: Mapping[Law, str] = MappingProxyType(
    {
        add: "add sub rsub",
        multiply: "mul",
        divide: "div",
        divide_down: "floor_divide",
        either: "minimum maximum min_other max_other logical_and logical_or bitwise_and bitwise_or",
        undo: "neg bitwise_not logical_not",
        repeat: "sign floor ceil round trunc relu",
        absolute: "abs",
        keep: "clone alias detach dropout",
        clamp: "clamp",
        choose: "where",
        unmask: "masked_fill",
        shapes.same_shape: "expand repeat slice narrow pad constant_pad_nd",
        shapes.put: "copy",
        shapes.single: "cat",
        shapes.undivided: "split split_with_sizes chunk",
        shapes.undropped: "native_dropout",
        shapes.fill_zeros: "zeros_like new_zeros empty_like new_empty",
        shapes.fill_ones: "ones_like new_ones",
        shapes.fill_value: "full_like fill new_full",
    }
)
_LAWS: Mapping[str, Law] = MappingProxyType(
    {
        **{name: law for law, names in _LIBRARY.items() for name in names.split()},
        **{f"aten.{name}": law for law, names in _ATEN.items() for name in names.split()},
    }
)
