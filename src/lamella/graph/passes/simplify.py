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

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from lamella.graph.model import Model
from lamella.graph.passes.laws import arithmetic, casts, shapes
from lamella.graph.passes.laws.reading import Law, applying
from lamella.graph.rewrite import rewrite


def simplify(model: Model) -> Model:
    """The model without arithmetic that changes nothing."""
    return replace(model, graph=rewrite(model.graph, applying(_LAWS)))


_LIBRARY: Mapping[Law, str] = MappingProxyType(
    {
        arithmetic.add: "math.add math.sub",
        arithmetic.multiply: "math.mul",
        arithmetic.drop_right(1): "math.div math.pow aten.pow",
        arithmetic.either: "math.min math.max math.and math.or",
        arithmetic.undo: "math.neg math.not",
        arithmetic.repeat: "math.sign math.floor math.ceil math.round nn.relu",
        arithmetic.absolute: "math.abs",
        arithmetic.keep: "math.iden",
        arithmetic.choose: "math.select",
        shapes.same_shape: "layout.tile layout.broadcast",
        shapes.cut: "layout.slice",
        shapes.single: "layout.concat math.sum_n math.prod_n math.min_n math.max_n math.any_n math.all_n",
        casts.cast: " ".join(sorted(casts.CASTS)),
        shapes.gather_shapes: " ".join(sorted(shapes.RESHAPING)),
    }
)
_ATEN: Mapping[Law, str] = MappingProxyType(
    {
        arithmetic.add: "add sub rsub",
        arithmetic.multiply: "mul",
        arithmetic.divide: "div",
        arithmetic.divide_down: "floor_divide",
        arithmetic.either: "minimum maximum min_other max_other logical_and logical_or bitwise_and bitwise_or",
        arithmetic.undo: "neg bitwise_not logical_not",
        arithmetic.repeat: "sign floor ceil round trunc relu",
        arithmetic.absolute: "abs",
        arithmetic.keep: "clone alias detach dropout",
        arithmetic.clamp: "clamp",
        arithmetic.choose: "where",
        arithmetic.unmask: "masked_fill",
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
