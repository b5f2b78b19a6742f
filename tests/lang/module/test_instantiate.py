"""Instances: values, shapes and paths, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.source import Source
from lamella.lang.module.instantiate import (
    Instance,
    Known,
    Value,
    children,
    children_at,
    find_presets,
    instantiate,
    read_preset,
    slot_at,
    walk,
)
from lamella.lang.module.nodes import Module
from lamella.lang.module.resolve import Workspace, resolve
from tests.support.lang.module.instances import build, built, codes, read, shapes

LLAMA = """
module Norm(d: int):
  params:
    weight: [d]

module Attention(d_model: int, heads: int, kv_heads: int = heads, use_bias: bool = false):
  let:
    D = d_model // heads
    rows = (heads + 2 * kv_heads) * D
    constraint:
      d_model % heads == 0, "the heads divide d_model"
      heads % kv_heads == 0, "the kv heads divide the heads"
  constants:
    freqs: precompute_rope_freqs(128, D, theta=10000.0, dtype=fp32)
  params:
    qkv_weight: [rows, d_model]
    qkv_bias: [rows] if use_bias
    out_weight: [d_model, heads * D, fp32]

block Layer(d_model: int, heads: int, kv_heads: int, d_ff: int, use_bias: bool):
  params:
    norm1: Norm(d_model)
    attention: Attention(d_model, heads, kv_heads, use_bias=use_bias)
    norm2: Norm(d_model)
    up: [2 * d_ff, d_model]
    down: [d_model, d_ff]

model Llama(
  vocab: int = 50, d_model: int = 64, layers: int = 2, heads: int = 4, kv_heads: int = 2,
  d_ff: int = 96, use_bias: bool = false, tie: bool = true
):
  params:
    embedding: [vocab, d_model]
    blocks: [layers] x Layer(d_model, heads, kv_heads, d_ff, use_bias)
    final: Norm(d_model)
    head: tied_to(embedding) if tie else [vocab, d_model]

preset small:
  d_model: 32
  d_ff: 3 * d_model
"""


def llama_shapes(
    vocab: int, c: int, layers: int, heads: int, kv: int, ff: int, bias: bool
) -> dict[str, tuple[int, ...]]:
    """The parameters of the model above, as a person writes them down."""
    head = c // heads
    rows = heads * head + 2 * kv * head
    found: dict[str, tuple[int, ...]] = {"embedding": (vocab, c), "final.weight": (c,), "head": (vocab, c)}
    for i in range(layers):
        found[f"blocks[{i}].norm1.weight"] = found[f"blocks[{i}].norm2.weight"] = (c,)
        found[f"blocks[{i}].attention.qkv_weight"] = (rows, c)
        found[f"blocks[{i}].attention.out_weight"] = (c, heads * head)
        found[f"blocks[{i}].up"], found[f"blocks[{i}].down"] = (2 * ff, c), (c, ff)
        if bias:
            found[f"blocks[{i}].attention.qkv_bias"] = (rows,)
    return found


@given(st.data())
def test_a_model_has_the_parameters_that_a_person_counts(data: st.DataObject) -> None:
    vocab, width, layers, groups, kv, ff = (data.draw(st.integers(1, most)) for most in (99, 4, 5, 3, 3, 50))
    bias, tie = data.draw(st.booleans()), data.draw(st.booleans())
    heads = kv * groups
    c = heads * width
    values: dict[str, Value] = {
        "vocab": vocab, "d_model": c, "layers": layers, "heads": heads, "kv_heads": kv, "d_ff": ff,
        "use_bias": bias, "tie": tie,
    }  # fmt: skip
    model = instantiate(PROGRAM.scope.local["Llama"], {k: Known(v) for k, v in values.items()}, PROGRAM.scope)
    assert model.instance is not None
    assert shapes(model.instance) == llama_shapes(vocab, c, layers, heads, kv, ff, bias)
    assert slot_at(model.instance, "head") == dict(walk(model.instance))["head"]
    assert dict(walk(model.instance))["head"].tied == ("embedding" if tie else None)


PROGRAM = read(LLAMA)


def test_equal_elements_are_one_object() -> None:
    model = built(LLAMA, "Llama", layers=80)
    blocks = model.children["blocks"]
    assert isinstance(blocks, tuple)
    assert len(blocks) == 80
    assert len({id(block) for block in blocks}) == 1
    assert blocks[0].children["norm1"] is blocks[0].children["norm2"]
    assert len(list(walk(model))) == 3 + 80 * 6


def test_paths_lead_to_instances_and_tensors() -> None:
    model = built(LLAMA, "Llama")
    attention = children_at(model, "blocks[1].attention")
    assert isinstance(attention, Instance)
    assert attention.name == "Attention"
    assert children_at(model, "") is model
    assert isinstance(children_at(model, "blocks"), tuple)
    for path in ("blocks[2]", "blocks.attention", "nothing", "blocks[1].attention.qkv_weight", "final[0]"):
        assert children_at(model, path) is None
    found = slot_at(model, "blocks[1].attention.out_weight")
    assert found is not None
    assert (found.dims, found.dtype) == ((64, 64), "fp32")
    assert slot_at(model, "blocks.out_weight") is None
    assert [name for name, _ in children(model)] == ["blocks[0]", "blocks[1]", "final"]


def test_values_know_where_they_came_from() -> None:
    model = built(LLAMA, "Llama", d_model=32)
    assert model.values["d_model"] == Known(32, "--set")
    assert model.values["heads"] == Known(4, "default")
    attention = children_at(model, "blocks[0].attention")
    assert isinstance(attention, Instance)
    sources = {name: known.source for name, known in attention.values.items()}
    assert sources["d_model"] == "argument from --set"
    assert sources["heads"] == "argument from the default of 'Llama'"
    assert sources["D"] == "let"
    assert attention.values["D"].value == 8
    assert attention.switched_off == {"qkv_bias": "'use_bias'"}
    constant = attention.constants["freqs"]
    assert (constant.function, constant.positional) == ("precompute_rope_freqs", (128, 8))
    assert constant.named == {"theta": 10000.0, "dtype": "fp32"}


def test_a_false_constraint_tells_the_values() -> None:
    found = build(LLAMA, "Llama", heads=6)
    assert codes(found) == ["E027"]
    assert found.findings[0].message == (
        "the heads divide d_model: 'd_model % heads == 0' is false "
        "(d_model = 64 as argument from the default of 'Llama', heads = 6 as argument from --set)"
    )
    assert found.findings[0].labels[0].span.text.startswith("Attention(d_model")


def test_presets_are_configs() -> None:
    presets = find_presets(PROGRAM.scope)
    config, findings = read_preset(presets["small"])
    assert findings == ()
    assert {name: known.value for name, known in config.items()} == {"d_model": 32, "d_ff": 96}
    assert config["d_ff"].source == "preset 'small'"
    assert instantiate(PROGRAM.scope.local["Llama"], config, PROGRAM.scope).instance is not None


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"d_model": "64"}, "E003"),
        ({"d_model": 64.0}, "E003"),
        ({"d_model": True}, "E003"),
        ({"d_model": None}, "E003"),
        ({"d_model": -64}, "E003"),
        ({"d_model": 2**62}, "E003"),
        ({"tie": 1}, "E003"),
        ({"layers": -1}, "E003"),
        ({"layers": 10**12}, "E101"),
        ({"heads": 0}, "E003"),
        ({"dmodel": 64}, "E002"),
    ],
)
def test_wrong_config_values_are_findings(config: dict[str, Value], code: str) -> None:
    found = build(LLAMA, "Llama", **config)
    assert found.instance is None
    assert set(codes(found)) == {code}


def test_types_of_config_parameters() -> None:
    text = """
module M(a: float = 1, b = 2.5, c: [int] = [1, 2], d: string? = None, e: enum(x, y) = y, f: dtype = bf16,
         g = true, h = "s", i: int? = None, j: [string] = [], k = e, n: int = len(c)):
  params:
    w: [n, f]
    v: [1] if e == y and k == y
"""
    values = {name: known.value for name, known in built(text).values.items()}
    assert values == {
        "a": 1.0, "b": 2.5, "c": (1, 2), "d": None, "e": "y", "f": "bf16", "g": True, "h": "s", "i": None,
        "j": (), "k": "y", "n": 2,
    }  # fmt: skip
    assert type(values["a"]) is float
    slot = slot_at(built(text, f="fp16"), "w")
    assert slot is not None
    assert (slot.dims, slot.dtype) == ((2,), "fp16")
    wrong = ({"c": 1}, {"c": ("a",)}, {"e": "z"}, {"f": "float"}, {"d": 3}, {"h": 3}, {"g": 0}, {"b": "x"})
    for config in wrong:
        assert codes(build(text, **config)) == ["E003"]


def test_independent_mistakes_are_all_told_and_what_follows_is_not() -> None:
    text = """
module Inner(width: int):
  params:
    w: [width]

module M(d: int = 4):
  let:
    a = d // 0
    b = a + 1
    c = missing
    constraint:
      b > 0, "b is positive"
      d > 5, "d is large"
  params:
    u: [b, c]
    v: [d, -1]
    x: Inner()
    y: Inner(b)
    t: tied_to(u)
"""
    assert sorted(codes(build(text))) == ["E002", "E003", "E003", "E012", "E027"]


@pytest.mark.parametrize("text", ["{}", "[{}]", "d if {} else 1"])
@given(value=st.text("abd01+-*/%<>=()[]., \"'", max_size=12))
def test_no_value_of_a_let_ends_in_another_exception(text: str, value: str) -> None:
    let = text.replace("{}", value)
    source = f"module M(d: int = 3):\n  let:\n    a = {let}\n  params:\n    w: [a]\n"
    resolved = resolve(WORKSPACE.take(Source("test.module", source)), WORKSPACE)
    declared = resolved.scope.local.get("M")
    if declared is not None:
        found = instantiate(declared, {}, resolved.scope)
        assert found.instance is not None or found.findings or resolved.findings


@given(st.data())
def test_damaged_programs_have_findings_and_no_exceptions(data: st.DataObject) -> None:
    text = LLAMA
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.sampled_from([0, 1, 5, 30])))
        start = data.draw(st.integers(0, len(LLAMA)))
        text = text[:at] + LLAMA[start : start + data.draw(st.integers(0, 30))] + text[end:]
    resolved = resolve(WORKSPACE.take(Source("test.module", text)), WORKSPACE)
    for declared in resolved.scope.local.values():
        if isinstance(declared.declaration, Module):
            found = instantiate(declared, {}, resolved.scope)
            assert found.instance is not None or found.findings


WORKSPACE = Workspace()
