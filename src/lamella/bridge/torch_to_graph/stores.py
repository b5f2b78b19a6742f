"""Parameters, buffers and constants of a module as variables of a graph; their numbers are not copied."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import cast

from lamella.base.arrays import Array
from lamella.base.dtype import ElementType, Kind
from lamella.base.source import NOWHERE
from lamella.bridge.torch_to_graph.elements import (
    Numbers,
    array_of,
    element_of,
    is_tensor,
    memory_of,
    why_unreadable,
)
from lamella.bridge.torch_to_graph.program import Program
from lamella.bridge.torch_to_graph.report import Report
from lamella.graph.build import Builder
from lamella.graph.nodes import Tensor
from lamella.lang.skriptnd.rules import exports

SMALL = 16
"""A constant of the code with at most so many elements stands in the graph itself."""


class Stores:
    """The tensors of a program; those that share their memory are one variable, under the first of their names."""

    def __init__(self, program: Program, builder: Builder, report: Report) -> None:
        self.data: dict[str, Array] = {}
        self._found: dict[str, object] = {**program.constants, **program.state_dict}
        self._first = _first_names(self._found)
        self._builder = builder
        self._report = report
        self._variables: dict[object, Tensor | None] = {}

    def find(self, name: str) -> Numbers | None:
        """The tensor of a name in the module."""
        found = self._found.get(name)
        if is_tensor(found):
            return cast("Numbers", found)
        reason = "is missing" if found is None else f"is an object of class {type(found).__name__}, no tensor"
        self._report.tell(exports.NO_NUMBERS.at(NOWHERE, name=name, reason=reason))
        return None

    def variable(self, name: str, tensor: Numbers) -> Tensor | None:
        """The variable that a tensor is; None, and a finding, where it has no numbers."""
        key = memory_of(tensor)
        if key not in self._variables:
            self._variables[key] = self._made(self._first.get(key, name), tensor)
        return self._variables[key]

    def constant(self, name: str, tensor: Numbers) -> Tensor | None:
        """A constant of the code: its values stand in the graph where they are few."""
        if why_unreadable(tensor) is None and tensor.numel() <= SMALL:
            element = cast("ElementType", element_of(tensor.dtype))
            values = tuple(array_of(tensor).reshape(-1).tolist())
            if values and element.kind is not Kind.COMPLEX and all(map(isfinite, values)):
                shape = tuple(int(str(item)) for item in tensor.shape)
                value = values[0] if len(set(map(repr, values))) == 1 else values
                return self._builder.constant(value, element, shape)
        return self.variable(name, tensor)

    def _made(self, name: str, tensor: Numbers) -> Tensor | None:
        reason = why_unreadable(tensor)
        if reason is not None:
            self._report.tell(exports.NO_NUMBERS.at(NOWHERE, name=name, reason=reason))
            return None
        array = array_of(tensor)
        found = self._builder.variable(name, cast("ElementType", element_of(tensor.dtype)), array.shape)
        self.data[found.name] = array
        return found


def _first_names(found: Mapping[str, object]) -> dict[object, str]:
    first: dict[object, str] = {}
    for name, item in found.items():
        if is_tensor(item):
            first.setdefault(memory_of(cast("Numbers", item)), name)
    return first
