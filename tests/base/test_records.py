"""Data classes with late methods: whatever the standard library's would do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base import records


@records.dataclass(frozen=True, slots=True)
class Frozen:
    """Late."""

    a: int
    b: list[int] = field(default_factory=list, hash=False)
    c: str = field(default="c", compare=False)
    d: int = field(default=7, init=False, repr=False)


def _make(decorate: Any, frozen: bool, slots: bool) -> Any:
    """A class by one of the two decorators."""

    @decorate(frozen=frozen, slots=slots)
    class Item:
        a: int
        b: list[int] = field(default_factory=list, hash=False)
        c: str = field(default="c", compare=False)
        d: int = field(default=7, init=False, repr=False)
        e: int = field(default=8, compare=False, kw_only=True)

    return Item


def _outcome(act: Any) -> object:
    try:
        return act()
    except (TypeError, AttributeError) as problem:
        return type(problem)


@given(st.booleans(), st.booleans(), st.lists(st.integers(0, 2), max_size=5), st.integers(0, 2))
def test_both_do_the_same(frozen: bool, slots: bool, given_: list[int], other: int) -> None:
    found: list[list[object]] = []
    for decorate in (dataclasses.dataclass, records.dataclass):
        cls = _make(decorate, frozen, slots)
        item = _outcome(lambda cls=cls: cls(*given_))
        if isinstance(item, type):
            found.append([item])
            continue
        second = cls(other, e=9)
        acts = (
            lambda item=item: repr(item).rpartition(".")[2],
            lambda item=item, second=second: (item == second, item != second, item == 1),
            lambda item=item, second=second: (hash(item), hash(item) == hash(second)),
            lambda item=item: setattr(item, "a", 5),
            lambda item=item: item.a,
            lambda item=item: delattr(item, "c"),
            lambda item=item, other=other: dataclasses.asdict(dataclasses.replace(item, a=other)),
            lambda item=item, other=other: (
                records.replace(item, a=other) == dataclasses.replace(item, a=other)
            ),
            lambda item=item, other=other: records.replace(item, e=other).e,
            lambda item=item: records.replace(item, unknown=1),
            lambda item=item: dataclasses.asdict(copy.deepcopy(item)),
        )
        found.append([_outcome(act) for act in acts] + [cls.__match_args__])
    assert found[0] == found[1]


def test_what_is_frozen_is_pickled_and_matched() -> None:
    item = Frozen(3, [1], "x")
    again = pickle.loads(pickle.dumps(item))
    assert (again, again.c, again.d) == (item, "x", 7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        item.a = 4  # type: ignore[misc]
    match again:
        case Frozen(a, c=c):
            assert (a, c) == (3, "x")
