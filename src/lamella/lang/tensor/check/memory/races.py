"""Work-items of one region that access one element, one of them writing, with nothing that orders them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from lamella.lang.tensor.check.memory.bounds import AccessSite
from lamella.lang.tensor.check.memory.forms.affine import ONE, Affine
from lamella.lang.tensor.check.memory.forms.symbols import RANGED
from lamella.lang.tensor.check.memory.state import (
    KnownScalar,
    MemoryAccess,
    MemoryState,
    MemrefView,
    SpmdRegion,
)
from lamella.lang.tensor.nodes import CoopStore, Load, Store
from lamella.lang.tensor.rules import memory as rules

MOST_ACCESSES = 8
"""Accesses to one memory that a new one is compared with."""
MOST_ITEMS = 64
MOST_PAIRED = 4


def check_access(state: MemoryState, place: AccessSite, item: Load | Store, view: MemrefView) -> None:
    """Look for a work-item in whose way an access is; atomic stores are in nobody's way."""
    address = view.locate(tuple(state.form(index) for index in item.indices))
    spmd = state.spmd
    if spmd is None or address is None or (isinstance(item, Store) and item.flag):
        return
    stored = state.number(item.value) if isinstance(item, Store) else KnownScalar()
    guards = tuple(guard.number for guard in state.guards)
    items = tuple(_free_items(state, spmd, address))
    access = MemoryAccess(view.name, view.root, address, isinstance(item, Store), stored, guards, items)
    seen = spmd.accesses.setdefault(view.root, [])
    if not (access.writes and _check_store(state, place, access)):
        _check_pairs(state, place, access, seen)
    if len(seen) < MOST_ACCESSES:
        seen.append(access)


def check_matrix_store(state: MemoryState, place: AccessSite, item: CoopStore, view: MemrefView) -> None:
    """A cooperative store is one of the whole subgroup: subgroups must not meet."""
    spmd = state.spmd
    address = view.locate((state.form(item.row), state.form(item.column))) if len(view.sizes) == 2 else None
    lane = state.builtins.get("subgroup_local_id")
    if spmd is None or address is None or item.flag:
        return
    lanes = lane.symbols if lane is not None else frozenset()
    items = tuple(one for one in _free_items(state, spmd, address) if one not in lanes)
    _check_store(
        state, place, MemoryAccess(view.name, view.root, address, True, state.number(item.value), (), items)
    )


def _free_items(state: MemoryState, spmd: SpmdRegion, address: Iterable[tuple[int, Affine]]) -> list[int]:
    """Symbols of which two values exist at this place whatever all others are, and that occur in no hidden way."""
    table = state.symbols.table
    bound = frozenset(item for guard in state.guards[spmd.outer_guards :] for item in guard.depends)
    bound |= frozenset(item for loop in state.loops for item in loop.depends)
    hidden = frozenset(
        item for _, form in address for number, _ in form.terms for item in table[number].depends - {number}
    )
    return [
        item
        for item in spmd.items
        if item not in bound | hidden
        and table[item].kind == RANGED
        and state.symbols.proves(table[item].last - table[item].first - ONE)
    ]


# --- one store ----------------------------------------------------------------------------------------------


def _check_store(state: MemoryState, place: AccessSite, access: MemoryAccess) -> bool:
    """Whether two work-items store different values to one element."""
    forms = [form for _, form in access.address]
    # Work-items that differ in a symbol on which the value depends, but not the address.
    for item in access.items:
        if item in access.stored.depends and not any(form.coefficient(item) for form in forms):
            _report_store(state, place, access, {item: (0, 1)})
            return True
    for one, other in combinations(access.items[:MOST_PAIRED], 2):
        steps = _steps(forms, one, other)
        if steps is None or not {one, other} & access.stored.depends:
            continue
        if all(_spans(state, item, abs(step)) for item, step in zip((one, other), steps, strict=True)):
            pairs = {
                item: (max(0, -step), max(0, step)) for item, step in zip((one, other), steps, strict=True)
            }
            _report_store(state, place, access, pairs)
            return True
    return False


def _steps(forms: list[Affine], one: int, other: int) -> tuple[int, int] | None:
    """By how much two symbols have to change for all forms to stay the same."""
    rates = [(form.coefficient(one), form.coefficient(other)) for form in forms]
    rates = [rate for rate in rates if rate != (0, 0)]
    if not rates or any(a * rates[0][1] != b * rates[0][0] for a, b in rates) or 0 in rates[0]:
        return None
    # Divided by their common factor these are the smallest steps that leave every form as it is.
    first = Affine(0, ((0, rates[0][0]), (1, rates[0][1]))).tightened()
    return first.coefficient(1), -first.coefficient(0)


def _spans(state: MemoryState, item: int, distance: int) -> bool:
    symbol = state.symbols.table[item]
    return state.symbols.proves(symbol.last - symbol.first - Affine(distance))


def _report_store(
    state: MemoryState, place: AccessSite, access: MemoryAccess, pairs: dict[int, tuple[int, int]]
) -> None:
    first, second = (
        ", ".join(_show_item(state, item, values[side]) for item, values in pairs.items()) for side in (0, 1)
    )
    words = {"first": first, "second": second, "name": access.name}
    state.report(rules.STORE_RACE.at(place.span, hint=None, labels=(), **words))


def _show_item(state: MemoryState, item: int, value: int) -> str:
    symbol = state.symbols.table[item]
    shown = Affine(0, ((item, 1),)) if symbol.shown is None else symbol.shown
    return f"{symbol.name}={state.symbols.show(shown.replace(item, Affine(value)))}"


# --- two accesses -------------------------------------------------------------------------------------------


def _check_pairs(
    state: MemoryState, place: AccessSite, access: MemoryAccess, seen: list[MemoryAccess]
) -> None:
    for earlier in seen:
        if earlier.guards != access.guards or not (earlier.writes or access.writes):
            continue
        for item in set(access.items) & set(earlier.items):
            pair = None if _is_benign(earlier, access, item) else _meet(state, earlier, access, item)
            if pair is not None:
                _report_pair(state, place, (earlier, access), item, pair)
                return


def _is_benign(earlier: MemoryAccess, access: MemoryAccess, item: int) -> bool:
    """Whether what is stored is the same for all work-items, so that it does not matter who stored it."""
    same = item not in earlier.stored.depends and item not in access.stored.depends
    if earlier.writes and access.writes:
        return same
    everywhere = not any(form.coefficient(item) for _, form in earlier.address)
    return earlier.writes and same and everywhere


def _meet(
    state: MemoryState, earlier: MemoryAccess, access: MemoryAccess, item: int
) -> tuple[int, int] | None:
    """Two different values of a symbol for which two accesses are of one element."""
    left, right = dict(earlier.address), dict(access.address)
    rates = []
    for stride in sorted({*left, *right}):
        one, other = left.get(stride, Affine()), right.get(stride, Affine())
        rest = one.without(item) - other.without(item)
        if rest.terms:
            return None
        rates.append((one.coefficient(item), other.coefficient(item), rest.constant))
    high = state.symbols.interval(state.symbols.table[item].last)[0]
    count = min(MOST_ITEMS, (high or 0) + 1)
    # One equation fixes the second value for each first one, so a small range is tried in full.
    for first in range(count):
        for second in _partners(rates, first, count):
            if first != second and all(a * first + c == b * second for a, b, c in rates):
                return first, second
    return None


def _partners(rates: list[tuple[int, int, int]], first: int, count: int) -> tuple[int, ...]:
    """The values of the second symbol that are worth a try."""
    for one, other, rest in rates:
        if other:
            second = (one * first + rest) // other
            return (second,) if 0 <= second < count else ()
    return (first + 1,) if first + 1 < count else (first - 1,)


def _report_pair(
    state: MemoryState,
    place: AccessSite,
    accesses: tuple[MemoryAccess, MemoryAccess],
    item: int,
    pair: tuple[int, int],
) -> None:
    earlier, access = accesses
    first, second = _show_item(state, item, pair[1]), _show_item(state, item, pair[0])
    words = {"first": first, "second": second, "name": access.name}
    does = "stores" if access.writes else "loads"
    other = "stores" if earlier.writes else "loads"
    state.report(rules.ACCESS_RACE.at(place.span, hint=None, labels=(), does=does, other=other, **words))
