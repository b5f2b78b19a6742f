"""Parameters of instances: arrays, ties, overrides, budgets."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lamella.base.dim import Dim
from lamella.base.limits import DEFAULT
from lamella.lang.module.instantiate import (
    instantiate,
    slot_at,
    walk,
)
from tests.support.lang.module.instances import build, built, codes, read, shapes


def test_the_index_of_an_element_is_its_layer() -> None:
    text = """
block Mix(d: int, kind: string):
  params:
    a: [d] if kind == "M"
    b: [d, d] if kind != "M"

module M(d: int = 3, kinds: string = "MM*M"):
  params:
    blocks: [len(kinds)] x Mix(d, kind=kinds[layer])
"""
    model = built(text)
    assert list(shapes(model)) == ["blocks[0].a", "blocks[1].a", "blocks[2].b", "blocks[3].a"]
    blocks = model.children["blocks"]
    assert isinstance(blocks, tuple)
    assert len({id(block) for block in blocks}) == 2
    assert codes(build(text.replace("len(kinds)", "5"))) == ["E003"]
    assert codes(build(text.replace("kinds[layer]", "kinds[layr]"))) == ["E002"]
    own = text.replace("d: int = 3,", "d: int = 3, layer: int = 2,")
    assert list(shapes(built(own))) == [f"blocks[{i}].b" for i in range(4)]


def test_a_runtime_dimension_may_be_in_a_let_but_not_in_a_shape() -> None:
    text = """
module M(d: int = 3):
  let:
    T: seq_dim
    N = B * T
  params:
    w: [d]
  forward:
    in: x: [B, T, d]
    out: x
    graph:
      x -> y
"""
    model = built(text.replace("    out: x\n", ""))
    assert isinstance(model.values["N"].value, Dim)
    assert str(model.values["N"].value) == "B * T"
    for shape in ("[B]", "[T, d]", "[N]"):
        assert codes(build(text.replace("    out: x\n", "").replace("w: [d]", f"w: {shape}"))) == ["E016"]


def test_forms_of_parameters() -> None:
    text = """
module Inner(d: int = 2):
  params:
    w: [d]
    v: [d]?

module M(n: int = 3):
  params:
    one: Inner
    two: Array<n, Inner(4)>
    none: [0] x Inner(4)
    stack: [n] x [5, 2]
    scale: scalar
    chosen: Inner(7) if n > 3 else [n]
    a: tied_to(b)
    b: tied_to(two[1].w)
"""
    model = built(text)
    assert shapes(model) == {
        "stack": (3, 5, 2), "scale": (), "chosen": (3,), "a": (4,), "b": (4,), "one.w": (2,), "one.v": (2,),
        **{f"two[{i}].{name}": (4,) for i in range(3) for name in "wv"},
    }  # fmt: skip
    found = dict(walk(model))
    assert found["a"].tied == found["b"].tied == "two[1].w"
    assert found["one.v"].optional
    assert not found["one.w"].optional
    assert model.children["none"] == ()
    assert "chosen.w" in shapes(built(text, n=4))
    for path, code in (("two", "E003"), ("two[3].w", "E002"), ("one", "E003"), ("one.x", "E002")):
        assert codes(build(text.replace("two[1].w", path))) == [code]


def test_tied_tensors_inside_have_whole_paths() -> None:
    text = """
module Inner(d: int = 2):
  params:
    w: [d]
    t: tied_to(w)

module M():
  params:
    parts: [2] x Inner
    u: tied_to(parts[1].t)
"""
    found = dict(walk(built(text)))
    assert found["parts[1].t"].tied == "parts[1].w"
    assert found["u"].tied == "parts[1].w"


OVERRIDES = """
module Inner(d: int):
  params:
    w: [d] @trainable
    v: [d] if d > 100

module M(n: int = 3, rank: int = 2):
  params:
    top: [n]
    parts: [n] x Inner(4)
    one: Inner(5)
    {entry}
"""


@pytest.mark.parametrize(
    ("entry", "annotated"),
    [
        ("parts[{i}].w: [...] @frozen", ["parts[0].w", "parts[1].w", "parts[2].w"]),
        ("parts[1].w: [...] @frozen", ["parts[1].w"]),
        ("one.w: [...] @frozen", ["one.w"]),
        ("one.w: [...] @frozen if rank > 9", []),
        ("one.v: [...] @frozen", []),
    ],
)
def test_annotations_reach_what_is_below(entry: str, annotated: list[str]) -> None:
    entry = re.sub(r"(@\w+)( if .*)", r"\2 \1", entry)
    model = built(OVERRIDES.replace("{entry}", entry))
    found = [
        path for path, slot in walk(model) if [item.name for item in slot.annotations][-1:] == ["frozen"]
    ]
    assert found == annotated
    kept = dict(walk(model))["parts[2].w"].annotations
    assert kept[0].name == "trainable"


def test_tensors_are_added_to_what_is_below() -> None:
    model = built(OVERRIDES.replace("{entry}", "parts[{i}].lora.A: [rank, n] @trainable"))
    assert {path: dims for path, dims in shapes(model).items() if "lora" in path} == {
        f"parts[{i}].lora.A": (2, 3) for i in range(3)
    }
    assert slot_at(model, "parts[1].lora.A") is not None
    assert model.size == 1 + 1 + 3 * (1 + 2) + 2


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("parts[{i}].x: [...] @frozen", "E010"),
        ("parts.w: [...] @frozen", "E010"),
        ("parts[3].w: [...] @frozen", "E010"),
        ("one[{i}].w: [...] @frozen", "E010"),
        ("nothing: [...] @frozen", "E010"),
        ("nothing.w: [...] @frozen", "E010"),
        ("parts[{i}].w: [4]", "E009"),
        ("parts[{i}].x: Inner(4)", "E003"),
        ("parts[{i}].x: [m]", "E002"),
    ],
)
def test_wrong_overrides_are_findings(entry: str, code: str) -> None:
    assert codes(build(OVERRIDES.replace("{entry}", entry))) == [code]


def test_modules_of_modules_stay_within_their_budget() -> None:
    levels = ["module L0():\n  params:\n    w: [1]\n"]
    levels += [f"module L{i}():\n  params:\n    a: [9] x L{i - 1}\n" for i in range(1, 30)]
    text = "\n".join([*levels, "module M():\n  params:\n    a: L29\n"])
    assert set(codes(build(text))) == {"E101"}


def test_arrays_that_differ_by_layer_stay_within_their_budget() -> None:
    text = """
module Inner(i: int):
  params:
    w: [i]

module M(n: int = 1000):
  params:
    a: [n] x Inner(layer)
"""
    scope = read(text).scope
    found = instantiate(scope.local["M"], {}, scope, replace(DEFAULT, max_operations=500))
    assert codes(found) == ["E101"]
    assert len(shapes(built(text))) == 1000


def test_a_deep_nest_is_a_limit_and_no_recursion() -> None:
    levels = ["module L0():\n  params:\n    w: [1]\n"]
    levels += [f"module L{i}():\n  params:\n    a: L{i - 1}\n" for i in range(1, 1000)]
    text = "\n".join(levels)
    assert codes(build(text, "L999")) == ["E101"]
    deep = built(text, "L150")
    assert list(shapes(deep)) == ["a." * 150 + "w"]
