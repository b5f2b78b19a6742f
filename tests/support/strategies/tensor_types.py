"""Types, attributes, numbers and comments of the tensor language: right in syntax, and in nothing else."""

from __future__ import annotations

from functools import cache
from math import inf, nan
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.base.limits import LARGEST
from lamella.base.source import Trivia
from lamella.lang.tensor import nodes as n
from lamella.lang.tensor.nodes.types import INTEGERS, KEYS, USES
from lamella.lang.tensor.words import ELEMENTS

T = TypeVar("T")
NAMES = (
    "a",
    "A",
    "x",
    "x2",
    "nx2",
    "c0",
    "for",
    "f32",
    "f32x4",
    "inf",
    "e5",
    "long_name_",
    "0",
    "1",
    "12",
    "90",
)


def tuples(items: SearchStrategy[T], least: int, most: int) -> SearchStrategy[tuple[T, ...]]:
    """Tuples of a few items."""
    return st.lists(items, min_size=least, max_size=most).map(tuple)


@cache
def values() -> SearchStrategy[n.Value]:
    """Local identifiers; many look like words."""
    return st.sampled_from(NAMES).map(n.Value)


@cache
def integers() -> SearchStrategy[int]:
    """Integers of the language."""
    return st.integers(-3, 20) | st.sampled_from((LARGEST, -LARGEST)) | st.integers(-LARGEST, LARGEST)


@cache
def reals() -> SearchStrategy[float]:
    """Doubles, those of the newer version among them."""
    return st.floats(allow_nan=False) | st.sampled_from((0.0, -0.0, 0.1, 5e-324, inf, -inf, nan))


@cache
def numbers() -> SearchStrategy[n.Number]:
    """Constants of all kinds."""
    return st.one_of(st.booleans(), integers(), reals(), st.tuples(reals(), reals()))


# --- types --------------------------------------------------------------------------------------------------


@cache
def sizes() -> SearchStrategy[n.Size]:
    """Sizes and strides."""
    return st.none() | st.integers(0, 64) | integers()


@cache
def scalars() -> SearchStrategy[n.Scalar]:
    """The scalar types, bool among them."""
    return st.sampled_from(("bool", *ELEMENTS)).map(n.Scalar)


@cache
def integer_types() -> SearchStrategy[n.Scalar]:
    """What a loop variable may be."""
    return st.sampled_from(INTEGERS).map(n.Scalar)


@cache
def memrefs() -> SearchStrategy[n.Memref]:
    """Packed memrefs and those with strides, now and then as many as they have modes."""
    shapes = tuples(sizes(), 0, 4)
    strides = st.none() | tuples(sizes(), 0, 4)
    return st.builds(n.make_memref, st.sampled_from(ELEMENTS), shapes, strides, st.booleans())


@cache
def coopmatrices() -> SearchStrategy[n.Coopmatrix]:
    """Cooperative matrices."""
    return st.builds(n.Coopmatrix, st.sampled_from(ELEMENTS), integers(), integers(), st.sampled_from(USES))


@cache
def types() -> SearchStrategy[n.Type]:
    """All types."""
    groups = st.builds(n.Group, memrefs(), sizes(), st.just(0) | sizes())
    return st.one_of(scalars(), memrefs(), groups, coopmatrices())


# --- attributes ---------------------------------------------------------------------------------------------


@cache
def texts() -> SearchStrategy[str]:
    """What stands between quotes."""
    return st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters='"'), max_size=5)


@cache
def dictionaries(depth: int = 2) -> SearchStrategy[n.Dictionary]:
    """Dictionaries as a parser gives them: by key."""
    keys = st.sampled_from(KEYS) | texts()
    entries = tuples(st.builds(n.DictionaryEntry, keys, attributes(depth - 1)), 0, 3)
    return entries.map(lambda found: n.Dictionary(tuple(sorted(found, key=lambda item: item.key))))


@cache
def attributes(depth: int = 2) -> SearchStrategy[n.Attribute]:
    """The values of attributes."""
    leaves: SearchStrategy[n.Attribute] = st.one_of(st.booleans(), integers(), texts().map(n.Text))
    return (
        leaves if depth <= 0 else st.one_of(leaves, tuples(attributes(depth - 1), 0, 3), dictionaries(depth))
    )


# --- comments -----------------------------------------------------------------------------------------------


@cache
def comments() -> SearchStrategy[str]:
    """Comments of one line."""
    words = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=5)
    return st.sampled_from((";", "; a word", ';; { "', "; }")) | words.map(lambda text: f"; {text}".rstrip())


@cache
def notes() -> SearchStrategy[Trivia]:
    """Notes as a parser finds them."""
    some = st.builds(Trivia, tuples(comments(), 0, 2), st.just("") | comments(), st.booleans())
    return st.just(Trivia()) | some


@cache
def ends() -> SearchStrategy[Trivia]:
    """Notes at the end of a region: a blank line stands only before a comment."""
    return notes().map(lambda found: Trivia(found.above, found.behind, found.blank and bool(found.above)))
