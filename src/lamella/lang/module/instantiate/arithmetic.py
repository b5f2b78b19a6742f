"""Operators on constants: exact 64-bit integers, finite reals, runtime dimensions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from types import MappingProxyType
from typing import TypeAlias

from lamella.base import dim
from lamella.base.dim import Dim, Extent, Truth
from lamella.base.errors import Found
from lamella.base.limits import in_range
from lamella.base.source import Span
from lamella.lang.module.instantiate.messages import describe, quote, show
from lamella.lang.module.instantiate.nodes import DictValue, Items, Value
from lamella.lang.module.rules import constants as rules

Number: TypeAlias = int | float
_BITS = 64

_EXACT = MappingProxyType(
    {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": operator.truediv,
        "//": operator.floordiv,
        "%": operator.mod,
        "**": operator.pow,
    }
)
_SYMBOLIC: MappingProxyType[str, Callable[[Extent, Extent], Extent]] = MappingProxyType(
    {"+": dim.add, "-": dim.sub, "*": dim.mul, "//": dim.floor_divide, "%": dim.remainder}
)
_COMPARED: MappingProxyType[str, Callable[[Number, Number], bool]] = MappingProxyType(
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
)


def is_number(value: object) -> bool:
    """Whether a value is an integer, a real or a runtime dimension; a truth value is none."""
    return isinstance(value, int | float | Dim) and not isinstance(value, bool)


def apply(sign: str, left: Value, right: Value, span: Span) -> Value:
    """One arithmetic operator on two values."""
    if isinstance(left, bool) or isinstance(right, bool):
        raise _not_a_number(sign, left, right, span)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _apply_exact(sign, left, right, span)
    if is_number(left) and is_number(right):
        return _apply_symbolic(sign, left, right, span)
    raise _not_a_number(sign, left, right, span)


def _not_a_number(sign: str, left: Value, right: Value, span: Span) -> Found:
    wrong = right if is_number(left) else left
    return wrong_kind(f"an operand of '{_text(sign, left, right, span)}'", wrong, "a number", span)


def _text(sign: str, left: Value, right: Value, span: Span) -> str:
    return quote(span, f"{show(left)} {sign} {show(right)}")


def wrong_kind(what: str, value: object, wanted: str, span: Span, repair: str = "") -> Found:
    """The finding that a value is of the wrong kind."""
    return Found(rules.KIND.at(span, what=what, found=describe(value), wanted=wanted, repair=repair))


def _apply_exact(sign: str, left: Number, right: Number, span: Span) -> Value:
    # A huge power would take all memory before its range could be checked.
    if sign == "**" and _is_huge(left, right):
        raise _too_large(f"{left} {sign} {right}", span)
    try:
        result: object = _EXACT[sign](left, right)
    except ZeroDivisionError:
        raise _divided(f"{left} {sign} {right}", span) from None
    except OverflowError:
        raise _too_large(f"{left} {sign} {right}", span) from None
    # Python's power of a negative base and a fractional exponent is complex.
    if isinstance(result, complex):
        text = f"'{_text(sign, left, right, span)}'"
        raise Found(rules.KIND.at(span, what=text, found="no real number", wanted="a number", repair=""))
    return checked(result, span, f"{left} {sign} {right}")


def _is_huge(base: Number, exponent: Number) -> bool:
    """Whether an integer power surely leaves 64 bits, before it is computed."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    return whole and abs(base) > 1 and exponent > _BITS


def _divided(otherwise: str, span: Span) -> Found:
    return Found(rules.DIVISION.at(span, what=f"'{quote(span, otherwise)}'", repair=""))


def _too_large(otherwise: str, span: Span) -> Found:
    text, found = f"'{quote(span, otherwise)}'", "too large"
    return Found(rules.OUT_OF_RANGE.at(span, what=text, found=found, repair=""))


def checked(value: object, span: Span, otherwise: str) -> Value:
    """A number that was computed, if it is one that we keep: a 64-bit integer or a finite real.

    The finding quotes the text of the place, or says `otherwise` where there is none.
    """
    if isinstance(value, int) and in_range(value):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Dim) and all(in_range(factor) for _, factor in value.terms):
        return value
    raise _too_large(otherwise, span)


def _apply_symbolic(sign: str, left: Value, right: Value, span: Span) -> Value:
    """An operator with a runtime dimension: what stays an integer stays a dimension."""
    text = f"{show(left)} {sign} {show(right)}"
    if sign not in _SYMBOLIC or not isinstance(left, int | Dim) or not isinstance(right, int | Dim):
        raise not_constant(f"'{quote(span, text)}'", left if isinstance(left, Dim) else right, span)
    try:
        return checked(_SYMBOLIC[sign](left, right), span, text)
    except ZeroDivisionError:
        raise _divided(text, span) from None


def not_constant(what: str, value: object, span: Span) -> Found:
    """The finding that a value depends on a dimension that only the inputs bind."""
    return Found(rules.NOT_CONSTANT.at(span, what=what, why=f"{show(value)} is known only at run time"))


def negate(value: Value, span: Span) -> Value:
    """The negative of a number."""
    return apply("-", 0, value, span) if isinstance(value, int | Dim) else _negate_real(value, span)


def _negate_real(value: Value, span: Span) -> Value:
    if isinstance(value, float):
        return -value
    raise wrong_kind("the operand of '-'", value, "a number", span)


def compare(sign: str, left: Value, right: Value, span: Span) -> bool:
    """One comparison; things of different kinds are a mistake, except that anything may be compared with None."""
    if sign in ("==", "!="):
        return _equal(left, right, span) == (sign == "==")
    if sign in ("in", "not in"):
        return _contains(right, left, span) == (sign == "in")
    if isinstance(left, Dim) or isinstance(right, Dim):
        return _compare_symbolic(sign, left, right, span)
    for value in (left, right):
        if not is_number(value):
            raise wrong_kind(f"an operand of '{sign}'", value, "a number", span)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _COMPARED[sign](left, right)
    return False


def _compare_symbolic(sign: str, left: Value, right: Value, span: Span) -> bool:
    if isinstance(left, int | Dim) and isinstance(right, int | Dim):
        first, second = (left, right) if sign in ("<", "<=") else (right, left)
        truth = dim.less(first, second) if sign in ("<", ">") else dim.less_equal(first, second)
        return _decided(truth, span)
    raise not_constant(quote(span, "a comparison"), left if isinstance(left, Dim) else right, span)


def _decided(truth: Truth, span: Span) -> bool:
    if isinstance(truth, bool):
        return truth
    raise not_constant(f"'{quote(span, str(truth))}'", truth, span)


def _equal(left: Value, right: Value, span: Span) -> bool:
    if left is None or right is None:
        return left is right
    if _kind(left) != _kind(right):
        raise wrong_kind(f"'{quote(span, 'a comparison')}'", right, f"{_kind(left)} as on the left", span)
    if isinstance(left, int | Dim) and isinstance(right, int | Dim):
        return _decided(dim.equal(left, right), span)
    return left == right


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, DictValue):
        return "a dict"
    return "a list" if isinstance(value, tuple) else "a number"


def _contains(whole: Value, part: Value, span: Span) -> bool:
    if isinstance(whole, tuple):
        return any(_same(item, part) for item in whole)
    if isinstance(whole, str) and isinstance(part, str):
        return part in whole
    if isinstance(whole, DictValue):
        return part in whole.names()
    raise wrong_kind("what stands behind 'in'", whole, "a list", span)


def _same(left: Value, right: Value) -> bool:
    """Equality in a list, where kinds may differ: true is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


# --- the pure functions of constant expressions -------------------------------------------------------------


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
    if isinstance(value, DictValue):
        return len(value.entries)
    raise wrong_kind("the argument of 'len'", value, "a list or a string", span)


def _alibi_slopes(arguments: Sequence[Value], span: Span) -> Value:
    """The slope of each of some heads: powers of 2 to the -8 / heads, others filled up from twice as many."""
    count = arguments[0]
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= _MOST_HEADS:
        raise wrong_kind("the argument of 'alibi_slopes'", count, "a number of heads", span)
    whole = 1 << (count.bit_length() - 1)
    base = 2.0 ** (-8.0 / whole)
    between = 2.0 ** (-4.0 / whole)
    slopes = [base**number for number in range(1, whole + 1)]
    return Items.of(slopes + [between ** (2 * number + 1) for number in range(count - whole)])


_MOST_HEADS = 1 << 16
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
        "alibi_slopes": (1, 1, _alibi_slopes),
    }
)
"""Each function with the least and the most arguments that it takes."""
