"""Packs: ranges, repetition, interleaving, indexing and substitution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from lamella.base.dim import Dim
from lamella.lang.skriptnd.rules.invocation import TOO_LARGE, UNDECIDED
from lamella.lang.skriptnd.rules.types import INDEX_RANGE, MASK_LENGTH, PACK_LENGTHS, RANGE_STEP
from lamella.ops.fault import Fault
from lamella.ops.formula import Lookup, Scalar
from lamella.ops.instance import Repeated
from lamella.ops.scalars.arithmetic import Arithmetic, Binary
from lamella.ops.scalars.terms import is_term, refuse
from lamella.ops.scalars.values import SCALARS, expect_count, expect_known, same, show, word_of

# --- operators on packs: item by item, what is no pack repeated for each item -------------------------------


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


# --- folds: a pack into one value, and their cumulative forms -----------------------------------------------


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


def make_range(arithmetic: Arithmetic, begin: object, end: object, step: object) -> tuple[int, ...]:
    """`begin:end:step` as a list item."""
    known = [expect_known(part, "the bounds of a range") for part in (begin, end, step)]
    if known[2] == 0:
        raise Fault(RANGE_STEP)
    # len() of a range cannot say lengths of more than 64 bits.
    distance = (known[1] - known[0] + known[2] - (1 if known[2] > 0 else -1)) // known[2]
    arithmetic.keep_items(max(distance, 0))
    return tuple(range(*known))


def repeat(arithmetic: Arithmetic, item: object, count: object) -> tuple[object, ...] | Repeated:
    """`item..(count)` in a list; a truth value keeps the item or drops it."""
    if isinstance(count, Dim):
        return Repeated(item, count)
    times = expect_count(count, "the number of repetitions", arithmetic.limits.max_pack)
    return _take(item, count, times) if isinstance(item, tuple | Repeated) else (item,) * times


def _take(pack: tuple[object, ...] | Repeated, count: object, times: int) -> tuple[object, ...] | Repeated:
    """A pack that is kept or dropped whole, or whose length is said again."""
    if type(count) is bool:
        return pack if count else ()
    length = len(pack) if isinstance(pack, tuple) else -1
    if length != times:
        raise Fault(PACK_LENGTHS, sign="..()", left=length, right=times)
    return pack


def interleave(arithmetic: Arithmetic, operands: Sequence[object]) -> object:
    """`(a, b, …)..`: the items of packs in turn."""
    longest = max((len(item) for item in operands if isinstance(item, tuple)), default=0)
    arithmetic.keep_items(longest * len(operands))
    rows = spread("()..", tuple, operands)
    if rows is None:
        return None
    if not isinstance(rows, tuple) or not any(isinstance(item, tuple) for item in operands):
        raise refuse("()..", *operands)
    return tuple([item for row in rows if isinstance(row, tuple) for item in row])


# --- indexing -----------------------------------------------------------------------------------------------


def pick(pack: object, index: object) -> object:
    """`pack[index]` for one index, a pack of them, or a mask."""
    if pack is None or index is None:
        return None
    if isinstance(pack, str):
        return _pick_text(pack, index)
    if isinstance(pack, Repeated):
        return _pick_repeated(pack, index)
    if not isinstance(pack, tuple):
        raise refuse("[]", pack)
    if type(index) is int:
        return pack[position(index, len(pack))]
    if isinstance(index, tuple):
        return tuple([pick(pack, item) for item in positions(index, len(pack))])
    if word_of(index) == "int":
        return look_up(pack, index)
    raise refuse("[]", pack, index)


def position(index: int, length: int) -> int:
    """An index from the start; negative ones count from the end."""
    found = index + length if index < 0 else index
    if not 0 <= found < length:
        raise Fault(INDEX_RANGE, index=index, length=length)
    return found


def positions(index: tuple[object, ...], length: int) -> Sequence[object]:
    """The positions that a pack of indices or a mask names."""
    if index and all(type(item) is bool for item in index):
        if len(index) != length:
            raise Fault(MASK_LENGTH, left=len(index), right=length)
        return [place for place, kept in enumerate(index) if kept]
    return index


def _pick_text(text: str, index: object) -> object:
    if type(index) is int:
        return text[position(index, len(text))]
    if isinstance(index, tuple):
        known = [expect_known(item, "an index of a string") for item in positions(index, len(text))]
        return "".join([text[position(item, len(text))] for item in known])
    raise refuse("[]", text, index)


def _pick_repeated(pack: Repeated, index: object) -> object:
    if isinstance(index, tuple):
        return (pack.item,) * len(index)
    return pack.item


def look_up(pack: tuple[object, ...], index: object) -> object:
    """An item that only the run picks."""
    table: list[Scalar] = []
    for item in pack:
        if not isinstance(item, SCALARS):
            raise refuse("[]", item, index)
        table.append(item)
    if not table or not (is_term(index) or isinstance(index, Dim)) or not isinstance(index, SCALARS):
        raise Fault(INDEX_RANGE, index="of the run", length=len(pack))
    return Lookup(tuple(table), index, word_of(table[0]))


def bound_slice(length: int, begin: object, end: object, step: object) -> range:
    """The positions of `begin:end:step`; None stands for what is left out, negative bounds count from the end."""
    pace = 1 if step is None else expect_known(step, "the step of a range")
    if pace == 0:
        raise Fault(RANGE_STEP)
    first, last = (0, length) if pace > 0 else (length - 1, -1)
    if begin is not None:
        first = _edge(begin, length, pace)
    if end is not None:
        last = _edge(end, length, pace)
    return range(first, last, pace)


def _edge(value: object, length: int, pace: int) -> int:
    """One end of a range of items."""
    index = expect_known(value, "the bounds of a range")
    found = index + length if index < 0 else index
    if not 0 <= found <= (length if pace > 0 else length - 1):
        raise Fault(INDEX_RANGE, index=index, length=length)
    return found


def pick_range(pack: object, begin: object, end: object, step: object) -> object:
    """`pack[begin:end:step]`."""
    if isinstance(pack, Repeated):
        raise refuse("[:]", pack)
    if not isinstance(pack, tuple | str):
        raise refuse("[:]", pack)
    places = bound_slice(len(pack), begin, end, step)
    if isinstance(pack, str):
        return "".join([pack[place] for place in places])
    return tuple([pack[place] for place in places])


# --- substitution -------------------------------------------------------------------------------------------


def substitute(pack: object, index: object, value: object) -> object:
    """`pack[index] <- value`: the pack with some items replaced."""
    if pack is None or index is None or value is None:
        return None
    if not isinstance(pack, tuple):
        raise refuse("<-", pack)
    found = list(pack)
    if not isinstance(index, tuple):
        if isinstance(value, tuple):
            raise refuse("<-", value)
        found[position(expect_known(index, "an index"), len(pack))] = value
        return tuple(found)
    places = positions(index, len(pack))
    items = value if isinstance(value, tuple) else (value,) * len(places)
    if len(items) != len(places):
        raise Fault(PACK_LENGTHS, sign="<-", left=len(places), right=len(items))
    for place, item in zip(places, items, strict=True):
        found[position(expect_known(place, "an index"), len(pack))] = item
    return tuple(found)
