"""Operators on packs: item by item, what is no pack repeated for each item."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamella.lang.skriptnd.rules.types import PACK_LENGTHS
from lamella.ops.instance import Repeated
from lamella.ops.problem import Fault
from lamella.ops.scalars.arithmetic import Binary
from lamella.ops.scalars.values import same, show


def lift(sign: str, rule: Binary, spend: Callable[[int], None]) -> Binary:
    """A binary operator on packs from one on single values; null makes null. Items are counted by `spend`."""

    def _run(left: object, right: object) -> object:
        if type(left) is tuple and type(right) is tuple:
            if len(left) != len(right):
                raise Fault(PACK_LENGTHS, sign=sign, left=len(left), right=len(right))
            spend(len(left))
            return tuple(map(rule, left, right))
        if left is None or right is None:
            return None
        if type(left) is Repeated or type(right) is Repeated:
            return spread(sign, lambda items: rule(*items), (left, right))
        if type(left) is tuple:
            spend(len(left))
            return tuple([rule(item, right) for item in left])
        if type(right) is tuple:
            spend(len(right))
            return tuple([rule(left, item) for item in right])
        return rule(left, right)

    return _run


def lift_unary(rule: Callable[[object], object]) -> Callable[[object], object]:
    """A unary operator on packs from one on single values; null makes null."""

    def _run(value: object) -> object:
        if value is None:
            return None
        if type(value) is tuple:
            return tuple([rule(item) for item in value])
        if type(value) is Repeated:
            return Repeated(rule(value.item), value.length)
        return rule(value)

    return _run


def spread(sign: str, rule: Callable[[Sequence[object]], object], operands: Sequence[object]) -> object:
    """A function of several values, item by item where some are packs; null makes null."""
    if any(item is None for item in operands):
        return None
    repeated = [item for item in operands if isinstance(item, Repeated)]
    packs = [item for item in operands if isinstance(item, tuple)]
    if repeated:
        lengths = [item.length for item in repeated]
        other = next((item for item in lengths if not same(item, lengths[0])), None)
        if packs or other is not None:
            left, right = show(lengths[0]), len(packs[0]) if packs else show(other)
            raise Fault(PACK_LENGTHS, sign=sign, left=left, right=right)
        single = [item.item if isinstance(item, Repeated) else item for item in operands]
        return Repeated(rule(single), lengths[0])
    if not packs:
        return rule(operands)
    length = len(packs[0])
    for pack in packs:
        if len(pack) != length:
            raise Fault(PACK_LENGTHS, sign=sign, left=length, right=len(pack))
    rows = [item if isinstance(item, tuple) else (item,) * length for item in operands]
    return tuple([rule(row) for row in zip(*rows, strict=True)])
