"""What laws read of operations, for the operators of the library and for those of ATen alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.dim import Extent, TooComplex, mul
from lamella.graph.nodes import Argument, Constant, Node, Operation, Shape, Single, Tensor
from lamella.graph.rewrite import Change, Visit, Walk, made

Found: TypeAlias = Tensor | Operation | Constant | Change | None
Law: TypeAlias = Callable[[Operation, Walk], Found]
"""What stands for an operation: another one, or for its result a tensor or a constant; None keeps it."""

ATEN = "aten."
_FILLS: Mapping[str, int] = MappingProxyType({"aten.zeros": 0, "aten.empty": 0, "aten.ones": 1})
_SPREADS = frozenset(("aten.full", "aten.expand", "layout.uniform", "layout.broadcast"))
_LONGEST_WAY = 4


def applying(laws: Mapping[str, Law]) -> Visit:
    """The visit of a pass that applies to each operation the law of its operator."""

    def visit(node: Node, walk: Walk) -> Change | None:
        law = laws.get(node.operator) if isinstance(node, Operation) else None
        if law is None or not isinstance(node, Operation):
            return None
        return _change(node, law(node, walk), walk)

    return visit


def _change(node: Operation, found: Found, walk: Walk) -> Change | None:
    if isinstance(found, Operation):
        return Change((found,))
    if isinstance(found, Change):
        return found
    outputs = list(made(node))
    if found is None or len(outputs) != 1 or not isinstance(outputs[0], Tensor):
        return None
    if isinstance(found, Constant):
        return None if outputs[0].name in walk.outputs else Change(constants=(found,))
    return Change(results={outputs[0].name: found})


def inputs_of(node: Operation) -> tuple[Tensor, ...]:
    """The tensors that an operation reads, packs and absent inputs left out."""
    return tuple(item for item in node.inputs if isinstance(item, Tensor))


def output_of(node: Operation) -> Tensor | None:
    """The one tensor that an operation makes, where it makes one that is not quantised."""
    found = node.outputs[0] if len(node.outputs) == 1 else None
    return found if isinstance(found, Tensor) and found.quantization is None else None


def attribute(node: Operation, name: str) -> int | float | None:
    """An attribute that is a number."""
    value = dict(node.attributes).get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def uniform(walk: Walk, tensor: Argument) -> Single | None:
    """The one value of a tensor that is the same everywhere and known: a constant, or one value spread over a shape."""
    for _ in range(_LONGEST_WAY):
        constant = walk.constant(tensor)
        if constant is not None:
            return _one_value(constant)
        maker = walk.maker(tensor)
        if maker is None or output_of(maker) is None:
            return None
        if maker.operator in _FILLS:
            return _FILLS[maker.operator]
        if maker.operator not in _SPREADS:
            return None
        tensor = maker.inputs[0]
    return None


def _one_value(constant: Constant) -> Single | None:
    value = constant.value
    if constant.tensor.quantization is not None:
        return None
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else None
    return value


def is_number(value: Single | None, number: int) -> bool:
    """Whether a value is a number, with the sign that a zero has in integers."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value != number:
        return False
    return math.copysign(1.0, value) > 0 or number < 0


def zero(node: Operation) -> Constant | None:
    """The result of an operation as a constant 0, where its shape is known."""
    output = output_of(node)
    if output is None or not is_static(output.shape):
        return None
    return Constant(output, 0.0 if output.element.is_float else 0)


def is_static(shape: Shape) -> bool:
    """Whether every extent is known before the run."""
    return all(isinstance(extent, int) for extent in shape)


def volume(shape: Shape) -> Extent | None:
    """The number of elements; None where no polynomial says it briefly."""
    found: Extent = 1
    try:
        for extent in shape:
            found = mul(found, extent)
    except TooComplex:
        return None
    return found


def before(tensor: Argument, walk: Walk, operators: frozenset[str]) -> Operation | None:
    """The operation that makes a tensor, where it is one of these and its result is not quantised."""
    found = walk.maker(tensor)
    if found is None or found.operator not in operators:
        return None
    return found if output_of(found) is not None else None
