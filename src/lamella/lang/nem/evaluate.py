"""Constant folding of expressions to 64-bit integers, without recursion."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TypeAlias

from lamella.base import limits
from lamella.base.errors import Found
from lamella.base.limits import DividedByZero, OutOfRange
from lamella.base.source import NOWHERE, Span
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import Chain, Expr, Integer, Name, Negate, Real

OPERATIONS = MappingProxyType(
    {
        "+": limits.add,
        "-": limits.sub,
        "*": limits.mul,
        "/": limits.divide,
        "mod": limits.remainder,
    }
)
_LONGEST_QUOTE = 80


Lookup: TypeAlias = Callable[[Name], int]
"""The value of a name; raises Found where it has none."""

_Step: TypeAlias = tuple[str, Span]
"""An operator to be applied to the values found so far, and the text that it completes."""


def evaluate(expr: Expr, lookup: Lookup, what: str = "this place") -> int:
    """The value of an expression, without recursion; `what` names the thing that needs an integer."""
    # A stack machine: however deep an expression is, Python's stack does not grow.
    values: list[int] = []
    todo: list[Expr | _Step] = [expr]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple):
            right, left = values.pop(), values.pop()
            values.append(apply(item[0], left, right, item[1]))
        elif isinstance(item, Negate):
            # `-x` is `0 - x`, so that the negative of the smallest integer is out of range.
            values.append(0)
            todo += [("-", item.span), item.operand]
        elif isinstance(item, Chain):
            todo += reversed(_steps(item))
        else:
            values.append(_value(item, lookup, what))
    return values.pop()


def _steps(chain: Chain) -> list[Expr | _Step]:
    """Operands and operators of a chain in the order in which a stack machine takes them."""
    steps: list[Expr | _Step] = [chain.first]
    for sign, operand in chain.rest:
        steps += [operand, (sign, chain.span._replace(end=operand.span.end))]
    return steps


def _value(expr: Integer | Real | Name, lookup: Lookup, what: str) -> int:
    if isinstance(expr, Integer):
        return expr.value
    if isinstance(expr, Name):
        return lookup(expr)
    raise Found(rules.FLOAT_HERE.at(expr.span, what=what))


def apply(sign: str, left: int, right: int, span: Span = NOWHERE) -> int:
    """One operator on two values; raises Found where it divides by zero or leaves the 64-bit integers."""
    try:
        return OPERATIONS[sign](left, right)
    except DividedByZero:
        raise Found(rules.DIVISION_BY_ZERO.at(span, text=_quote(span, sign, left, right))) from None
    except OutOfRange:
        raise Found(rules.OUT_OF_RANGE.at(span, text=_quote(span, sign, left, right))) from None


def _quote(span: Span, sign: str, left: int, right: int) -> str:
    """The text as written; of a program that was never text, the operation."""
    text = " ".join(span.text.split()) or f"{left} {sign} {right}"
    return text if len(text) <= _LONGEST_QUOTE else f"… {text[-_LONGEST_QUOTE:]}"
