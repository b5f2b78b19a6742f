"""Type families and devices as nodes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.base.source import Trivia
from lamella.lang.nem import nodes as n
from lamella.lang.nem.words import ELEMENTS, UNITS

WORDS = (
    "X",
    "W",
    "T",
    "T_out",
    "input",
    "absent",
    "required",
    "on",
    "dst",
    "any_supported",
    "f16",
    "default",
)
PARTS = ("gemm", "conv2d", "float", "int8", "eltwise", "no_bias", "default", "opcode", "topology")
KEYS = ("num_engines", "l2_size_bytes", "l1_size_bytes", "int8_macs", "clock", *sorted(UNITS))


def _some(items: SearchStrategy[n.Setting], least: int = 0) -> SearchStrategy[tuple[n.Setting, ...]]:
    return st.lists(items, min_size=least, max_size=3, unique_by=lambda item: item.name.id).map(tuple)


def elements(least: int = 0) -> SearchStrategy[tuple[str, ...]]:
    """Lists of element types."""
    return st.lists(st.sampled_from(sorted(ELEMENTS)), min_size=least, max_size=2).map(tuple)


def family_names() -> SearchStrategy[str]:
    """`gemm` or `gemm.float`."""
    return st.lists(st.sampled_from(PARTS), min_size=1, max_size=2).map(".".join)


def bindings() -> SearchStrategy[tuple[n.Binding, ...]]:
    """Operand bindings."""
    word = st.sampled_from(WORDS)
    return st.lists(st.builds(n.Binding, word, word), max_size=2).map(tuple)


def families(notes: SearchStrategy[Trivia]) -> SearchStrategy[n.TypeFamily]:
    """Type families."""
    word = st.sampled_from(WORDS)
    constraint = st.builds(
        n.Constraint, word | st.just("quant"), st.lists(word, min_size=1, max_size=3).map(tuple)
    )
    conformance = st.builds(n.Conformance, st.sampled_from(("MUST", "MAY")), elements())
    variant = st.builds(n.Variant, word, bindings(), st.lists(conformance, max_size=3).map(tuple))
    return st.builds(
        n.TypeFamily,
        st.builds(n.Name, family_names()),
        st.lists(st.builds(n.TypeParameter, word, elements(1)), max_size=2).map(tuple),
        bindings(),
        st.lists(constraint, max_size=2).map(tuple),
        st.lists(variant, max_size=2).map(tuple),
        notes=notes,
    )


def devices(notes: SearchStrategy[Trivia], values: SearchStrategy[n.Expr]) -> SearchStrategy[n.Device]:
    """Devices with any of their blocks."""
    blocks = st.builds(
        lambda found, last: Trivia(found.above, found.behind, found.blank, last),
        notes,
        notes.map(lambda found: found.above),
    )
    name = st.builds(n.Name, st.sampled_from(KEYS))
    settings = _some(st.builds(n.Setting, name, values, notes=notes))
    topology = st.builds(
        n.Topology,
        settings,
        st.none() | settings,
        st.none() | settings,
        notes=blocks,
        device_units_notes=blocks,
        per_engine_notes=blocks,
    )
    group = st.builds(n.UnitGroup, name, settings, notes=blocks)
    groups = st.lists(group, max_size=2, unique_by=lambda item: item.unit.id).map(tuple)
    variant = st.builds(n.VariantRef, family_names(), elements(), st.sampled_from(PARTS), notes=notes)
    variants = st.lists(variant, max_size=3).map(tuple)
    return st.builds(
        n.Device,
        name,
        st.none() | name,
        st.none() | st.builds(n.Text, st.text(max_size=3).filter(lambda text: "\0" not in text)),
        st.none() | topology,
        st.none() | groups,
        st.none() | variants,
        st.none() | variants,
        notes=notes,
        end_notes=notes,
        version_notes=notes,
        characteristics_notes=blocks,
        mandatory_notes=blocks,
        extended_notes=blocks,
    )
