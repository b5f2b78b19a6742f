"""Type families expand to the tables of the specification, and wrong ones are told."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from lamella.base.source import Source
from lamella.lang.nem.documents import baseline
from lamella.lang.nem.families import expand, variants_of
from lamella.lang.nem.nodes import Binding, Conformance, Constraint, Name, TypeFamily, TypeParameter, Variant
from lamella.lang.nem.parse import parse
from lamella.lang.nem.registry import load_registry
from lamella.lang.nem.words import ELEMENTS
from tests.support.lang.nem.variant_table import ROWS

ALL = {str(item.id): item for items in baseline().variants.values() for item in items}


def test_the_baseline_has_13_families_17_must_and_26_may_variants() -> None:
    assert len(baseline().families) == 13
    assert Counter(item.must for item in ALL.values()) == {True: 17, False: 26}
    assert not baseline().findings


def test_the_expansion_is_the_table_of_the_specification() -> None:
    assert set(ALL) == {name for name, *_ in ROWS}
    for name, inputs, output, accum, must in ROWS:
        found = ALL[name]
        types = list(found.operands.values())
        present = [item.replace("any_supported", "any") for item in types if item != "absent"]
        # The output is declared before the bias, which is declared by the variant.
        assert Counter(present) == Counter([*inputs, output]), name
        assert (found.accum, found.must) == (accum, must), name


def test_quant_words_are_those_of_the_appendix() -> None:
    words = {name: items[0].quant for name, items in baseline().variants.items()}
    assert words == {
        **dict.fromkeys(("conv2d.float", "gemm.float"), ("absent",)),
        **dict.fromkeys(("conv2d.int8", "conv2d.int4", "gemm.int8", "gemm.int4"), ("required",)),
        **dict.fromkeys(("eltwise", "view", "norm", "softmax", "cast"), ()),
        "quantize": ("required", "on", "dst"),
        "dequantize": ("required", "on", "src"),
    }


def test_bias_is_absent_or_of_its_type() -> None:
    assert ALL["gemm.int8<i8>.no_bias"].operands == {"A": "i8", "B": "i8", "Y": "i8", "C": "absent"}
    assert ALL["conv2d.int8<i16>.with_bias"].operands == {"X": "i8", "W": "i8", "Y": "i16", "B": "i32"}


def test_combinations_without_a_conformance_entry_do_not_exist() -> None:
    assert "gemm.int8<i16>.no_bias" not in ALL
    assert "gemm.float<bf16>.with_bias" not in ALL


def test_an_opcode_sees_the_variants_of_its_domain() -> None:
    families = load_registry()["matmul"].families
    found = variants_of(baseline().variants, families)
    assert {item.id.family for item in found} == {"gemm.float", "gemm.int8", "gemm.int4"}
    assert len(found) == 9
    assert variants_of(baseline().variants, ()) == ()
    text = "type_family gemm.wide { A: u8 B: u8 Y: u32 variants: only: {} conformance: { MAY } }"
    added, findings = expand(_first(text))
    assert not findings
    assert variants_of({**baseline().variants, "gemm.wide": added}, families)[-1:] == added
    assert added[0] not in variants_of({**baseline().variants, "gemm.wide": added}, ("eltwise",))


def _first(text: str) -> TypeFamily:
    family = parse(Source("f.nem", text)).document.declarations[0]
    assert isinstance(family, TypeFamily)
    return family


ELEMS = st.sampled_from(sorted(ELEMENTS))
SETS = st.lists(st.lists(ELEMS, min_size=1, max_size=3, unique=True), max_size=3)


@given(SETS, st.data())
def test_expansion_is_substitution(sets: list[list[str]], data: st.DataObject) -> None:
    """Each chosen instantiation appears once, its operands replaced like by a dictionary."""
    names = [f"T{index}" for index in range(len(sets))]
    types = st.sampled_from([*names, "absent", "any_supported", *sorted(ELEMENTS)])
    operands = data.draw(st.dictionaries(st.sampled_from("ABCXYZ"), types, max_size=5))
    chosen = data.draw(st.lists(st.sampled_from(list(product(*sets))), min_size=1, unique=True))
    levels = data.draw(st.lists(st.sampled_from(["MUST", "MAY"]), min_size=len(chosen), max_size=len(chosen)))
    accum = data.draw(st.sampled_from([*names, *sorted(ELEMENTS)]))
    family = TypeFamily(
        Name("made.up"),
        tuple(TypeParameter(name, tuple(elems)) for name, elems in zip(names, sets, strict=True)),
        tuple(Binding(operand, word) for operand, word in operands.items()),
        (Constraint("accum", (accum,)),),
        (Variant("v", (), tuple(Conformance(*pair) for pair in zip(levels, chosen, strict=True))),),
    )
    found, findings = expand(family)
    assert not findings
    assert [item.id.elems for item in found] == chosen
    for item, level in zip(found, levels, strict=True):
        meaning = {**dict(zip(names, item.id.elems, strict=True))}
        assert item.operands == {key: meaning.get(word, word) for key, word in operands.items()}
        assert item.accum == meaning.get(accum, accum)
        assert item.must == (level == "MUST")


def test_many_operands_are_refused_before_they_are_multiplied() -> None:
    bindings = tuple(Binding(f"X{index}", "f16") for index in range(5000))
    variants = tuple(Variant(f"v{index}", (), (Conformance("MAY", ()),)) for index in range(5000))
    found, findings = expand(TypeFamily(Name("made.up"), (), bindings, (), variants))
    assert found == ()
    assert [item.code for item in findings] == ["NEM164"]


def test_a_wrong_parameter_is_told_without_what_follows_from_it() -> None:
    text = """type_family gemm.odd<T: {f16}, T: {f32}> {
        A: T
        variants: only: { B: U } conformance: { MAY <f32> }
    }"""
    found, findings = expand(_first(text))
    assert found == ()
    assert [(item.code, item.span.text) for item in findings] == [("NEM164", "T: {f32}")]
