"""NEM documents as nodes: right in syntax, and in nothing else."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.base.source import Trivia
from lamella.lang.nem import nodes as n
from lamella.lang.nem.words import (
    ELEMENTS,
    FORMS,
    MOVES,
    NOTE_DECORATORS,
    QUANT_FORMS,
    TASK_DECORATORS,
    UNITS,
)
from tests.support.strategies import nem_devices

NAMES = (
    *("a", "b2", "_c", "X_L2", "tileX_bytes", "T", "i", "i5", "in_", "region1", "L3", "f64", "Loop"),
    *(
        "min",
        "max",
        "exp",
        "transfer",
        "store",
        "compute",
        "size",
        "align",
        "import",
        "dst",
        "src",
        "op",
        "attrs",
    ),
    *("async", "sync", "topology", "opcode", "variants", "per_tensor", "MUST", "NMU", "true"),
)
REGION_DECORATORS = ("materialized", "readonly", "writeonly", "fast")
OTHER_DECORATORS = (*REGION_DECORATORS, *NOTE_DECORATORS, *TASK_DECORATORS, "max_in_flight")


@cache
def names() -> SearchStrategy[str]:
    """Names that may be declared; many mean something elsewhere."""
    return st.sampled_from(NAMES)


@cache
def name_nodes() -> SearchStrategy[n.Name]:
    """Names as nodes."""
    return st.builds(n.Name, names())


@cache
def comments() -> SearchStrategy[str]:
    """Comments of one line."""
    text = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=5)
    return st.sampled_from(("#", "# a word", '#! [0..3] "')) | text.map(lambda words: f"# {words}".rstrip())


@cache
def notes() -> SearchStrategy[Trivia]:
    """Notes as a parser finds them."""
    above = st.lists(comments(), max_size=2).map(tuple)
    some = st.builds(Trivia, above, st.just("") | comments(), st.booleans())
    return st.just(Trivia()) | some


# --- expressions --------------------------------------------------------------------------------------------


@cache
def integers() -> SearchStrategy[n.Expr]:
    """Integers of at most 63 bits."""
    return st.builds(n.Integer, st.integers(0, 20) | st.integers(0, 2**63 - 1))


@cache
def reals() -> SearchStrategy[n.Expr]:
    """Finite floats that are not negative."""
    return st.builds(n.Real, st.floats(0.0, allow_infinity=False, allow_nan=False).map(abs))


def chains(operand: SearchStrategy[n.Expr]) -> SearchStrategy[n.Expr]:
    """Flat chains of one level."""

    def of(*signs: str) -> SearchStrategy[n.Expr]:
        rest = st.lists(st.tuples(st.sampled_from(signs), operand), min_size=1, max_size=3)
        return st.builds(n.Chain, operand, rest.map(tuple))

    return of("+", "-") | of("*", "/", "mod")


@cache
def expressions() -> SearchStrategy[n.Expr]:
    """Expressions of every form."""
    used = names() | st.sampled_from(sorted(ELEMENTS))
    leaves = integers() | reals() | st.builds(n.Name, used)
    return st.recursive(leaves, lambda inner: chains(inner) | st.builds(n.Negate, inner), max_leaves=4)


@cache
def texts() -> SearchStrategy[n.Value]:
    """Strings of any characters that a file may hold."""
    return st.builds(n.Text, st.text(st.characters(codec="utf-8", min_codepoint=1), max_size=8))


@cache
def values() -> SearchStrategy[n.Value]:
    """Values of every form."""

    def listed(inner: SearchStrategy[n.Value]) -> SearchStrategy[n.Value]:
        return st.builds(n.Items, st.lists(inner, max_size=3).map(tuple))

    return st.recursive(expressions() | texts(), listed, max_leaves=3)


@cache
def attributes() -> SearchStrategy[n.Attribute]:
    """Attributes; `strides` may be one."""
    return st.builds(n.Attribute, st.builds(n.Name, names() | st.just("strides")), values())


# --- regions and operands -----------------------------------------------------------------------------------


@cache
def sizes() -> SearchStrategy[tuple[n.Expr, ...]]:
    """Lists as of shapes and strides."""
    return st.lists(expressions(), min_size=1, max_size=3).map(tuple)


@cache
def quants() -> SearchStrategy[n.Quant]:
    """Quantisation descriptors with any fields."""
    # Behind a comma `strides` begins those of a region, by the grammar of the specification.
    given = st.lists(attributes(), min_size=1, max_size=3)
    fields = given.filter(lambda items: all(item.name.id != "strides" for item in items[1:])).map(tuple)
    return st.builds(n.Quant, st.sampled_from(sorted(QUANT_FORMS)), fields)


@cache
def types() -> SearchStrategy[n.TypeAttributes]:
    """Type attributes, at least one."""
    return st.builds(
        n.TypeAttributes,
        st.none() | st.builds(n.Name, st.sampled_from(sorted(ELEMENTS))),
        st.none() | sizes(),
        st.none() | name_nodes(),
        st.none() | sizes(),
        st.none() | quants(),
    ).filter(lambda found: found != n.TypeAttributes())


@cache
def regions() -> SearchStrategy[n.Region]:
    """Regions with and without a type."""
    return st.builds(n.Region, name_nodes(), expressions(), expressions(), st.none() | types())


@cache
def decorators(known: tuple[str, ...] = OTHER_DECORATORS) -> SearchStrategy[tuple[n.Decorator, ...]]:
    """Decorators by name, with any arguments."""
    unit = st.builds(n.UnitRef, st.sampled_from(sorted(UNITS)), expressions()).map(lambda item: (item,))
    arguments = st.just(()) | unit | st.lists(values(), max_size=2).map(tuple)
    one = st.builds(n.Decorator, st.sampled_from(known), arguments)
    return st.just(()) | st.lists(one, max_size=2).map(tuple)


@cache
def operands(known: tuple[str, ...] = OTHER_DECORATORS) -> SearchStrategy[n.Operand]:
    """Operands with decorators."""
    return st.builds(n.Operand, name_nodes() | regions(), decorators(known))


# --- statements ---------------------------------------------------------------------------------------------


def name_lists(least: int = 0) -> SearchStrategy[tuple[n.Name, ...]]:
    """Lists of tokens."""
    return st.lists(name_nodes(), min_size=least, max_size=3).map(tuple)


@cache
def moves() -> SearchStrategy[n.Task]:
    """Transfers and stores."""
    one = operands().map(lambda item: (item,))
    return st.builds(
        n.Task,
        st.none() | name_nodes(),
        st.builds(n.Name, st.sampled_from(sorted(MOVES))),
        st.sampled_from(sorted(FORMS)),
        one,
        one,
        st.just(()),
        name_lists(),
        decorators(),
        notes=notes(),
    )


@cache
def computes() -> SearchStrategy[n.Task]:
    """Compute tasks; decorators of a task behind its last operand are always the task's."""
    last = operands((*REGION_DECORATORS, *NOTE_DECORATORS, "max_in_flight"))
    outputs = st.tuples(st.lists(operands(), max_size=1), last).map(lambda pair: (*pair[0], pair[1]))
    return st.builds(
        n.Task,
        st.none() | name_nodes(),
        st.builds(n.Name, names().filter(lambda text: text not in MOVES)),
        st.sampled_from(sorted(FORMS)),
        st.lists(operands(), min_size=1, max_size=2).map(tuple),
        outputs,
        st.lists(attributes(), max_size=3).map(tuple),
        name_lists(),
        decorators(),
        notes=notes(),
    )


@cache
def buffers() -> SearchStrategy[n.Buffer]:
    """Buffers at every level."""
    properties = (expressions(), st.none() | expressions(), st.booleans(), decorators())

    def at(level: str, index: SearchStrategy[n.Expr | None]) -> SearchStrategy[n.Buffer]:
        stored = {"codec": st.none() | name_nodes(), "stored": st.none() | expressions()}
        return st.builds(n.Buffer, name_nodes(), st.just(level), index, *properties, **stored, notes=notes())

    return at("DDR", st.none()) | at("L2", st.none()) | at("L1", st.none() | expressions())


@cache
def simple_statements() -> SearchStrategy[n.Statement]:
    """Statements that hold no others."""
    return st.one_of(
        st.builds(n.Const, name_nodes(), expressions(), notes=notes()),
        st.builds(n.Let, name_nodes(), values(), notes=notes()),
        st.builds(n.RegionDef, name_nodes(), regions(), decorators(), st.booleans(), notes=notes()),
        st.builds(n.Wait, name_lists(1), notes=notes()),
        buffers(),
        moves(),
        computes(),
    )


@cache
def statements() -> SearchStrategy[n.Statement]:
    """Statements, loops among them."""

    def looped(inner: SearchStrategy[n.Statement]) -> SearchStrategy[n.Statement]:
        body = st.lists(inner, max_size=3).map(tuple)
        parts = (name_nodes(), expressions(), expressions(), decorators(), body)
        return st.builds(n.Loop, *parts, notes=notes(), end_notes=notes())

    return st.recursive(simple_statements(), looped, max_leaves=4)


@cache
def documents() -> SearchStrategy[n.Document]:
    """Whole documents."""
    declaration = nem_devices.families(notes()) | nem_devices.devices(notes(), expressions())
    return st.builds(
        n.Document,
        st.lists(st.builds(n.Include, texts(), notes=notes()), max_size=2).map(tuple),
        st.lists(declaration, max_size=2).map(tuple),
        st.none() | st.builds(n.DeviceRef, name_nodes() | texts(), notes=notes()),
        st.none() | name_nodes(),
        st.lists(statements(), max_size=4).map(tuple),
        name_notes=notes(),
        end_notes=st.builds(Trivia, st.lists(comments(), max_size=2).map(tuple)),
    )
