"""Built-in functions, casts, unary operators and the choice between two values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from lamella.base import dim
from lamella.base.dim import Dim, Logic, Test
from lamella.base.limits import LARGEST, SMALLEST
from lamella.lang.skriptnd.rules.invocation import NOT_COMPUTABLE, UNDECIDED
from lamella.lang.skriptnd.rules.types import CAST_TYPE
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply
from lamella.ops.scalars.terms import apply, combine, is_extent, is_term, is_truth, negate, refuse
from lamella.ops.scalars.values import same, show, word_of

# --- built-in functions -------------------------------------------------------------------------------------


def _guarded(rule: Callable[[float], float]) -> Callable[[float], float]:
    """A function that gives infinity where it overflows and no number where it is not defined."""

    def _run(value: float) -> float:
        try:
            return rule(value)
        except OverflowError:
            return math.inf if value > 0 or rule is math.cosh else -math.inf
        except ValueError:
            return math.nan

    return _run


def _logarithm(value: float) -> float:
    return -math.inf if value == 0 else math.log(value)


def _area_tangent(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) == 1 else math.atanh(value)


def round_half_away(value: float) -> float:
    """The nearest whole real, halves away from zero."""
    if not math.isfinite(value):
        return value
    whole = float(math.trunc(value))
    return whole + math.copysign(1.0, value) if abs(value - whole) >= 0.5 else math.copysign(whole, value)


def _rounded(rule: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: float(rule(value)) if math.isfinite(value) else value


def _fraction(value: float) -> float:
    return math.fmod(value, 1.0)


REAL_FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    **{name: _guarded(getattr(math, name)) for name in ("sqrt", "exp", "sin", "cos", "tan", "asin", "acos")},
    **{
        name: _guarded(getattr(math, name))
        for name in ("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "erf")
    },
    **{"log": _guarded(_logarithm), "atanh": _guarded(_area_tangent), "frac": _guarded(_fraction)},
    **{"round": round_half_away, "floor": _rounded(math.floor), "ceil": _rounded(math.ceil)},
}
FUNCTIONS = frozenset((*REAL_FUNCTIONS, "abs", "sign"))


def call(function: str, value: object) -> object:
    """A built-in function of a single value."""
    if function in ("abs", "sign"):
        return _magnitude(function, value)
    if type(value) is float:
        return REAL_FUNCTIONS[function](value)
    if is_term(value) and word_of(value) == "real":
        return apply(function, "real", value)
    raise refuse(function, value)


def _magnitude(function: str, value: object) -> object:
    if type(value) is int or type(value) is float:
        if function == "abs":
            return abs(value)
        return value if math.isnan(value) else type(value)((value > 0) - (value < 0))
    if isinstance(value, Dim):
        if function == "abs":
            return dim.larger(value, dim.sub(0, value))
        negative = dim.choose(dim.less(value, 0), -1, 0)
        return dim.choose(dim.less(0, value), 1, negative)
    if is_term(value) and word_of(value) in ("int", "real"):
        return apply(function, word_of(value), value)
    raise refuse(function, value)


# --- casts --------------------------------------------------------------------------------------------------

DEFAULTS: Mapping[str, object] = {"int": 0, "real": 0.0, "bool": False, "str": ""}
"""The default value of each primitive type."""


def cast(word: str, value: object) -> object:
    """A single value as another arithmetic type."""
    given = word_of(value)
    if given == word:
        return value
    if given not in ("int", "real", "bool") or word not in _CASTS:
        raise Fault(CAST_TYPE, left=given, right=word)
    if is_term(value):
        return apply("cast", word, value)
    return _CASTS[word](value)


def _to_int(value: object) -> object:
    if isinstance(value, Test | Logic):
        return dim.choose(value, 1, 0)
    if type(value) is float:
        if math.isnan(value):
            raise Fault(NOT_COMPUTABLE, what="int(nan)", reason="it is no number")
        if math.isinf(value):
            return LARGEST if value > 0 else SMALLEST
        return math.trunc(value)
    return int(value) if isinstance(value, bool) else value


def _to_real(value: object) -> object:
    if isinstance(value, Dim):
        return apply("cast", "real", value)
    if isinstance(value, Test | Logic):
        return apply("cast", "real", value)
    if not isinstance(value, int | float):
        raise refuse("real()", value)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _to_bool(value: object) -> object:
    if isinstance(value, Dim):
        return dim.negate(dim.equal(value, 0))
    return bool(value)


_CASTS: Mapping[str, Callable[[object], object]] = {"int": _to_int, "real": _to_real, "bool": _to_bool}

# --- unary operators and selection --------------------------------------------------------------------------


def unary(sign: str) -> Callable[[object], object]:
    """`+`, `-` or `!` of a single value."""
    return {"-": minus, "+": plus, "!": negate}[sign]


def minus(value: object) -> object:
    """`-value`."""
    if type(value) is int or type(value) is float:
        return -value
    if isinstance(value, Dim):
        return dim.sub(0, value)
    if is_term(value) and word_of(value) in ("int", "real"):
        return apply("neg", word_of(value), value)
    raise refuse("-", value)


def plus(value: object) -> object:
    """`+value`."""
    if word_of(value) in ("int", "real"):
        return value
    raise refuse("+", value)


def select(operands: Sequence[object]) -> object:
    """`condition ? then : otherwise` of single values."""
    condition, then, otherwise = operands
    if type(condition) is bool:
        return then if condition else otherwise
    if word_of(condition) != "bool":
        raise refuse("?:", condition)
    if same(then, otherwise):
        return then
    if isinstance(condition, Test | Logic):
        return _select_undecided(condition, then, otherwise)
    return _select_term(condition, then, otherwise)


def _select_undecided(condition: Test | Logic, then: object, otherwise: object) -> object:
    if (
        isinstance(then, int | Dim)
        and isinstance(otherwise, int | Dim)
        and is_extent(then)
        and is_extent(otherwise)
    ):
        return dim.choose(condition, then, otherwise)
    if is_truth(then) and is_truth(otherwise):
        first, second = combine("&&", condition, then), combine("&&", dim.negate(condition), otherwise)
        return combine("||", first, second)
    if word_of(then) not in ("int", "real", "bool"):
        raise Fault(UNDECIDED, what="a condition that chooses between these", value=show(condition))
    return _select_term(condition, then, otherwise)


def _select_term(condition: object, then: object, otherwise: object) -> Apply:
    if word_of(then) != word_of(otherwise):
        raise refuse("?:", then, otherwise)
    return apply("?:", word_of(then), condition, then, otherwise)
