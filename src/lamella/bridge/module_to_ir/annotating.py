"""Annotations with the values of their arguments, as files have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lamella.base.dim import Dim
from lamella.bridge.module_to_graph.nodes import Mark
from lamella.bridge.module_to_ir.nodes import Annotation
from lamella.bridge.module_to_ir.nodes.graph import Json
from lamella.lang.module import nodes as n
from lamella.lang.module.annotations import ArgumentValue, read_annotation
from lamella.lang.module.instantiate import Known
from lamella.lang.module.instantiate.nodes import DictValue
from lamella.lang.module.write.expressions import write_expression


def tell_annotation(annotation: n.Annotation, known: Mapping[str, Known]) -> Annotation:
    """An annotation with all its arguments, those that are left out with their defaults."""
    return _told(annotation.name, read_annotation(annotation, known).arguments)


def _told(name: str, arguments: Mapping[str, ArgumentValue]) -> Annotation:
    return Annotation(name, {key: plain(value) for key, value in arguments.items()})


def tell_all(annotations: Iterable[n.Annotation], known: Mapping[str, Known]) -> tuple[Annotation, ...]:
    """Several annotations."""
    return tuple(tell_annotation(item, known) for item in annotations)


def plain(value: ArgumentValue) -> Json:
    """A value of the language as a value of a file; what no file can say is its text."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, DictValue):
        return {key: plain(item) for key, item in value.entries}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value) if isinstance(value, Dim) else write_expression(value)


class Marks:
    """The marks of a compilation, by tensor."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        self.all = tuple((mark, _told(mark.annotation.name, mark.arguments)) for mark in marks)
        self._by_tensor: dict[str, list[Annotation]] = {}
        for mark, told in self.all:
            self._by_tensor.setdefault(mark.tensor.name, []).append(told)

    def on(self, tensor: str) -> tuple[Annotation, ...]:
        """The annotations of a tensor."""
        return tuple(self._by_tensor.get(tensor, ()))

    def argument(self, tensor: str, annotation: str, argument: str) -> Json:
        """The argument of the last annotation of that name on a tensor; None where there is none."""
        found = [item for item in self.on(tensor) if item.name == annotation]
        return found[-1].arguments.get(argument) if found else None
