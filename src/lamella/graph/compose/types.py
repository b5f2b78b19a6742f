"""Types that a text gives to results and carried values: checked, or filled with a scalar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.base import dim
from lamella.base.dim import Dim, Extent
from lamella.graph.compose.operations import fill
from lamella.graph.compose.scope.frame import Frame
from lamella.graph.compose.values import describe, describe_type
from lamella.graph.nodes import Pack, Tensor
from lamella.lang.skriptnd import nodes
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import word_of, word_of_type


def give_type(frame: Frame, value: object, declared: nodes.TypeSpec, name: str) -> object:
    """A value with a type: a tensor that has it already, or the tensor of that type that a scalar fills."""
    element, shape = frame.element(declared.name), _shape(frame, declared)
    if isinstance(value, Tensor | Pack | tuple) or element is None:
        check_type(frame, value, declared, name)
        return value
    if word_of(value) != word_of_type(element) or shape is None or None in shape:
        raise _mismatch(frame, value, declared, name)
    extents = tuple(item for item in shape if item is not None)
    return fill(frame, value, Tensor(name, element, extents), declared.span)


def check_type(frame: Frame, value: object, declared: nodes.TypeSpec, name: str) -> None:
    """Refuse a tensor, or a pack of them, that is not of its declared type."""
    for item in value if isinstance(value, tuple) else (value,):
        if not isinstance(item, Tensor | Pack) or not _has_type(frame, item, declared):
            raise _mismatch(frame, item, declared, name)


def _has_type(frame: Frame, value: Tensor | Pack, declared: nodes.TypeSpec) -> bool:
    element, shape = frame.element(declared.name), _shape(frame, declared)
    same = {"real": value.element.is_float, "int": value.element.is_integer}.get(
        declared.name, value.element == element
    )
    return same and (shape is None or fits(value.shape, shape))


def fits(found: Sequence[Extent], wanted: Sequence[Extent | None]) -> bool:
    """Whether a shape can be another one; None stands for any extent."""
    return len(found) == len(wanted) and all(
        item is None or dim.equal(extent, item) is not False
        for extent, item in zip(found, wanted, strict=True)
    )


def _shape(frame: Frame, declared: nodes.TypeSpec) -> tuple[Extent | None, ...] | None:
    if declared.shape is None:
        return None
    return tuple(extent for item in declared.shape for extent in _extents(frame, item))


def _extents(frame: Frame, item: nodes.Extent) -> Iterator[Extent | None]:
    """The extents of one item of a shape; an optional one that is null vanishes."""
    value = None if isinstance(item.value, nodes.Omitted) else frame.value(item.value)
    length = item.pack.length if item.pack is not None else None
    count = 1 if length is None or isinstance(length, nodes.Omitted) else int(frame.known(length))
    if isinstance(value, tuple):
        yield from (extent for extent in value if isinstance(extent, int | Dim))
    elif isinstance(value, int | Dim):
        yield from [value] * count
    elif isinstance(item.value, nodes.Omitted):
        yield from [None] * count


def _mismatch(frame: Frame, value: object, declared: nodes.TypeSpec, name: str) -> Problem:
    element, shape = frame.element(declared.name), _shape(frame, declared)
    wanted = declared.name if element is None or shape is None else describe_type(element, shape)
    return Problem(rules.RESULT_TYPE.at(declared.span, name=name, declared=wanted, found=describe(value)))
