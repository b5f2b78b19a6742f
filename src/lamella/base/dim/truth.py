"""Comparisons and logic on extents, decided where form or ranges decide them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lamella.base.dim.arithmetic import sub
from lamella.base.dim.form import Condition, Extent, Logic, Test, Truth
from lamella.base.dim.ranges import bounds


def is_same(left: Extent, right: Extent) -> bool:
    """Whether two extents are one by form, decided before the run: the operator `is`."""
    return left == right


def equal(left: Extent, right: Extent) -> Truth:
    """`left == right`, decided where form or ranges decide it."""
    low, high = bounds(sub(left, right))
    if low == high == 0:
        return True
    return False if low > 0 or high < 0 else Test("==", left, right)


def less(left: Extent, right: Extent) -> Truth:
    """`left < right`, decided where ranges decide it."""
    low, high = bounds(sub(left, right))
    if high < 0:
        return True
    return False if low >= 0 else Test("<", left, right)


def less_equal(left: Extent, right: Extent) -> Truth:
    """`left <= right`, decided where ranges decide it."""
    low, high = bounds(sub(left, right))
    if high <= 0:
        return True
    return False if low > 0 else Test("<=", left, right)


_OPPOSITE: Mapping[str, str] = MappingProxyType({"==": "!=", "!=": "=="})


def negate(truth: Truth) -> Truth:
    """`!truth`."""
    if isinstance(truth, bool):
        return not truth
    if isinstance(truth, Test):
        if truth.sign in _OPPOSITE:
            return Test(_OPPOSITE[truth.sign], truth.left, truth.right)
        return Test("<=" if truth.sign == "<" else "<", truth.right, truth.left)
    return truth.operands[0] if truth.sign == "!" else Logic("!", (truth,))


def both(left: Truth, right: Truth) -> Truth:
    """`left && right`."""
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return _join("&&", left, right)


def either(left: Truth, right: Truth) -> Truth:
    """`left || right`."""
    if isinstance(left, bool):
        return True if left else right
    if isinstance(right, bool):
        return True if right else left
    return _join("||", left, right)


def _join(sign: str, left: Condition, right: Condition) -> Condition:
    """Conditions joined, flat and each once."""
    operands = dict.fromkeys((*_operands(sign, left), *_operands(sign, right)))
    return left if len(operands) == 1 else Logic(sign, tuple(operands))


def _operands(sign: str, condition: Condition) -> tuple[Condition, ...]:
    return condition.operands if isinstance(condition, Logic) and condition.sign == sign else (condition,)


def differ(left: Truth, right: Truth) -> Truth:
    """`left ^ right`."""
    if isinstance(left, bool):
        return negate(right) if left else right
    if isinstance(right, bool):
        return negate(left) if right else left
    return False if left == right else Logic("^", (left, right))
