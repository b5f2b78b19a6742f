"""What stands in the blocks that compute: `@using`, `@assert`, `@lower`, `@compose`, `@update`, `@quantize`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.source import Notes, Span, beside, where
from lamella.lang.skriptnd.nodes.expressions import Access, Expr, Format, List, Omitted, Text
from lamella.lang.skriptnd.nodes.parameters import Bound, Pack, TypeSpec


@dataclass(frozen=True, slots=True)
class Result:
    """A name on the left of `=`, with what is said of its type and length."""

    name: str
    type: TypeSpec | None = None
    pack: Pack | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Unzip:
    """`(a, b)..` on the left of `=`: a pack taken apart in turn."""

    items: tuple[Result, ...]
    pack: Pack
    span: Span = where()


@dataclass(frozen=True, slots=True)
class ListPattern:
    """`[a, b..]` on the left of `=`: a pack taken apart in order."""

    items: tuple[Result | Unzip | Omitted, ...]
    span: Span = where()


Pattern: TypeAlias = Result | ListPattern | Omitted


@dataclass(frozen=True, slots=True)
class Using:
    """A helper symbol."""

    target: Pattern
    value: Expr
    span: Span = where()
    notes: Notes = beside()


@dataclass(frozen=True, slots=True)
class Printed:
    """A value that a failed assertion prints, with its label."""

    value: Expr
    label: str | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Assertion:
    """A condition that must hold, what to say when it does not, and what to print."""

    condition: Expr
    message: Text | Format | None = None
    values: tuple[Printed, ...] = ()
    span: Span = where()
    notes: Notes = beside()


@dataclass(frozen=True, slots=True)
class Iteration:
    """`..(index -> count)` behind `do` or `unroll`."""

    index: str | None = None
    count: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Local:
    """An intermediate value inside the loops of a lowering."""

    name: str
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Lowering:
    """One formula: `target sign value, bounds | condition`; the sign is one of `= := += *= &= |= <= >=`."""

    target: Access
    sign: str
    value: Expr | List
    bounds: tuple[Bound, ...] = ()
    condition: Expr | None = None
    locals: tuple[Local, ...] = ()
    unroll: Iteration | None = None
    span: Span = where()
    notes: Notes = beside()


@dataclass(frozen=True, slots=True)
class Attribute:
    """`name = value` in the braces of an invocation."""

    name: str
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Invocation:
    """`label: module.operator<types>{attributes}(arguments)`."""

    operator: str
    types: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    arguments: tuple[Expr | Omitted, ...] = ()
    label: str | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Block:
    """`label: { components; yield results; }`."""

    components: tuple[Component, ...]
    results: tuple[Expr, ...]
    label: str | None = None
    span: Span = where()
    end: Notes = beside()
    """The notes of the `yield`."""


Callee: TypeAlias = Invocation | Block | Expr


@dataclass(frozen=True, slots=True)
class Branch:
    """`if c then a elif d then b else e`: conditions with their consequents, and the alternative."""

    cases: tuple[tuple[Callee, Callee], ...]
    otherwise: Callee
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Carried:
    """`with name: type = value`: a value carried from step to step."""

    name: str
    value: Expr
    type: TypeSpec | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Scan:
    """`for name : pack`: the items of a pack, one for each step."""

    name: str
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop in all its forms; `before` is a `while` in front of the body, `after` one behind it."""

    body: Callee
    carried: tuple[Carried, ...] = ()
    scans: tuple[Scan, ...] = ()
    before: Callee | None = None
    after: Callee | None = None
    iteration: Iteration | None = None
    unroll: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Component:
    """`results = value`: one step of a composition or an update."""

    results: tuple[Pattern, ...]
    value: Callee | Branch | Loop
    span: Span = where()
    notes: Notes = beside()


@dataclass(frozen=True, slots=True)
class Quantization:
    """`tensor: operator{attributes}`: how a tensor is quantised; the tensor's name may be scoped by labels."""

    tensor: str
    operator: str
    types: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    span: Span = where()
    notes: Notes = beside()
