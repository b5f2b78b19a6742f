"""The operators on single values: exact integers, 64-bit reals, symbolic extents, terms of formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from threading import local

from lamella.base.limits import Limits
from lamella.lang.skriptnd.rules.invocation import NOT_COMPUTABLE, TOO_LARGE
from lamella.lang.skriptnd.rules.types import DIVISION_BY_ZERO
from lamella.ops.fault import Fault
from lamella.ops.scalars.terms import combine, is_extent
from lamella.ops.scalars.values import same, show

Binary = Callable[[object, object], object]


SHORT = 64
"""Packs of no more items cost nothing: there are as many of them as a text has words."""
PACKS = 16
"""How many of the longest packs a model may compute before the run."""


class PackBudget(local):
    """What the long packs of one model may still cost: a few words can ask for a million items again and again.

    Each thread has its own: one that composes a model does not spend what another counts with.
    """

    def __init__(self, limits: Limits) -> None:
        self.most = PACKS * limits.max_pack
        self.left = self.most

    def renew(self) -> None:
        """Begin anew, for another graph."""
        self.left = self.most


class Arithmetic:
    """The binary operators by their signs, within limits that are kept before anything large is computed."""

    def __init__(self, limits: Limits, budget: PackBudget | None = None) -> None:
        self.limits = limits
        self.budget = budget or PackBudget(limits)
        self.bits = limits.max_integer_bits
        self.signs: Mapping[str, Binary] = {
            **{"+": self.add, "-": self.subtract, "*": self.multiply, "/": self.divide, "\\": self.divide_up},
            **{"%": self.remain, "**": self.raise_to, "<<": smaller, ">>": larger},
            **{"<": less, "<=": less_equal, ">": greater, ">=": greater_equal, "==": equal, "!=": unequal},
            **{sign: _logical(sign) for sign in ("&&", "||", "^", "=>")},
            "is": same,
        }

    def keep_bits(self, bits: int) -> None:
        """Refuse an integer that would have too many bits."""
        if bits > self.bits:
            what = f"an integer of {bits} bits"
            raise Fault(TOO_LARGE, what=what, limit="max_integer_bits", bound=self.bits)

    def keep_items(self, count: int) -> None:
        """Refuse a pack or a string that would be too long."""
        if count > self.limits.max_pack:
            bound = self.limits.max_pack
            raise Fault(TOO_LARGE, what=f"a pack of {show(count)} items", limit="max_pack", bound=bound)
        self.spend(count)

    def spend(self, count: int) -> None:
        """Count the items of a pack that is computed."""
        if count > SHORT:
            self.budget.left -= count
            if self.budget.left < 0:
                what = f"long packs of more than {self.budget.most} items together"
                raise Fault(TOO_LARGE, what=what, limit="max_pack", bound=self.limits.max_pack)

    def spent(self, value: object) -> object:
        """A value whose items, where it is a pack, are counted."""
        if type(value) is tuple:
            self.spend(len(value))
        return value

    def add(self, left: object, right: object) -> object:
        """`left + right`; strings are joined."""
        if type(left) is int and type(right) is int:
            result = left + right
            if result.bit_length() > self.bits:
                self.keep_bits(result.bit_length())
            return result
        if type(left) is float and type(right) is float:
            return left + right
        if type(left) is str and type(right) is str:
            self.keep_items(len(left) + len(right))
            return left + right
        return combine("+", left, right)

    def subtract(self, left: object, right: object) -> object:
        """`left - right`."""
        if type(left) is int and type(right) is int:
            result = left - right
            if result.bit_length() > self.bits:
                self.keep_bits(result.bit_length())
            return result
        if type(left) is float and type(right) is float:
            return left - right
        return combine("-", left, right)

    def multiply(self, left: object, right: object) -> object:
        """`left * right`."""
        if type(left) is int and type(right) is int:
            bits = left.bit_length() + right.bit_length()
            if bits > self.bits + 1:
                self.keep_bits(bits - 1)
            return left * right
        if type(left) is float and type(right) is float:
            return left * right
        return combine("*", left, right)

    def divide(self, left: object, right: object) -> object:
        """`left / right`, rounded down for integers."""
        if type(left) is float and type(right) is float:
            return divide_real(left, right)
        if right == 0 and type(right) is int and is_extent(left):
            raise Fault(DIVISION_BY_ZERO, sign="/")
        if type(left) is int and type(right) is int:
            return left // right
        return combine("/", left, right)

    def divide_up(self, left: object, right: object) -> object:
        r"""`left \ right`: the quotient rounded up."""
        if type(left) is float and type(right) is float:
            return round_up(divide_real(left, right))
        if right == 0 and type(right) is int and is_extent(left):
            raise Fault(DIVISION_BY_ZERO, sign="\\")
        if type(left) is int and type(right) is int:
            return -(-left // right)
        return combine("\\", left, right)

    def remain(self, left: object, right: object) -> object:
        """`left % right`: of flooring division for integers, of truncating division for reals."""
        if type(left) is float and type(right) is float:
            return math.fmod(left, right) if math.isfinite(left) and right != 0 else math.nan
        if right == 0 and type(right) is int and is_extent(left):
            raise Fault(DIVISION_BY_ZERO, sign="%")
        if type(left) is int and type(right) is int:
            return left % right
        return combine("%", left, right)

    def raise_to(self, left: object, right: object) -> object:
        """`left ** right`."""
        if type(left) is int and type(right) is int:
            return self._integer_power(left, right)
        if type(left) is float and type(right) is float:
            return power_real(left, right)
        return combine("**", left, right)

    def _integer_power(self, left: int, right: int) -> int:
        if right < 0:
            raise Fault(
                NOT_COMPUTABLE, what=f"{left} ** {right}", reason="the exponent of an integer is negative"
            )
        if abs(left) > 1:
            self.keep_bits((abs(left).bit_length() - 1) * right)
        return int(left**right)


def divide_real(left: float, right: float) -> float:
    """The quotient of reals as floating point has it: infinite or no number for a divisor of zero."""
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def power_real(left: float, right: float) -> float:
    """The power of reals; no number where it would be complex."""
    try:
        return math.pow(left, right)
    except OverflowError:
        return -math.inf if left < 0 and right % 2 == 1 else math.inf
    except ValueError:
        return math.inf if left == 0 else math.nan


def round_up(value: float) -> float:
    """The smallest whole real that is not below."""
    return float(math.ceil(value)) if math.isfinite(value) else value


def smaller(left: object, right: object) -> object:
    """`left << right`: the minimum."""
    if type(left) is int and type(right) is int:
        return left if left <= right else right
    if type(left) is float and type(right) is float:
        return math.nan if math.isnan(left) or math.isnan(right) else min(left, right)
    return combine("<<", left, right)


def larger(left: object, right: object) -> object:
    """`left >> right`: the maximum."""
    if type(left) is int and type(right) is int:
        return left if left >= right else right
    if type(left) is float and type(right) is float:
        return math.nan if math.isnan(left) or math.isnan(right) else max(left, right)
    return combine(">>", left, right)


def less(left: object, right: object) -> object:
    """`left < right`."""
    if type(left) is int and type(right) is int:
        return left < right
    if type(left) is float and type(right) is float:
        return left < right
    if type(left) is str and type(right) is str:
        return left < right
    return combine("<", left, right)


def less_equal(left: object, right: object) -> object:
    """`left <= right`."""
    if type(left) is int and type(right) is int:
        return left <= right
    if type(left) is float and type(right) is float:
        return left <= right
    if type(left) is str and type(right) is str:
        return left <= right
    return combine("<=", left, right)


def greater(left: object, right: object) -> object:
    """`left > right`."""
    if type(left) is int and type(right) is int:
        return left > right
    if type(left) is float and type(right) is float:
        return left > right
    if type(left) is str and type(right) is str:
        return left > right
    return combine(">", left, right)


def greater_equal(left: object, right: object) -> object:
    """`left >= right`."""
    if type(left) is int and type(right) is int:
        return left >= right
    if type(left) is float and type(right) is float:
        return left >= right
    if type(left) is str and type(right) is str:
        return left >= right
    return combine(">=", left, right)


def _plain(left: object, right: object) -> bool:
    """Whether two values are known scalars of one type."""
    return type(left) is type(right) and isinstance(left, int | float | str)


def equal(left: object, right: object) -> object:
    """`left == right`."""
    return left == right if _plain(left, right) else combine("==", left, right)


def unequal(left: object, right: object) -> object:
    """`left != right`."""
    return left != right if _plain(left, right) else combine("!=", left, right)


def _logical(sign: str) -> Binary:
    plain = _PLAIN[sign]

    def _run(left: object, right: object) -> object:
        if type(left) is bool and type(right) is bool:
            return plain(left, right)
        return combine(sign, left, right)

    return _run


_PLAIN: Mapping[str, Callable[[bool, bool], bool]] = {
    "&&": lambda left, right: left and right,
    "||": lambda left, right: left or right,
    "^": lambda left, right: left != right,
    "=>": lambda left, right: not left or right,
}
