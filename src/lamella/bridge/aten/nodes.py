"""ATen's signatures and calls: the words in which PyTorch exports a graph and NAC stores one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.dim import Dim, Extent
from lamella.base.dtype import ElementType
from lamella.graph.nodes import Tensor

Operand: TypeAlias = "Tensor | int | float | bool | str | Dim | ElementType | tuple[Operand, ...] | None"
"""What a call passes: a tensor, a number, an extent, a word, an element type, nothing, or a list of them."""

Result: TypeAlias = "Tensor | Extent | tuple[Result, ...] | None"
"""What a call gives: a tensor, a size, or a tuple; None stands for a result of a tuple that nobody may use."""


@dataclass(frozen=True, slots=True)
class AtenParameter:
    """One parameter of a schema; `type` and `default` are ATen's own words, such as `SymInt[2]` and `1`."""

    name: str
    type: str
    default: str | None = None
    keyword: bool = False
    """Whether it can only be given by its name."""


@dataclass(frozen=True, slots=True)
class AtenSchema:
    """One overload of an ATen operation, such as `aten.add.Tensor`, and the operator of ours that it calls."""

    name: str
    parameters: tuple[AtenParameter, ...]
    results: tuple[str, ...]
    operator: str

    def find(self, name: str) -> AtenParameter | None:
        """The parameter of a name."""
        return next((item for item in self.parameters if item.name == name), None)


@dataclass(frozen=True, slots=True)
class AtenCall:
    """A call: the operands that are given, by the names of their parameters; the others have their defaults."""

    schema: AtenSchema
    operands: Mapping[str, Operand]
