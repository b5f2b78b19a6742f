"""Expressions: constants, names, calls and what is made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.source import Span, where


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer literal."""

    value: int
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Real:
    """A literal with a point or an exponent."""

    value: float
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Bool:
    """`true` or `false`."""

    value: bool
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    value: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Null:
    """`None`."""

    span: Span = where()


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier that is used."""

    id: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Member:
    """`operand.field`: a sub-parameter, a saved tensor, `x.shape`, a qualified name."""

    operand: Expr
    field: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Slice:
    """`begin:end` as an index; a missing bound is that end of the dimension."""

    begin: Expr | None
    end: Expr | None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Rest:
    """`...` as an index: all the dimensions that are not named."""

    span: Span = where()


@dataclass(frozen=True, slots=True)
class Index:
    """`operand[item, …]`: an element, a view of a tensor, a range of blocks."""

    operand: Expr
    items: tuple[Subscript, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument, or `name=value`."""

    name: str | None
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Call:
    """`callee(argument, …)`: an intrinsic of the constant world, a source that makes a tensor, a built-in constant."""

    callee: Expr
    arguments: tuple[Argument, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class List:
    """`[item, …]`; `...` between two items stands for the whole numbers between them."""

    items: tuple[Expr | Rest, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Set:
    """`{item, …}`: a list whose order and repetitions mean nothing."""

    items: tuple[Expr, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Entry:
    """`key: value` of a dict; the key is a name or a string."""

    key: str
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Dict:
    """`{key: value, …}`."""

    entries: tuple[Entry, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Unary:
    """`-a`, `not a`, or `!a` in a condition of `@assert` and `@probe`."""

    sign: str
    operand: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one precedence level from left to right, flat however long: `first (sign operand)…`.

    The levels, loosest first: `or ||`, `and &&`, comparisons with `in` and `not in`, `+ -`, `* / // %`. `**` binds
    tighter than a unary sign and to the right: it is a chain of two operands.
    """

    first: Expr
    rest: tuple[tuple[str, Expr], ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Select:
    """`value if condition else otherwise`."""

    value: Expr
    condition: Expr
    otherwise: Expr
    span: Span = where()


Expr: TypeAlias = (
    Integer
    | Real
    | Bool
    | Text
    | Null
    | Name
    | Member
    | Index
    | Call
    | List
    | Set
    | Dict
    | Unary
    | Chain
    | Select
)
Subscript: TypeAlias = Expr | Slice | Rest
