"""Packs: ranges, repetition, interleaving, indexing and substitution."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.dim import Dim
from lamella.lang.skriptnd.rules.types import INDEX_RANGE, MASK_LENGTH, PACK_LENGTHS, RANGE_STEP
from lamella.ops.evaluate.elementwise import spread
from lamella.ops.formula import Lookup, Scalar
from lamella.ops.instance import Repeated
from lamella.ops.problem import Fault
from lamella.ops.scalars.arithmetic import Arithmetic
from lamella.ops.scalars.terms import is_term, refuse
from lamella.ops.scalars.values import SCALARS, expect_count, expect_known, word_of


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
