"""Folds: a pack into one value, and their cumulative forms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lamella.lang.skriptnd.rules.invocation import TOO_LARGE, UNDECIDED
from lamella.ops.instance import Repeated
from lamella.ops.problem import Fault
from lamella.ops.scalars.arithmetic import Arithmetic, Binary
from lamella.ops.scalars.terms import refuse
from lamella.ops.scalars.values import same, show, word_of

_EMPTY = {"+": (0, 0.0), "*": (1, 1.0)}
_ORDERED = frozenset(("<", "<=", ">", ">=", "=="))


def fold(arithmetic: Arithmetic, sign: str, value: object, word: str) -> object:
    """`pack sign ..`; `word` is the type of its items, which an empty pack does not tell."""
    if value is None:
        return None
    if isinstance(value, Repeated):
        return _fold_repeated(arithmetic, sign, value)
    if not isinstance(value, tuple):
        raise refuse(f"{sign} ..", value)
    arithmetic.spend(len(value))
    if sign == ":=":
        return uniform(value)
    if sign == "!=":
        return _unique(arithmetic, value)
    if sign in _ORDERED:
        rule = arithmetic.signs[sign]
        return reduce_evenly(arithmetic.signs["&&"], [rule(a, b) for a, b in pairwise(value)], True)
    return reduce_evenly(arithmetic.signs[sign], value, _start(sign, word))


def _start(sign: str, word: str) -> object:
    """What a fold of nothing is; minimum and maximum have no value then."""
    if sign in _EMPTY:
        return _EMPTY[sign][word == "real"]
    return {"&&": True, "||": False}.get(sign)


def reduce_evenly(rule: Binary, items: Sequence[object], empty: object) -> object:
    """All items joined two by two, so that a long pack makes no deep term."""
    found = list(items)
    if not found:
        return empty
    while len(found) > 1:
        joined = [rule(found[i], found[i + 1]) for i in range(0, len(found) - 1, 2)]
        found = joined + ([found[-1]] if len(found) % 2 else [])
    return found[0]


def uniform(items: tuple[object, ...]) -> object:
    """The value that all items are, by form; null where there is none."""
    if not items:
        return None
    first = items[0]
    return first if all(same(first, item) for item in items) else None


def _fold_repeated(arithmetic: Arithmetic, sign: str, pack: Repeated) -> object:
    """A pack of one value and unknown length."""
    if sign == ":=":
        return pack.item
    if sign == "+" and word_of(pack.item) == "int":
        return arithmetic.multiply(pack.item, pack.length)
    if sign in ("==", "<=", ">="):
        return True
    raise Fault(UNDECIDED, what=f"the length of a pack folded by '{sign}'", value=show(pack.length))


def _unique(arithmetic: Arithmetic, items: tuple[object, ...]) -> object:
    """Whether all items differ, each from each."""
    known = [item for item in items if isinstance(item, int | float | str)]
    if len({(type(item), item) for item in known}) < len(known):
        return False
    open_items = [item for item in items if not isinstance(item, int | float | str)]
    _keep_pairs(arithmetic, len(open_items) * len(items))
    rule = arithmetic.signs["!="]
    tests = [rule(a, b) for i, a in enumerate(open_items) for b in (*open_items[i + 1 :], *known)]
    return reduce_evenly(arithmetic.signs["&&"], tests, True)


def accumulate(arithmetic: Arithmetic, sign: str, value: object) -> object:
    """`pack sign ...`: all intermediate steps of a fold."""
    if value is None:
        return None
    if isinstance(value, Repeated):
        raise Fault(UNDECIDED, what=f"the length of a pack folded by '{sign}'", value=show(value.length))
    if not isinstance(value, tuple):
        raise refuse(f"{sign} ...", value)
    arithmetic.spend(len(value))
    rule = arithmetic.signs[sign]
    found: list[object] = []
    for item in value:
        found.append(rule(found[-1], item) if found else item)
    return tuple(found)


def contains(arithmetic: Arithmetic) -> Binary:
    """`item in pack`, item by item for a pack on the left."""

    def _run(left: object, right: object) -> object:
        if left is None or right is None:
            return None
        if isinstance(right, Repeated):
            right = (right.item,)
        if not isinstance(right, tuple):
            raise refuse("in", left, right)
        if isinstance(left, Repeated):
            return Repeated(_find(arithmetic, (left.item,), right)[0], left.length)
        items = _find(arithmetic, left if isinstance(left, tuple) else (left,), right)
        return items if isinstance(left, tuple) else items[0]

    return _run


def _find(arithmetic: Arithmetic, items: tuple[object, ...], pack: tuple[object, ...]) -> tuple[object, ...]:
    """Whether each item is in a pack; known values are looked up, symbolic ones compared."""
    kinds = {type(item) for item in (*items, *pack)}
    if len(kinds) == 1 and kinds <= {int, float, bool, str}:
        known = frozenset(pack)
        return tuple([item in known for item in items])
    _keep_pairs(arithmetic, len(items) * len(pack))
    equal, either = arithmetic.signs["=="], arithmetic.signs["||"]
    return tuple([reduce_evenly(either, [equal(item, other) for other in pack], False) for item in items])


def _keep_pairs(arithmetic: Arithmetic, pairs: int) -> None:
    bound = arithmetic.limits.max_pairs
    if pairs > bound:
        raise Fault(TOO_LARGE, what=f"{pairs} comparisons of symbolic items", limit="max_pairs", bound=bound)
