"""Laws of conversions between element types."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lamella.base.dtype import ElementType, Kind
from lamella.graph.nodes import Operation, Tensor
from lamella.graph.passes.laws.reading import before, inputs_of
from lamella.graph.rewrite import Walk

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
