"""Conditions of `@assert` and `@probe` on the numbers of a run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array
from lamella.lang.module.nodes import Bool, Call, Chain, Expr, Index, Integer, Member, Name, Real, Unary

Held: TypeAlias = "Array | float | int | bool"
FUNCTIONS: Mapping[str, Callable[[Array], Held]] = MappingProxyType(
    {
        "has_nan": lambda x: bool(np.isnan(x).any()),
        "has_inf": lambda x: bool(np.isinf(x).any()),
        "has_nan_or_inf": lambda x: not bool(np.isfinite(x).all()),
        "all": lambda x: bool(np.all(x)),
        "any": lambda x: bool(np.any(x)),
        "min": lambda x: float(np.min(x)),
        "max": lambda x: float(np.max(x)),
        "abs": np.abs,
        "mean": lambda x: float(np.mean(x)),
        "norm": lambda x: float(np.linalg.norm(x)),
    }
)
SIGNS: Mapping[str, Callable[[Held, Held], Held]] = MappingProxyType(
    {
        **{"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le},
        **{">": operator.gt, ">=": operator.ge, "+": operator.add, "-": operator.sub},
        **{"*": operator.mul, "/": operator.truediv},
        **dict.fromkeys(("&&", "and"), np.logical_and),
        **dict.fromkeys(("||", "or"), np.logical_or),
    }
)


def is_true(condition: Expr, find: Callable[[str], Held]) -> bool:
    """Whether a condition holds; `find` gives the numbers of a tensor or the value of a name."""
    with np.errstate(all="ignore"):
        return bool(np.all(_value(condition, find)))


def _value(expr: Expr, find: Callable[[str], Held]) -> Held:
    if isinstance(expr, Integer | Real | Bool):
        return expr.value
    if isinstance(expr, Name):
        return find(expr.id)
    if isinstance(expr, Unary):
        operand = _value(expr.operand, find)
        return -operand if expr.sign == "-" else np.logical_not(operand)
    if isinstance(expr, Call) and isinstance(expr.callee, Name):
        return FUNCTIONS[expr.callee.id](np.asarray(_value(expr.arguments[0].value, find)))
    if isinstance(expr, Index):
        return _extent(expr, find)
    if isinstance(expr, Chain):
        held = _value(expr.first, find)
        for sign, item in expr.rest:
            held = SIGNS[sign](held, _value(item, find))
        return held
    raise LookupError(expr.span.text)


def _extent(expr: Index, find: Callable[[str], Held]) -> int:
    """`x.shape[i]`."""
    owner, item = expr.operand, expr.items[0]
    if not isinstance(owner, Member) or not isinstance(item, Integer | Unary):
        raise LookupError(expr.span.text)
    axis = _value(item, find)
    shape = np.shape(np.asarray(_value(owner.operand, find)))
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        raise LookupError(expr.span.text)
    return int(shape[axis])
