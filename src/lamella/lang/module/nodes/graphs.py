"""Graphs: data flow, guards, recomputation, and the annotations on all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.source import Notes, Span, beside, where
from lamella.lang.module.nodes.expressions import Argument, Expr
from lamella.lang.module.nodes.types import TensorType


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@name(argument, …)`."""

    name: str
    arguments: tuple[Argument, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Operation:
    """`callee(argument, …)` between two arrows: a primitive, a module, an instance, `blocks[0:8]`, `mlp.backward`.

    An instance may be named without parentheses; the written form has them.
    """

    callee: Expr
    arguments: tuple[Argument, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class ShapeAssertion:
    """`[dim, …]` between two arrows: the shape that flows through."""

    type: TensorType
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Target:
    """A tensor that a statement binds; `_` is dropped."""

    name: str
    annotations: tuple[Annotation, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Flow:
    """`source -> step -> … -> target @annotation…`; without a step it is an identity.

    Annotations behind a single target belong to the statement, those inside a tuple to their target.
    """

    sources: tuple[Expr, ...]
    steps: tuple[Step, ...]
    targets: tuple[Target, ...]
    annotations: tuple[Annotation, ...] = ()
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Arm:
    """One guarded arm of a conditional."""

    condition: Expr
    body: tuple[Statement, ...]
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Conditional:
    """`if`, `elif`, `else`: the first arm whose guard holds; `otherwise` is None where there is no `else`."""

    arms: tuple[Arm, ...]
    otherwise: tuple[Statement, ...] | None = None
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Recompute:
    """`recompute:` in a backward graph: forward tensors built again from saved ones."""

    body: tuple[Statement, ...]
    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Stub:
    """`...` in the place of a statement: a body that is not finished."""

    notes: Notes = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Pattern:
    """An item of `save:` and `recompute:`: a name, a glob such as `ln*_out`, or `name...` (`spread`).

    A spread item stands for all that the stacked blocks save; its name says nothing more.
    """

    text: str
    spread: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Selection:
    """`[item, …] if condition`: the tensors that `save:` or `recompute:` names."""

    items: tuple[Pattern, ...]
    condition: Expr | None = None
    notes: Notes = beside()
    span: Span = where()


Step: TypeAlias = Operation | ShapeAssertion
Statement: TypeAlias = Flow | Conditional | Recompute | Stub
