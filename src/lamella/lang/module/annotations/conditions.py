"""Conditions of `@assert` and `@probe`: a small language of its own, written bare or as a string."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.cursor import SyntaxProblem
from lamella.base.limits import DEFAULT
from lamella.base.source import Source
from lamella.lang.module.nodes import (
    Bool,
    Call,
    Chain,
    Expr,
    Index,
    Integer,
    Member,
    Name,
    Real,
    Text,
    Unary,
)
from lamella.lang.module.parse.expressions import ModuleCursor
from lamella.lang.module.parse.layout import NEWLINE

FUNCTIONS = frozenset(
    ("has_nan", "has_inf", "has_nan_or_inf", "all", "any", "min", "max", "abs", "mean", "norm")
)
"""What a condition may ask of a tensor."""
SIGNS = frozenset(("==", "!=", "<", "<=", ">", ">=", "&&", "||", "and", "or", "+", "-", "*", "/"))
SHAPE = "shape"


def read_condition(expr: Expr) -> Expr | None:
    """The condition that an argument is; None where its string cannot be read."""
    if not isinstance(expr, Text):
        return expr
    parser = ModuleCursor(Source("condition", expr.value), DEFAULT)
    try:
        found = parser.expression()
    except SyntaxProblem:
        return None
    ended = parser.kind == NEWLINE or not parser.text
    return found if ended and not parser.findings else None


def find_mistake(condition: Expr) -> Expr | None:
    """The first part of a condition that the language of conditions does not have."""
    todo = [condition]
    while todo:
        expr = todo.pop()
        if not _is_allowed(expr):
            return expr
        todo += reversed(list(_parts(expr)))
    return None


def tensors_in(condition: Expr) -> Iterator[Name]:
    """The names that a condition reads, with their places."""
    todo = [condition]
    while todo:
        expr = todo.pop()
        if isinstance(expr, Name):
            yield expr
        elif isinstance(expr, Index | Member):
            todo.append(expr.operand)
        else:
            todo += reversed(list(_parts(expr)))


def _is_allowed(expr: Expr) -> bool:
    match expr:
        case Integer() | Real() | Bool() | Name():
            return True
        case Unary(sign, _):
            return sign in ("!", "-", "not")
        case Chain(_, rest):
            return all(sign in SIGNS for sign, _ in rest)
        case Call(Name(function), arguments):
            return function in FUNCTIONS and bool(arguments) and all(item.name is None for item in arguments)
        case Index(Member(Name(), field), (index,)):
            return field == SHAPE and _is_index(index)
    return False


def _is_index(expr: object) -> bool:
    inner = expr.operand if isinstance(expr, Unary) and expr.sign == "-" else expr
    return isinstance(inner, Integer | Name)


def _parts(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Unary(_, operand):
            yield operand
        case Chain(first, rest):
            yield first
            yield from (operand for _, operand in rest)
        case Call(_, arguments):
            yield from (item.value for item in arguments)
