"""SkriptND expressions as nodes: right in syntax, and in nothing else."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.words import BUILT_INS, CUMULATIVE, FOLDS, LEVELS, MEMBERS

T = TypeVar("T")
NAMES = (
    *("a", "b2", "_c", "x", "is_", "shape", "rank", "size", "exp", "tanh", "T", "i", "n", "lambda", "main"),
    *("e5", "f16", "Input", "operators", "yield_", "a_rather_long_name_of_a_symbol", "then1", "dtype"),
)
TYPES = ("int", "real", "bool", "str", "T", "f16", "bf16", "i8")
DEPTH = 3
SIGNS = tuple(
    tuple(sign for sign, level in LEVELS.items() if level == wanted and sign != ":=")
    for wanted in sorted(set(LEVELS.values()))
)
UNITS = (
    "a",
    "word",
    " ",
    "  ",
    "é",
    "#",
    ";",
    "/",
    ":",
    "\\n",
    "\\\\x",
    "\\{",
    "\\}",
    '\\"',
    "\\'",
    '"',
    "'",
)


@cache
def names() -> SearchStrategy[str]:
    """Names that may be declared; many mean something elsewhere."""
    return st.sampled_from(NAMES)


@cache
def types() -> SearchStrategy[str]:
    """Primitive, sized and generic types."""
    return st.sampled_from(TYPES)


@cache
def string_texts() -> SearchStrategy[str]:
    """What stands between quotes, escapes as they are written."""
    return st.lists(st.sampled_from(UNITS), max_size=6).map("".join) | st.just("words " * 30)


@cache
def literals() -> SearchStrategy[n.Expr]:
    """Numbers, strings and words."""
    whole = st.integers(0, 20) | st.integers(0, 2**200)
    real = st.floats(0, allow_nan=False, allow_infinity=False) | st.sampled_from((1e16, 1e-7, 0.5, 3.0))
    return st.one_of(
        st.builds(n.Integer, whole),
        st.builds(n.Real, real),
        st.builds(n.Bool, st.booleans()),
        st.builds(n.Constant, st.sampled_from(("inf", "pi"))),
        st.builds(n.Text, string_texts()),
    )


@cache
def leaves() -> SearchStrategy[n.Expr]:
    """Expressions that hold no others."""
    named = st.builds(n.Name, names())
    member = st.builds(n.Member, names(), st.sampled_from(MEMBERS))
    return st.one_of(named, named, literals(), member, st.builds(n.NullTest, names()))


@cache
def expressions(depth: int = DEPTH) -> SearchStrategy[n.Expr]:
    """Expressions of every kind."""
    if depth == 0:
        return leaves()
    inner = expressions(depth - 1)
    return st.one_of(
        leaves(),
        operations(depth),
        values(depth),
        st.builds(n.Select, inner, inner, st.none() | inner),
        st.builds(n.Coalesce, inner, inner),
        formats(depth),
    )


@cache
def operations(depth: int) -> SearchStrategy[n.Expr]:
    """Chains, folds and signs."""
    inner = expressions(depth - 1)
    chains = st.sampled_from(SIGNS).flatmap(
        lambda signs: st.builds(n.Chain, inner, tuples(st.tuples(st.sampled_from(signs), inner), 1, 3))
    )
    return st.one_of(
        chains,
        st.builds(n.Fold, inner, st.sampled_from(sorted(FOLDS))),
        st.builds(n.Fold, inner, st.sampled_from(sorted(CUMULATIVE)), st.just(True)),
        st.builds(n.Unary, st.sampled_from(("-", "+", "!")), inner),
    )


@cache
def values(depth: int) -> SearchStrategy[n.Expr]:
    """What has brackets or parentheses of its own."""
    inner = expressions(depth - 1)
    index = st.builds(n.Index, inner, inner | ranges(depth))
    return st.one_of(
        st.builds(n.List, tuples(items(depth), 0, 3)),
        index,
        st.builds(n.Substitute, index, inner),
        st.builds(n.Bounded, inner),
        st.builds(n.Bounded, inner, inner, inner),
        accesses(depth),
        st.builds(n.Cast, types(), st.none() | inner),
        st.builds(n.Call, st.sampled_from(sorted(BUILT_INS)), inner),
    )


@cache
def ranges(depth: int) -> SearchStrategy[n.Range]:
    """Ranges as indices."""
    part = st.none() | expressions(depth - 1)
    return st.builds(n.Range, part, part, part)


@cache
def expansions(depth: int) -> SearchStrategy[n.Expand]:
    """Expanded packs."""
    inner = expressions(depth - 1)
    return st.builds(n.Expand, inner, st.none() | inner)


@cache
def items(depth: int) -> SearchStrategy[n.Item]:
    """Items of a list."""
    inner = expressions(depth - 1)
    return st.one_of(
        inner,
        st.builds(n.Range, inner, inner, st.none() | inner),
        expansions(depth),
        st.builds(n.Zip, tuples(inner, 2, 3)),
    )


@cache
def accesses(depth: int) -> SearchStrategy[n.Access]:
    """Elements of tensors."""
    inner = expressions(depth - 1)
    indices = tuples(st.one_of(inner, expansions(depth), ranges(depth)), 0, 3)
    return st.builds(n.Access, names(), st.none() | inner, indices)


@cache
def formats(depth: int) -> SearchStrategy[n.Format]:
    """Strings with holes; within a hole there is no string."""
    hole = st.one_of(
        st.builds(n.Name, names()),
        st.builds(n.Unary, st.just("-"), st.builds(n.Name, names())),
        st.builds(n.Index, st.builds(n.Name, names()), st.builds(n.Integer, st.integers(0, 9))),
        st.builds(n.Text, st.sampled_from(("", "word", "two words"))) if depth > 1 else st.nothing(),
    )
    parts = st.lists(st.tuples(string_texts(), hole), min_size=1, max_size=3)
    return st.builds(lambda found, last: n.Format(_parts(found, last)), parts, string_texts())


def _parts(found: list[tuple[str, n.Expr]], last: str) -> tuple[str | n.Expr, ...]:
    flat = [part for pair in found for part in pair]
    return tuple(part for part in [*flat, last] if part != "")


def tuples(items: SearchStrategy[T], least: int, most: int) -> SearchStrategy[tuple[T, ...]]:
    """Tuples of a few items."""
    return st.lists(items, min_size=least, max_size=most).map(tuple)
