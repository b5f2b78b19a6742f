"""Values of a composition: tensors, packs of them and scalars, their words, and scalars that become tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from lamella.base import dim
from lamella.base.dim import Dim, Extent, Logic, Test
from lamella.base.dtype import ElementType, name_in
from lamella.base.source import Span
from lamella.graph.nodes import Pack, Tensor
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Argument as ArgumentValue
from lamella.ops.instance import Fill, Repeated, Value
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import TERMS, Unknown, show

SCALARS = (int, float, str, Dim, Test, Logic, Repeated)
PASSED = (*SCALARS, *TERMS, Tensor, Pack, Fill)


def describe_type(element: ElementType, shape: Iterable[Extent | None]) -> str:
    """A tensor's type as the language spells it."""
    word = name_in("skriptnd", element) or element.name
    return f"{word}[{', '.join('~' if extent is None else str(extent) for extent in shape)}]"


def describe(value: object) -> str:
    """A value in the words of a message."""
    if isinstance(value, Tensor):
        return describe_type(value.element, value.shape)
    if isinstance(value, Pack):
        return f"{describe_type(value.element, value.shape)}..({value.size})"
    if isinstance(value, tuple) and all(isinstance(item, Tensor) for item in value):
        return f"a pack of {len(value)} tensors"
    return "null" if value is None else f"the value {show(value)}"


def need(values: Sequence[object]) -> Sequence[object]:
    """The values, all of which must be there; what failed was reported where it did."""
    if any(isinstance(item, Unknown) for item in values):
        raise Problem()
    return values


def as_argument(value: object, what: str, span: Span) -> ArgumentValue:
    """A value that a call may pass; what only a formula can compute is none."""
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if item is not None and not isinstance(item, PASSED):
            raise Problem(
                rules.WRONG_VALUE.at(
                    span, what=what, found=describe(item), wanted="a tensor or a known value"
                )
            )
    return cast("ArgumentValue", value)


def as_attribute(value: object, what: str, span: Span) -> Value:
    """A value that an attribute may have: known, or an expression of extents."""
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if item is not None and not isinstance(item, SCALARS):
            raise Problem(
                rules.WRONG_VALUE.at(
                    span, what=what, found=describe(item), wanted="a value known before the run"
                )
            )
    return cast("Value", value)


def is_single(tensor: Tensor) -> bool:
    """Whether a tensor has one element."""
    return all(dim.equal(extent, 1) is True for extent in tensor.shape)
