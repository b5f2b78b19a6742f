"""Module DSL documents as nodes: right in syntax, and in nothing else."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.base.source import Trivia
from lamella.lang.module import nodes as n
from tests.support.strategies.module_expressions import (
    annotated,
    block_notes,
    comments,
    expressions,
    few,
    names,
    notes,
    qualified,
    strings,
)
from tests.support.strategies.module_sections import (
    FREE_TEXTS,
    any_fields,
    backwards,
    bindings,
    config_params,
    constants,
    fields,
    forwards,
    mappings,
    open_ports,
    params,
    selections,
    sublayers,
)

DOCS = ("", "A sentence.", 'Said "so"', '"Quoted" first', "One -> # two.\n\n  three: four\nfive")


@cache
def imports() -> SearchStrategy[n.Import]:
    """Imports of every form."""
    path = st.sampled_from((("a",), ("std", "primitives"), ("models", "llama", "in"), ("v", "as")))
    version = st.none() | st.integers(0, 12)
    imported = few(st.builds(n.Imported, names(), st.none() | names()), 1, 3)
    return st.one_of(
        st.builds(n.Import, path, version, st.none() | names(), st.none(), notes=notes()),
        st.builds(n.Import, path, version, st.none(), st.just(()) | imported, notes=notes()),
    )


@cache
def modules() -> SearchStrategy[n.Module]:
    """Modules, blocks and models; without a parameter list there is something that is extended."""
    listed = st.tuples(few(config_params(), most=3), st.none() | qualified())
    heads = listed | st.tuples(st.none(), qualified())
    kinds = st.sampled_from((("module", False), ("module", True), ("block", False), ("model", False)))

    def build(
        head: tuple[tuple[n.ConfigParam, ...] | None, str | None], kind: tuple[str, bool], body: n.Module
    ) -> n.Module:
        found = {name: getattr(body, name) for name in n.Module.__dataclass_fields__}
        found |= {"params": head[0], "extends": head[1], "kind": kind[0], "abstract": kind[1]}
        return n.Module(**found)

    return st.builds(build, heads, kinds, _bodies())


@cache
def _bodies() -> SearchStrategy[n.Module]:
    return st.builds(
        n.Module,
        st.just("module"),
        names(),
        doc=st.sampled_from(DOCS),
        annotations=annotated(),
        bindings=few(bindings(), most=3),
        constants=few(constants()),
        tensors=few(params()),
        sublayers=st.none() | sublayers(),
        forward=st.none() | forwards(),
        backward=st.none() | backwards(),
        hf_config=st.none() | any_fields(),
        hf_mapping=st.none() | few(mappings()),
        hf_export=st.none() | few(mappings()),
        stub=st.booleans(),
        notes=block_notes(),
    )


@cache
def signatures() -> SearchStrategy[n.Signature]:
    """Forwards and backwards of primitives."""
    equation = st.builds(n.Equation, few(names(), 1), expressions(), notes=notes())
    native = st.builds(n.Signature, native=st.just(True), notes=block_notes())
    field = fields(st.sampled_from(("impl", "note", "a")))
    return native | st.builds(
        n.Signature, open_ports(), open_ports(), few(equation), few(field), notes=block_notes()
    )


@cache
def primitives() -> SearchStrategy[n.Primitive]:
    """Primitives."""
    field = fields(st.sampled_from(("impl", "precision", "memory", "constraints", "fusion")))
    sections = st.lists(field, max_size=2, unique_by=lambda item: item.name).map(tuple)
    return st.builds(
        n.Primitive,
        names(),
        st.sampled_from(DOCS),
        few(config_params()),
        st.none() | signatures(),
        st.none() | signatures(),
        selections(),
        sections,
        st.booleans(),
        notes=block_notes(),
    )


@cache
def declarations() -> SearchStrategy[n.Declaration]:
    """Declarations of every kind."""
    parts = (names(), any_fields(), st.sampled_from(DOCS))
    return st.one_of(
        modules(),
        primitives(),
        st.builds(n.Recipe, *parts, notes=block_notes()),
        st.builds(n.Preset, *parts, notes=block_notes()),
    )


@cache
def settings() -> SearchStrategy[tuple[n.Setting, ...]]:
    """Blocks of settings, each kind at most once."""
    group = st.builds(n.Field, names() | strings(), st.sampled_from(FREE_TEXTS), notes=notes())
    docs = st.sampled_from(DOCS)
    word = st.sampled_from(("verify_backward", "topology"))
    plain = st.builds(n.Setting, word, any_fields(), docs, notes=block_notes())
    groups = st.builds(n.Setting, st.just("groups"), few(group), docs, notes=block_notes())
    return st.just(()) | st.lists(plain | groups, max_size=2, unique_by=lambda item: item.kind).map(tuple)


@cache
def documents() -> SearchStrategy[n.Document]:
    """Whole documents."""
    kinds = st.sampled_from(("primitive", "module", "block", "model", "recipe", "preset"))
    lines = imports() | st.one_of(
        st.builds(n.Export, kinds, names(), notes=notes()), st.builds(n.Export, st.just("*"), notes=notes())
    )
    parts = st.tuples(few(lines), few(declarations()), settings())
    items = parts.map(lambda found: tuple(item for part in found for item in part))
    ends = st.builds(Trivia, above=few(comments()), last=few(comments()))
    return st.builds(n.Document, items, st.sampled_from(DOCS), notes=ends)
