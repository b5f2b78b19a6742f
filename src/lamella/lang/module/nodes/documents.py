"""Declarations, and the document that holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from lamella.base.source import Notes, Span, beside, where
from lamella.lang.module.nodes.expressions import Expr, Member, Name
from lamella.lang.module.nodes.graphs import Annotation, Selection
from lamella.lang.module.nodes.mappings import Mapping
from lamella.lang.module.nodes.sections import (
    Backward,
    Binding,
    ConfigParam,
    Constant,
    Field,
    Forward,
    Param,
    Port,
    Sublayers,
)


@dataclass(frozen=True, slots=True)
class Imported:
    """`name` or `name as alias` in a list of imports."""

    name: str
    alias: str | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Import:
    """`import a.b.C.v1 as D`, `import a.b.*`, or `from a.b import C, D as E`.

    `names` is None for the first form, empty for the wildcard; `import a.b.{C, D}` is read into the third.
    """

    path: tuple[str, ...]
    version: int | None = None
    alias: str | None = None
    names: tuple[Imported, ...] | None = None
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Module:
    """`module`, `block` or `model`, with its sections; one that is missing is None or empty.

    `params` is None where the head has no list: the parameters are those of the declaration that is extended.
    """

    kind: str
    name: str
    params: tuple[ConfigParam, ...] | None = ()
    abstract: bool = False
    extends: str | None = None
    doc: str = ""
    annotations: tuple[Annotation, ...] = ()
    bindings: tuple[Binding, ...] = ()
    constants: tuple[Constant, ...] = ()
    tensors: tuple[Param, ...] = ()
    sublayers: Sublayers | None = None
    forward: Forward | None = None
    backward: Backward | None = None
    hf_config: tuple[Field, ...] | None = None
    hf_mapping: tuple[Mapping, ...] | None = None
    hf_export: tuple[Mapping, ...] | None = None
    stub: bool = False
    """Whether `...` stands in the place of a section."""
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Equation:
    """`d_A = matmul(d_C, B, transpose=NT)`: a gradient of a primitive in terms of other primitives."""

    targets: tuple[str, ...]
    value: Expr
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Signature:
    """What a primitive takes and gives, forwards or backwards; `native` is a lone `_`."""

    inputs: tuple[Port, ...] | None = None
    outputs: tuple[Port, ...] | None = None
    equations: tuple[Equation, ...] = ()
    fields: tuple[Field, ...] = ()
    native: bool = False
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Primitive:
    """`primitive name:`; `sections` are `impl`, `precision`, `memory`, `fusion`, `constraints` and the like."""

    name: str
    doc: str = ""
    params: tuple[ConfigParam, ...] = ()
    forward: Signature | None = None
    backward: Signature | None = None
    save: Selection | None = None
    sections: tuple[Field, ...] = ()
    stub: bool = False
    notes: Notes = beside()
    span: Span = where()

    def operator(self, way: str = "forward") -> str | None:
        """The dotted name of the SkriptND operator that its `impl:` names for a way; None where it names none."""
        for section in self.sections:
            if section.name == "impl" and isinstance(section.value, tuple):
                return next((_dotted(item) for item in section.value if item.name == way), None)
        return None


def _dotted(item: Field) -> str | None:
    value, parts = item.value, []
    while isinstance(value, Member):
        parts.append(value.field)
        value = value.operand
    return ".".join([value.id, *reversed(parts)]) if isinstance(value, Name) else None


@dataclass(frozen=True, slots=True)
class Recipe:
    """`recipe name:`, the decisions about precision for a whole compilation."""

    name: str
    fields: tuple[Field, ...]
    doc: str = ""
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Preset:
    """`preset name:`, a named set of config values for the model of the same file."""

    name: str
    fields: tuple[Field, ...]
    doc: str = ""
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Export:
    """`export kind name`: an imported name, or a preset, that importers of this file see too.

    `export *` has the kind `*` and no name: all that this file imports.
    """

    kind: str
    name: str = ""
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Setting:
    """`verify_backward:`, `topology:` or `groups:` of a file: how gradients are verified, which devices there are."""

    kind: str
    fields: tuple[Field, ...]
    doc: str = ""
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Broken:
    """A declaration that could not be read; its name, if that was readable."""

    name: str = ""
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Document:
    """A file: its docstring, its imports and its declarations in order."""

    items: tuple[Item, ...]
    doc: str = ""
    notes: Notes = beside()
    span: Span = where()
    lost: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Names in lines that could not be read: what they mean is not known, and that they mean nothing neither."""


Declaration: TypeAlias = Module | Primitive | Recipe | Preset
Item: TypeAlias = Import | Export | Declaration | Setting | Broken
