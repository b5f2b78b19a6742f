"""Names, expressions, types and annotations of the Module DSL as nodes: right in syntax, and in nothing else.

What is used everywhere is composite: such strategies show themselves by their name, not by all that they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.base.source import Trivia
from lamella.lang.module import nodes as n
from lamella.lang.module.words import CONFIG_TYPES, DTYPES

T = TypeVar("T")
NAMES = (
    *("a", "b2", "_c", "x", "y", "W", "B", "T", "d_model", "n_layers", "blocks", "e5", "v1", "tied"),
    *(
        "in",
        "out",
        "inputs",
        "saved",
        "save",
        "recompute",
        "graph",
        "params",
        "forward",
        "split",
        "embedding",
    ),
    *("module", "block", "from", "as", "import", "extends", "abstract", "let", "constraint", "pattern"),
    *("fuse", "transform", "dim", "fn", "enum", "Array", "layer", "for", "d_x", "_"),
)
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
ANNOTATIONS = ("memory", "frozen", "shard", "hook", "checkpoint", "gradient", "shimmer")
CONDITIONS = ("assert", "probe")


def few(items: SearchStrategy[T], least: int = 0, most: int = 2) -> SearchStrategy[tuple[T, ...]]:
    """Tuples of a few items."""
    return st.lists(items, min_size=least, max_size=most).map(tuple)


@cache
def names() -> SearchStrategy[str]:
    """Names; many mean something elsewhere."""
    return st.sampled_from(NAMES)


@cache
def qualified() -> SearchStrategy[str]:
    """Names of declarations, qualified ones among them."""
    return st.sampled_from(("Mod", "RMSNormParams", "x", "models.llama.Attention", "a.in"))


@cache
def strings() -> SearchStrategy[str]:
    """Strings of any characters that a file may hold."""
    return st.sampled_from(("", "a # b", "model.{i}.w", 'say "so"', "a\\b\n\t")) | st.text(
        st.characters(codec="utf-8", min_codepoint=1), max_size=5
    )


# --- notes --------------------------------------------------------------------------------------------------


@cache
def comments() -> SearchStrategy[str]:
    """Comments of one line."""
    text = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=4)
    return st.sampled_from(("#", "# a word", '#! -> """ [')) | text.map(lambda words: f"# {words}".rstrip())


@st.composite
def notes(draw: st.DrawFn) -> Trivia:
    """Notes of a line."""
    return draw(_notes())


@cache
def _notes() -> SearchStrategy[Trivia]:
    return st.just(Trivia()) | st.builds(Trivia, few(comments()), st.just("") | comments(), st.booleans())


@st.composite
def block_notes(draw: st.DrawFn) -> Trivia:
    """Notes of something that ends with a block."""
    return draw(_block_notes())


@cache
def _block_notes() -> SearchStrategy[Trivia]:
    some = st.builds(
        Trivia, few(comments()), st.just("") | comments(), st.booleans(), few(comments(), most=1)
    )
    return st.just(Trivia()) | some


# --- expressions --------------------------------------------------------------------------------------------


@cache
def leaves() -> SearchStrategy[n.Expr]:
    """Literals and names."""
    return st.one_of(
        st.builds(n.Name, names() | st.sampled_from(sorted(DTYPES))),
        st.builds(n.Integer, st.integers(0, 20) | st.integers(0, 2**63 - 1)),
        st.builds(n.Real, st.floats(0.0, allow_infinity=False, allow_nan=False).map(abs)),
        st.builds(n.Bool, st.booleans()),
        st.builds(n.Text, strings()),
        st.just(n.Null()),
    )


def arguments(inner: SearchStrategy[n.Expr], most: int = 2) -> SearchStrategy[tuple[n.Argument, ...]]:
    """Arguments, with and without names."""
    return few(st.builds(n.Argument, st.none() | names(), inner), most=most)


def _chains(inner: SearchStrategy[n.Expr], signs: Sequence[str], most: int = 3) -> SearchStrategy[n.Expr]:
    rest = few(st.tuples(st.sampled_from(signs), inner), 1, most)
    return st.builds(n.Chain, inner, rest)


def _rows(inner: SearchStrategy[n.Expr]) -> SearchStrategy[tuple[n.Expr | n.Rest, ...]]:
    """Items of a list with `...` between two of them."""
    return st.builds(lambda first, last, others: (first, n.Rest(), last, *others), inner, inner, few(inner))


def _composed(inner: SearchStrategy[n.Expr], is_condition: bool) -> SearchStrategy[n.Expr]:
    """Expressions of every form around others; `!`, `&&` and `||` stand in conditions of annotations alone."""
    one_or_none = st.none() | inner
    items = few(inner | st.builds(n.Slice, one_or_none, one_or_none) | st.just(n.Rest()), 1)
    operators = [("or", "||")[: 1 + is_condition], ("and", "&&")[: 1 + is_condition], COMPARISONS, ("+", "-")]
    return st.one_of(
        *(_chains(inner, signs) for signs in (*operators, ("*", "/", "//", "%"))),
        _chains(inner, ("**",), 1),
        st.builds(n.Unary, st.sampled_from(("-", "not", "!")[: 2 + is_condition]), inner),
        st.builds(n.Select, inner, inner, inner),
        st.builds(n.List, few(inner) | _rows(inner)),
        st.builds(n.Set, few(inner, 1)),
        st.builds(n.Dict, few(st.builds(n.DictEntry, names() | strings(), inner))),
        postfixed(inner, items),
    )


def postfixed(
    inner: SearchStrategy[n.Expr], items: SearchStrategy[tuple[n.Subscript, ...]]
) -> SearchStrategy[n.Expr]:
    """Members, views and calls of something that has such."""
    named = st.builds(n.Name, names())
    once = st.one_of(
        st.builds(n.Member, named, names()),
        st.builds(n.Index, named, items),
        st.builds(n.Call, named, arguments(inner)),
    )
    return once | st.one_of(
        st.builds(n.Member, once, names()),
        st.builds(n.Index, once, items),
        st.builds(n.Call, once, arguments(inner)),
    )


@st.composite
def expressions(draw: st.DrawFn) -> n.Expr:
    """Expressions of every form."""
    return draw(_expressions())


@cache
def _expressions() -> SearchStrategy[n.Expr]:
    return st.recursive(leaves(), lambda inner: _composed(inner, False), max_leaves=4)


@st.composite
def conditions(draw: st.DrawFn) -> n.Expr:
    """Expressions as in `@assert`."""
    return draw(_conditions())


@cache
def _conditions() -> SearchStrategy[n.Expr]:
    return st.recursive(leaves(), lambda inner: _composed(inner, True), max_leaves=4)


@cache
def primaries() -> SearchStrategy[n.Expr]:
    """What may stand alone before an arrow."""
    items = few(leaves() | st.builds(n.Slice, st.none() | leaves(), st.none()) | st.just(n.Rest()), 1)
    return st.builds(n.Name, names()) | postfixed(leaves(), items)


# --- annotations --------------------------------------------------------------------------------------------


@st.composite
def annotated(draw: st.DrawFn) -> tuple[n.Annotation, ...]:
    """Annotations, none most of the time."""
    return draw(_annotated())


@cache
def _annotated() -> SearchStrategy[tuple[n.Annotation, ...]]:
    known = st.builds(n.Annotation, st.sampled_from(ANNOTATIONS), arguments(expressions()))
    checked = st.builds(n.Annotation, st.sampled_from(CONDITIONS), arguments(conditions()))
    return st.just(()) | few(known | checked)


# --- types --------------------------------------------------------------------------------------------------


@cache
def config_types() -> SearchStrategy[n.ConfigType]:
    """Types of config parameters."""
    flags = (st.booleans(), st.booleans())
    plain = st.builds(
        n.ConfigType, st.sampled_from(sorted(set(CONFIG_TYPES) - {"enum"})), st.just(()), *flags
    )
    return plain | st.builds(n.ConfigType, st.just("enum"), few(names(), 1), *flags)


def _is_shape(dims: tuple[n.Dim, ...]) -> bool:
    """Whether the last dimension would not be read as an element type."""
    return not dims or not isinstance(dims[-1], n.Name) or dims[-1].id not in DTYPES


@cache
def tensor_types(least: int = 0, optional: bool = True) -> SearchStrategy[n.TensorType]:
    """Tensor types."""
    dims = few(expressions() | st.just(n.Star()), least, 3).filter(_is_shape)
    dtype = st.none() | st.sampled_from(sorted(DTYPES))
    return st.builds(n.TensorType, dims, dtype, st.booleans() if optional else st.just(False))


@cache
def port_types() -> SearchStrategy[n.PortType]:
    """Types of inputs and outputs that have a name."""
    scalars = st.builds(n.ScalarType, st.sampled_from(("int", "float")), st.booleans())
    sequences = st.builds(n.SequenceType, st.none() | tensor_types())
    return st.one_of(tensor_types(), scalars, sequences, st.builds(n.TupleType, few(tensor_types(), 2, 3)))


@cache
def paths() -> SearchStrategy[n.Path]:
    """Paths with placeholders and indices."""
    index = st.sampled_from(("i", "layer", 0, 3))
    part = st.builds(n.PathPart, names(), few(index))
    return st.builds(n.Path, few(part, 1, 3))


@cache
def param_types() -> SearchStrategy[n.ParamType]:
    """What `params:` declares."""
    instances = st.builds(n.InstanceType, qualified(), arguments(expressions()))
    tensors = tensor_types() | st.just(n.TensorType((n.Unchanged(),)))
    sizes = expressions().filter(lambda size: _is_shape((size,)))
    arrays = st.builds(n.ArrayType, sizes, instances | tensors)
    return st.one_of(tensors, instances, arrays, st.builds(n.TiedType, paths()))
