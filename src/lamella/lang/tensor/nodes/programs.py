"""Functions and the programs that hold them."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.base.source import Notes, Span, beside, where
from lamella.lang.tensor.nodes.attributes import Dictionary
from lamella.lang.tensor.nodes.instructions import Region, Value
from lamella.lang.tensor.nodes.types import Type


@dataclass(frozen=True, slots=True)
class Parameter:
    """`%A: memref<f32x4> {alignment=64}`."""

    value: Value
    type: Type
    attributes: Dictionary | None = None
    span: Span = where()
    notes: Notes = beside()


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel: `func @name(parameters) attributes{…} { … }`; `name` is written without the `@`."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Region
    attributes: Dictionary | None = None
    span: Span = where()
    notes: Notes = beside()


@dataclass(frozen=True, slots=True)
class Program:
    """The kernels of a file."""

    functions: tuple[Function, ...]
    span: Span = where()
    end: Notes = beside()
