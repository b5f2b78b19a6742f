"""The pure functions of constant expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from types import MappingProxyType
from typing import TypeAlias

from lamella.base import dim
from lamella.base.dim import Dim
from lamella.base.errors import Found
from lamella.base.source import Span
from lamella.lang.module.instantiate.evaluate.arithmetic import (
    checked,
    compare,
    is_number,
    not_constant,
    wrong_kind,
)
from lamella.lang.module.instantiate.nodes import Record, Value
from lamella.lang.module.rules import constants as rules

Function: TypeAlias = Callable[[Sequence[Value], Span], Value]


def call(name: str, arguments: Sequence[Value], span: Span) -> Value:
    """The value of an intrinsic; the name is one of `INTRINSICS`."""
    least, most, function = INTRINSICS[name]
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"at least {least}"
        raise Found(
            rules.LENGTH.at(
                span, what=f"the call of '{name}'", found=len(arguments), wanted=wanted, repair=""
            )
        )
    return function(arguments, span)


def _real(name: str, function: Callable[[float], float]) -> Function:
    """A function of one real number."""

    def apply(arguments: Sequence[Value], span: Span) -> Value:
        value = _number(name, arguments[0], span)
        try:
            return checked(function(value), span, f"{name}")
        except ValueError:
            raise wrong_kind(f"the argument of '{name}'", value, "a positive number", span) from None

    return apply


def _number(name: str, value: Value, span: Span) -> int | float:
    if isinstance(value, Dim):
        raise not_constant(f"the argument of '{name}'", value, span)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise wrong_kind(f"the argument of '{name}'", value, "a number", span)


def _ceil_div(arguments: Sequence[Value], span: Span) -> Value:
    left, right = arguments
    for value in arguments:
        if isinstance(value, bool) or not isinstance(value, int | Dim):
            raise wrong_kind("an argument of 'ceil_div'", value, "an integer", span)
    try:
        if isinstance(left, int | Dim) and isinstance(right, int | Dim):
            return checked(dim.ceil_divide(left, right), span, "ceil_div")
    except ZeroDivisionError:
        raise Found(rules.DIVISION.at(span, what="'ceil_div'", repair="")) from None
    return None


def _extreme(name: str, sign: str) -> Function:
    """`min` or `max` of several numbers or of one list."""

    def apply(arguments: Sequence[Value], span: Span) -> Value:
        only = arguments[0]
        values = only if len(arguments) == 1 and isinstance(only, tuple) else tuple(arguments)
        for value in values:
            if not is_number(value):
                raise wrong_kind(f"an argument of '{name}'", value, "a number", span)
        if not values:
            raise wrong_kind(f"the argument of '{name}'", values, "a list with elements", span)
        return reduce(lambda left, right: _choose(sign, left, right, span), values)

    return apply


def _choose(sign: str, left: Value, right: Value, span: Span) -> Value:
    symbolic = isinstance(left, Dim) or isinstance(right, Dim)
    if symbolic and isinstance(left, int | Dim) and isinstance(right, int | Dim):
        return dim.smaller(left, right) if sign == "<" else dim.larger(left, right)
    return right if compare(sign, right, left, span) else left


def _absolute(arguments: Sequence[Value], span: Span) -> Value:
    return checked(abs(_number("abs", arguments[0], span)), span, "abs")


def _truncate(arguments: Sequence[Value], span: Span) -> Value:
    if isinstance(arguments[0], Dim):
        return arguments[0]
    return checked(int(_number("int", arguments[0], span)), span, "int")


def _length(arguments: Sequence[Value], span: Span) -> Value:
    value = arguments[0]
    if isinstance(value, tuple | str):
        return len(value)
    if isinstance(value, Record):
        return len(value.entries)
    raise wrong_kind("the argument of 'len'", value, "a list or a string", span)


_MANY = 1 << 30
INTRINSICS: MappingProxyType[str, tuple[int, int, Function]] = MappingProxyType(
    {
        "sqrt": (1, 1, _real("sqrt", math.sqrt)),
        "log2": (1, 1, _real("log2", math.log2)),
        "ceil_div": (2, 2, _ceil_div),
        "min": (1, _MANY, _extreme("min", "<")),
        "max": (1, _MANY, _extreme("max", ">")),
        "abs": (1, 1, _absolute),
        "int": (1, 1, _truncate),
        "len": (1, 1, _length),
    }
)
"""Each function with the least and the most arguments that it takes."""
