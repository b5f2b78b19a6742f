"""Types, shapes and parameters: what the blocks from `@dtype` to `@variable` declare."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.base.source import Notes, Span, beside, where
from lamella.lang.skriptnd.nodes.expressions import Expr, Omitted


@dataclass(frozen=True, slots=True)
class Pack:
    """`..`, `..(length)` or `..(length|bound)` behind a type or an extent.

    `control` is the newer draft's `static` or `dynamic`, empty where nothing is said.
    """

    length: Expr | Omitted | None = None
    bound: Expr | None = None
    control: str = ""
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Extent:
    """One item of a shape: `e`, `~`, `e|bound`, `e..(n)`, or `..e` with one extent for each item of the pack."""

    value: Expr | Omitted
    bound: Expr | None = None
    pack: Pack | None = None
    spread: bool = False
    static: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """`optional real^(rank)[shape]..(length)`; a `shape` of None is no tensor (or one whose shape is left out)."""

    name: str
    optional: bool = False
    dynamic: bool = False
    rank: str | None = None
    shape: tuple[Extent, ...] | None = None
    pack: Pack | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Dtype:
    """A generic type: its name, the abstract type that restricts it, its default."""

    name: str
    base: str
    default: str | None = None
    span: Span = where()
    notes: Notes = beside()


@dataclass(frozen=True, slots=True)
class Bound:
    """`index < limit`: an index symbol that runs from 0 up to a limit."""

    index: str
    limit: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Parameter:
    """An attribute, input, output, constant or variable."""

    name: str
    type: TypeSpec
    value: Expr | None = None
    bounds: tuple[Bound, ...] = ()
    span: Span = where()
    notes: Notes = beside()
