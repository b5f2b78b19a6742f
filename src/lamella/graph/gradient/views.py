"""Pullbacks of views: a gradient goes back through what only looks at a tensor as a view again, never as a copy.

    y = reshape(x)        gives    d_x = reshape(d_y)
    y = transpose(x, p)   gives    d_x = transpose(d_y, p⁻¹)
    y = x + z, y = x      give     d_x = d_y,   where x has the shape of y

The derived operators compute the same numbers; of these the passes know that they move nothing.
"""

from __future__ import annotations

from lamella.graph.build import Builder
from lamella.graph.nodes import Operation, Tensor
from lamella.graph.passes.cancel_transposes import TRANSPOSE, order_of
from lamella.ops.library import Library

RESHAPE, PERMUTATION, COPY, LINEAR = "reshape", "permutation", "copy", "linear"
PLAIN = "1"
"""The coefficient of an operand that is added as it is."""


def is_view(library: Library, operator: str) -> bool:
    """Whether an operator only looks at its one tensor: a reshape or a permutation of axes."""
    traits = library.traits(operator)
    return RESHAPE in traits or PERMUTATION in traits


def passes_on(library: Library, node: Operation, number: int) -> bool:
    """Whether the gradient of an operand is that of the result, as it is or seen otherwise."""
    value, result = node.inputs[number], node.outputs[0] if len(node.outputs) == 1 else None
    if not isinstance(value, Tensor) or not isinstance(result, Tensor) or value.element != result.element:
        return False
    if number == 0 and is_view(library, node.operator):
        return True
    traits = library.traits(node.operator)
    added = LINEAR in traits and traits[LINEAR].values[number : number + 1] == (PLAIN,)
    return (COPY in traits or added) and value.shape == result.shape


def pull_view(builder: Builder, node: Operation, number: int, gradient: Tensor) -> Tensor:
    """The gradient of an operand that a view, a copy or a sum passes on."""
    traits, value = builder.library.traits(node.operator), node.inputs[number]
    if PERMUTATION in traits:
        order = order_of(node)
        back = tuple(order.index(axis) for axis in range(len(order)))
        return builder.call(TRANSPOSE, gradient, perm=back)
    if RESHAPE in traits and isinstance(value, Tensor) and value.shape != gradient.shape:
        return builder.call("layout.reshape", gradient, shape=value.shape)
    return gradient
