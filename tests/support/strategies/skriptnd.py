"""SkriptND documents as nodes: right in syntax, and in nothing else."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.base.source import Trivia
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.words import BLOCKS, LOWERING_SIGNS, PARAMETER_BLOCKS, TYPE_WORDS
from tests.support.strategies.skriptnd_expressions import (
    accesses,
    expressions,
    formats,
    names,
    string_texts,
    tuples,
    types,
)

OMITTED = n.Omitted()
OPERATORS = ("f", "nn.conv", "layout.shape", "a.b.c", "shape", "exp", "_private")
FLAT = 2


@cache
def comments() -> SearchStrategy[str]:
    """Comments of one line."""
    text = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=5)
    return st.sampled_from(("#", "# a word", '#! { "', "# }")) | text.map(lambda words: f"# {words}".rstrip())


@cache
def notes() -> SearchStrategy[Trivia]:
    """Notes as a parser finds them."""
    above = tuples(comments(), 0, 2)
    some = st.builds(Trivia, above, st.just("") | comments(), st.booleans())
    return st.just(Trivia()) | some


@cache
def ends() -> SearchStrategy[Trivia]:
    """Notes at the end of a block: a blank line stands only before a comment."""
    return notes().map(lambda found: Trivia(found.above, found.behind, found.blank and bool(found.above)))


# --- types and patterns -------------------------------------------------------------------------------------


@cache
def lengths() -> SearchStrategy[n.Expr | n.Omitted]:
    """Expressions or `~`."""
    return expressions(FLAT) | st.just(OMITTED)


@cache
def packs() -> SearchStrategy[n.Pack]:
    """Packs with and without a length."""
    control = st.sampled_from(("", "", "static", "dynamic"))
    return st.just(n.Pack()) | st.builds(n.Pack, lengths(), st.none() | expressions(1), control)


@cache
def shapes() -> SearchStrategy[tuple[n.Extent, ...]]:
    """Shapes of all kinds of extents."""
    flags = st.sampled_from((False, False, True))
    extent = st.builds(n.Extent, lengths(), st.none() | expressions(1), st.none() | packs(), flags, flags)
    return tuples(extent, 0, 3)


@cache
def type_specs() -> SearchStrategy[n.TypeSpec]:
    """Whole types."""
    flags = st.sampled_from((False, False, True))
    rank, shape, pack = st.none() | names(), st.none() | shapes(), st.none() | packs()
    return st.builds(n.TypeSpec, types(), flags, flags, rank, shape, pack)


@cache
def result_types() -> SearchStrategy[n.TypeSpec | None]:
    """What may be said of the type of a result."""
    return st.none() | st.builds(n.TypeSpec, types(), shape=st.none() | shapes())


@cache
def results() -> SearchStrategy[n.Result | n.Omitted]:
    """Names on the left of `=`."""
    return st.just(OMITTED) | st.builds(n.Result, names(), result_types(), st.none() | packs())


@cache
def patterns() -> SearchStrategy[n.Pattern]:
    """What stands on the left of `=`."""
    zipped = tuples(st.builds(n.Result, names(), result_types()), 1, 2)
    listed = tuples(results() | st.builds(n.Unzip, zipped, packs()), 1, 3)
    return results() | st.builds(n.ListPattern, listed)


@cache
def bounds() -> SearchStrategy[tuple[n.Bound, ...]]:
    """Index symbols."""
    return tuples(st.builds(n.Bound, names(), expressions(1)), 0, 3)


# --- statements ---------------------------------------------------------------------------------------------


@cache
def dtypes() -> SearchStrategy[n.Dtype]:
    """Generic types."""
    base = st.sampled_from(sorted(TYPE_WORDS)) | types()
    return st.builds(n.Dtype, names(), base, st.none() | types(), notes=notes())


@cache
def parameters() -> SearchStrategy[n.Parameter]:
    """Parameters with and without a value."""
    plain = st.builds(n.Parameter, names(), type_specs(), notes=notes())
    return plain | st.builds(n.Parameter, names(), type_specs(), expressions(), bounds(), notes=notes())


@cache
def usings() -> SearchStrategy[n.Using]:
    """Helper symbols."""
    return st.builds(n.Using, patterns(), expressions(), notes=notes())


@cache
def assertions() -> SearchStrategy[n.Assertion]:
    """Assertions with and without a message."""
    label = st.none() | string_texts()
    printed = tuples(st.builds(n.Printed, expressions(FLAT), label), 0, 3)
    message = st.builds(n.Text, string_texts()) | formats(1)
    plain = st.builds(n.Assertion, expressions(), notes=notes())
    return plain | st.builds(n.Assertion, expressions(), message, printed, notes=notes())


@cache
def iterations() -> SearchStrategy[n.Iteration]:
    """Counts and indices of loops."""
    counted = st.builds(n.Iteration, st.none() | names(), expressions(1))
    return counted | st.builds(n.Iteration, names())


@cache
def lowerings() -> SearchStrategy[n.Lowering]:
    """Formulas."""
    return st.builds(
        n.Lowering,
        accesses(FLAT),
        st.sampled_from(LOWERING_SIGNS),
        expressions(),
        bounds(),
        st.none() | expressions(FLAT),
        tuples(st.builds(n.Local, names(), expressions(FLAT)), 0, 2),
        st.none() | iterations(),
        notes=notes(),
    )


@cache
def attributes() -> SearchStrategy[tuple[n.Attribute, ...]]:
    """Attributes of an invocation."""
    return tuples(st.builds(n.Attribute, names(), expressions(FLAT)), 0, 3)


@cache
def invocations() -> SearchStrategy[n.Invocation]:
    """Invocations of operators."""
    operator, given = st.sampled_from(OPERATORS), tuples(types(), 0, 2)
    return st.builds(
        n.Invocation, operator, given, attributes(), tuples(lengths(), 0, 3), st.none() | names()
    )


@cache
def callees(depth: int) -> SearchStrategy[n.Callee]:
    """Invocations, expressions and blocks."""
    found: SearchStrategy[n.Callee] = invocations() | expressions(FLAT)
    if depth == 0:
        return found
    inner = tuples(components(depth - 1), 0, 2)
    end = st.builds(
        lambda one, last: Trivia(one.above, one.behind, one.blank, last), notes(), tuples(comments(), 0, 2)
    )
    block = st.builds(n.Block, inner, tuples(expressions(1), 1, 2), st.none() | names(), end=end)
    return found | block


@cache
def loops(depth: int) -> SearchStrategy[n.Loop]:
    """Loops in all their forms."""
    carried = st.builds(n.Carried, names(), expressions(1), result_types())
    scan = st.builds(n.Scan, names(), expressions(1))
    callee = callees(depth)
    condition = st.none() | callee
    return st.builds(
        n.Loop,
        callee,
        tuples(carried, 0, 2),
        tuples(scan, 0, 2),
        condition,
        condition,
        st.none() | iterations(),
        st.booleans(),
    )


@cache
def components(depth: int = 2) -> SearchStrategy[n.Component]:
    """Components with branches and loops."""
    callee = callees(depth)
    branch = st.builds(n.Branch, tuples(st.tuples(callee, callee), 1, 2), callee)
    value = callee | branch | loops(depth)
    return st.builds(n.Component, tuples(patterns(), 1, 2), value, notes=notes())


@cache
def quantizations() -> SearchStrategy[n.Quantization]:
    """How tensors are quantised."""
    tensor, operator = st.sampled_from(("a", "blk.w", "main.G.x")), st.sampled_from(OPERATORS)
    return st.builds(n.Quantization, tensor, operator, tuples(types(), 0, 2), attributes(), notes=notes())


# --- documents ----------------------------------------------------------------------------------------------


@cache
def statements(block: str) -> SearchStrategy[n.Statement]:
    """What may stand in a block."""
    if block in PARAMETER_BLOCKS:
        return parameters()
    others: dict[str, SearchStrategy[n.Statement]] = {
        "dtype": dtypes(),
        "using": usings(),
        "assert": assertions(),
        "lower": lowerings(),
        "compose": components(),
        "update": components(1),
        "quantize": quantizations(),
    }
    return others[block]


@cache
def sections(block: str) -> SearchStrategy[n.Section]:
    """A block of an operator."""
    return st.builds(n.Section, st.just(block), tuples(statements(block), 0, 2), notes=notes(), end=ends())


@cache
def operators() -> SearchStrategy[n.Operator]:
    """Operators and graphs, their blocks in any order."""
    blocks = st.lists(st.sampled_from(BLOCKS), unique=True, max_size=3)
    found = blocks.flatmap(lambda chosen: st.tuples(*map(sections, chosen)))
    plain = st.builds(n.Operator, names(), found, st.booleans(), notes=notes(), end=ends())
    return plain | st.builds(
        n.Operator, names(), found, st.just(False), st.just(True), notes=notes(), end=ends()
    )


@cache
def documents() -> SearchStrategy[n.Document]:
    """Modules."""
    modules = tuples(st.sampled_from(("nn", "layout", "own.parts")), 1, 3)
    imports = tuples(st.builds(n.Import, modules, notes=notes()), 0, 2)
    end = tuples(comments(), 0, 2).map(lambda above: Trivia(above, "", bool(above)))
    return st.builds(n.Document, imports, tuples(operators(), 0, 3), end=end)
