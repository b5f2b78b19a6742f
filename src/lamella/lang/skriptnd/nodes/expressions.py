"""Expressions: everything that has a value."""

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
    """A real literal: one with a point or an exponent."""

    value: float
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Bool:
    """`true` or `false`."""

    value: bool
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Constant:
    """`inf` or `pi`."""

    name: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Text:
    """A string; adjacent literals are one, backslashes stay as they are written."""

    value: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Format:
    """A string with `{expression}` holes: text and expressions in turn; an escaped brace stays escaped in the text."""

    parts: tuple[str | Expr, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier that is used."""

    id: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Omitted:
    """`~`: an extent, a pack length, an argument or a result that is left out."""

    span: Span = where()


@dataclass(frozen=True, slots=True)
class Member:
    """`x.shape`, `x.rank` or `x.size`."""

    name: str
    field: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Range:
    """`begin:end:step` as a list item, a pack index or (newer) a tensor index; parts may be missing where allowed."""

    begin: Expr | None
    end: Expr | None
    step: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Expand:
    """`e..` or `e..(count)`."""

    operand: Expr
    count: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Zip:
    """`(a, b, …)..`: packs interleaved."""

    operands: tuple[Expr, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class List:
    """`[item, …]`."""

    items: tuple[Item, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Index:
    """`pack[index]`: one item, the items of a pack of indices, those of a mask, or a range of them."""

    operand: Expr
    index: Expr | Range
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Substitute:
    """`pack[index] <- value`: the pack with some items replaced."""

    target: Index
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Bounded:
    """`|index|` skips what is out of range; `|index <> below : above|` remaps it."""

    index: Expr
    below: Expr | None = None
    above: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Access:
    """`tensor[i, j..]` or `pack[k][i, j..]`: elements of a tensor; no indices for a tensor of rank 0."""

    tensor: str
    item: Expr | None
    indices: tuple[Expr | Expand | Range, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Unary:
    """`+x`, `-x` or `!x`."""

    sign: str
    operand: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class NullTest:
    """`?name`: whether an optional value is there."""

    name: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one precedence level, from left to right: `first (sign operand)…`, flat however long.

    Signs are the specification's: `=>  && || ^  < <= > >= == != is in  << >>  + -  * / \\ %  **`.
    """

    first: Expr
    rest: tuple[tuple[str, Expr], ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Fold:
    """`pack sign ..`, or with three dots its cumulative form."""

    operand: Expr
    sign: str
    cumulative: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Select:
    """`condition ? then : otherwise`; without the second branch the result is optional."""

    condition: Expr
    then: Expr
    otherwise: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Coalesce:
    """`value ?? default`."""

    value: Expr
    default: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Cast:
    """`type(x)`, or the default value `type()` of a type; the type is primitive, sized or a `@dtype` name."""

    type: str
    operand: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Call:
    """A built-in function of one argument."""

    function: str
    operand: Expr
    span: Span = where()


Expr: TypeAlias = (
    Integer
    | Real
    | Bool
    | Constant
    | Text
    | Format
    | Name
    | Member
    | List
    | Index
    | Substitute
    | Bounded
    | Access
    | Unary
    | NullTest
    | Chain
    | Fold
    | Select
    | Coalesce
    | Cast
    | Call
)
Item: TypeAlias = Expr | Range | Expand | Zip
