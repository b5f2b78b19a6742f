"""Lengths of packs: what is found wrong is wrong for every length, by trying them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.base.source import Source
from lamella.lang.skriptnd import check, parse

LENGTHS = {"SKR095", "SKR096", "SKR097", "SKR098", "SKR080", "SKR101", "SKR150", "SKR152"}
LARGEST = 4


class Refused(Exception):
    """A call that cannot be evaluated."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one call."""

    k: int
    j: int
    b: bool

    def pack(self, name: str) -> list[int]:
        return list(range(self.j if name == "r" else self.k))


@dataclass(frozen=True)
class Numbered:
    """An int expression and its value in a call."""

    text: str
    value: Callable[[Values], int]


@dataclass(frozen=True)
class Packed:
    """A pack expression and its items in a call."""

    text: str
    value: Callable[[Values], list[int]]


@cache
def numbers() -> SearchStrategy[Numbered]:
    """Numbers, lengths, and sums of them."""
    literals = st.integers(0, 3).map(lambda n: Numbered(str(n), lambda _: n))
    names = st.sampled_from((Numbered("k", lambda v: v.k), Numbered("j", lambda v: v.j)))
    simple = literals | names

    def join(parts: tuple[Numbered, str, Numbered]) -> Numbered:
        left, sign, right = parts
        signs: dict[str, Callable[[int, int], int]] = {
            "+": lambda a, b: a + b,
            "-": lambda a, b: a - b,
            "*": lambda a, b: a * b,
            ">>": max,
            "<<": min,
        }
        return Numbered(
            f"({left.text} {sign} {right.text})", lambda v: signs[sign](left.value(v), right.value(v))
        )

    return simple | st.tuples(simple, st.sampled_from(("+", "-", "*", "<<", ">>")), simple).map(join)


def position(index: int, length: int) -> int:
    """Negative indices count from the end; none is out of range."""
    found = index + length if index < 0 else index
    if not 0 <= found <= length:
        raise Refused
    return found


def sliced(pack: Packed, begin: Numbered | None, end: Numbered | None) -> Packed:
    def value(v: Values) -> list[int]:
        items = pack.value(v)
        first = 0 if begin is None else position(begin.value(v), len(items))
        last = len(items) if end is None else position(end.value(v), len(items))
        return items[first:last]

    text = f"{pack.text}[{begin.text if begin else ''}:{end.text if end else ''}]"
    return Packed(text, value)


def joined(left: Packed, right: Packed) -> Packed:
    def value(v: Values) -> list[int]:
        one, two = left.value(v), right.value(v)
        if len(one) != len(two):
            raise Refused
        return [a + b for a, b in zip(one, two, strict=True)]

    return Packed(f"({left.text} + {right.text})", value)


def listed(parts: list[Packed]) -> Packed:
    text = ", ".join(f"{part.text}.." for part in parts)
    return Packed(f"[{text}]", lambda v: [item for part in parts for item in part.value(v)])


def zipped(left: Packed, right: Packed) -> Packed:
    def value(v: Values) -> list[int]:
        one, two = left.value(v), right.value(v)
        if len(one) != len(two):
            raise Refused
        return [item for pair in zip(one, two, strict=True) for item in pair]

    return Packed(f"[({left.text}, {right.text})..]", value)


def repeated(count: Numbered) -> Packed:
    def value(v: Values) -> list[int]:
        if count.value(v) < 0:
            raise Refused
        return [7] * count.value(v)

    return Packed(f"[7 ..({count.text})]", value)


def counted(begin: Numbered, end: Numbered) -> Packed:
    return Packed(f"[{begin.text}:{end.text}]", lambda v: list(range(begin.value(v), end.value(v))))


def chosen(left: Packed, right: Packed) -> Packed:
    """A choice; a branch that never works is wrong although it may not be taken."""

    def value(v: Values) -> list[int]:
        one, two = left.value(v), right.value(v)
        return one if v.b else two

    return Packed(f"(b ? {left.text} : {right.text})", value)


def kept(pack: Packed) -> Packed:
    return Packed(f"[{pack.text}.., 1 ..(b)]", lambda v: pack.value(v) + [1] * v.b)


def substituted(pack: Packed, index: Packed, values: Packed) -> Packed:
    def value(v: Values) -> list[int]:
        items, places, new = pack.value(v), index.value(v), values.value(v)
        if len(places) != len(new) or any(not -len(items) <= place < len(items) for place in places):
            raise Refused
        for place, item in zip(places, new, strict=True):
            items[place] = item
        return items

    return Packed(f"({pack.text}[{index.text}] <- {values.text})", value)


def extend(inner: SearchStrategy[Packed]) -> SearchStrategy[Packed]:
    ends = st.none() | numbers()
    return (
        st.builds(sliced, inner, ends, ends)
        | st.builds(joined, inner, inner)
        | st.lists(inner, max_size=3).filter(bool).map(listed)
        | st.builds(zipped, inner, inner)
        | st.builds(chosen, inner, inner)
        | st.builds(kept, inner)
        | st.builds(substituted, inner, inner, inner)
    )


@cache
def packs() -> SearchStrategy[Packed]:
    """Expressions over packs `p` and `q` of length k and `r` of length j."""

    def named(name: str) -> Packed:
        return Packed(name, lambda v: v.pack(name))

    names = st.sampled_from(("p", "q", "r")).map(named)
    made = st.builds(repeated, numbers()) | st.builds(counted, numbers(), numbers())
    return st.recursive(names | made, extend, max_leaves=6)


def works(pack: Packed, values: Values) -> bool:
    try:
        pack.value(values)
    except Refused:
        return False
    return True


def found_in(text: str) -> set[str]:
    attributes = "b: bool; p: int..(k); q: int..(k); r: int..(j);"
    source = Source("test.sknd", f"operator f {{ @attrib {{ {attributes} }} @using {{ u = {text}; }} }}")
    document, findings = parse(source)
    assert not findings, text
    return {item.code for item in check(document)}


@given(packs())
@example(joined(Packed("p", lambda v: v.pack("p")), repeated(Numbered("(k + 1)", lambda v: v.k + 1))))
def test_lengths_that_are_found_wrong_are_wrong_in_every_call(pack: Packed) -> None:
    found = found_in(pack.text)
    assert found <= LENGTHS, pack.text
    calls = [Values(k, j, b) for k, j, b in product(range(LARGEST), range(LARGEST), (False, True))]
    if found:
        assert not [values for values in calls if works(pack, values)], (pack.text, found)


@given(
    st.integers(1, 3), st.sampled_from(("p", "q[:]", "[p..]", "(b ? p : q)", "p[::-1]", "[0:k]", "[9 ..(k)]"))
)
def test_more_items_are_found_however_a_length_is_written(more: int, text: str) -> None:
    longer = f"[{text}.., 7 ..({more})]"
    assert found_in(f"q + {longer}") == {"SKR095"}
    assert not found_in(f"[q.., 7 ..({more})] + {longer}")
