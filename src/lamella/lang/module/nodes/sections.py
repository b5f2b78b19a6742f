"""Sections of a declaration: bindings, parameters, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.source import Notes, Span, beside, where
from lamella.lang.module.nodes.expressions import Call, Expr
from lamella.lang.module.nodes.graphs import Annotation, Selection, Statement, Stub
from lamella.lang.module.nodes.types import ConfigType, ParamType, Path, PortType


@dataclass(frozen=True, slots=True)
class ConfigParam:
    """`name: type = default` in the head of a declaration, or in `params:` of a primitive."""

    name: str
    type: ConfigType | None = None
    default: Expr | None = None
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Let:
    """`name = expression`."""

    name: str
    value: Expr
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class RuntimeDim:
    """`name: batch_dim`: a dimension that the inputs bind."""

    name: str
    kind: str
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Constraint:
    """`condition, "message"`."""

    condition: Expr
    message: str
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Constant:
    """`name: builtin(argument, …)` in `constants:`."""

    name: str
    value: Call
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Param:
    """`name: type if condition else type @annotation…` in `params:`; `+name` adds to what is inherited.

    A path with placeholders changes or adds parameters below this declaration.
    """

    path: Path
    type: ParamType
    condition: Expr | None = None
    otherwise: ParamType | None = None
    added: bool = False
    annotations: tuple[Annotation, ...] = ()
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output; without a name it is `in` or `out`, without a type its primitive leaves it open."""

    name: str | None
    type: PortType | None
    default: Expr | None = None
    annotations: tuple[Annotation, ...] = ()
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Forward:
    """`forward:`; inputs or outputs that are not declared are None, and so is a graph that is missing."""

    inputs: tuple[Port, ...] | None = None
    outputs: tuple[Port, ...] | None = None
    graph: tuple[Statement, ...] | None = None
    save: Selection | None = None
    recompute: Selection | None = None
    annotations: tuple[Annotation, ...] = ()
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Backward:
    """`backward:`; `gradients` are the `d_name: type` lines outside of `inputs:` and `outputs:`."""

    gradients: tuple[Port, ...] = ()
    inputs: tuple[Port, ...] | None = None
    outputs: tuple[Port, ...] | None = None
    graph: tuple[Statement, ...] | None = None
    annotations: tuple[Annotation, ...] = ()
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Sublayers:
    """`pattern: name` with its `sublayers:`, each a tuple of parameter names in the order of application."""

    pattern: str
    sublayers: tuple[tuple[str, ...], ...]
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Field:
    """`name: value` of a recipe, a preset, `hf_config:` or a free section of a primitive.

    What is no expression (`O(B * T)` is one, `x must be contiguous` is none) is kept as its text.
    """

    name: str
    value: Expr | str | tuple[Field, ...]
    notes: Notes = beside()
    span: Span = where()


Binding: TypeAlias = Let | RuntimeDim | Constraint | Stub
