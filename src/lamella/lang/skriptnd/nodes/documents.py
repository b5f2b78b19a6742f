"""Operators, graphs and the modules that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.source import Notes, Span, beside, where
from lamella.lang.skriptnd.nodes.parameters import Dtype, Parameter
from lamella.lang.skriptnd.nodes.statements import Assertion, Component, Lowering, Quantization, Using

Statement: TypeAlias = Dtype | Parameter | Using | Assertion | Lowering | Component | Quantization


@dataclass(frozen=True, slots=True)
class Section:
    """One block of an operator, `@attrib { … }`; `name` is written without the `@`."""

    name: str
    items: tuple[Statement, ...]
    span: Span = where()
    notes: Notes = beside()
    end: Notes = beside()


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, or a graph: the definition on which everything else stands."""

    name: str
    sections: tuple[Section, ...]
    public: bool = False
    graph: bool = False
    span: Span = where()
    notes: Notes = beside()
    end: Notes = beside()

    def items(self, section: str) -> tuple[Statement, ...]:
        """What stands in a block; nothing where the block is absent."""
        return next((item.items for item in self.sections if item.name == section), ())

    def parameters(self, section: str) -> Iterator[Parameter]:
        """The parameters of `attrib`, `input`, `output`, `constant` or `variable`."""
        return (item for item in self.items(section) if isinstance(item, Parameter))

    @property
    def kind(self) -> str:
        """`lower`, `compose`, or `intrinsic` for an operator that has neither."""
        return next((name for name in ("lower", "compose") if self.items(name)), "intrinsic")


@dataclass(frozen=True, slots=True)
class Import:
    """`import a, b;`."""

    modules: tuple[str, ...]
    span: Span = where()
    notes: Notes = beside()


@dataclass(frozen=True, slots=True)
class Document:
    """A module: imports, then operators and graphs in their order."""

    imports: tuple[Import, ...]
    declarations: tuple[Operator, ...]
    span: Span = where()
    end: Notes = beside()

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the imported modules, in order."""
        return tuple(name for item in self.imports for name in item.modules)

    @property
    def graphs(self) -> tuple[Operator, ...]:
        """The graphs, the first being the primary one."""
        return tuple(item for item in self.declarations if item.graph)
