"""What an instance has from the declarations that its own extends."""

from __future__ import annotations

import pytest

from lamella.base.source import Source
from lamella.lang.module.instantiate import (
    Known,
    instantiate,
)
from lamella.lang.module.resolve import Workspace, resolve
from tests.support.lang.module.instances import build, built, codes, shapes

FAMILY = """
abstract module Base(d: int, heads: int = 2, eps: float = 1.0):
  let:
    D = d // heads
    constraint:
      D > 0, "the heads are not empty"
  params:
    w: [heads, D]
    b: [D] if heads > 1
  forward:
    in: x: [B, d]
    out: y: [B, d]

module Child(d: int = 8, extra: int = 3) extends Base:
  let:
    D = d
    E = D * extra
  params:
    +more: [E]
    w: [heads, D] @frozen
    new: [eps_size] if false
  forward:
    graph:
      x -> relu() -> y
    save: [x]
  backward:
    graph:
      d_y -> relu() -> d_x

module GrandChild extends Child:
  params:
    w: [...] @trainable

module Other(d: int = 8) extends Child:
  forward:
    in: z: [N, d]
    graph:
      z -> gelu() -> y
"""


def test_a_child_has_all_that_it_inherits() -> None:
    child = built(FAMILY, "Child")
    assert shapes(child) == {"w": (2, 8), "b": (8,), "more": (24,)}
    assert child.values["heads"] == Known(2, "inherited default")
    assert child.values["eps"] == Known(1.0, "inherited default")
    assert child.values["D"].value == 8
    assert child.module.forward is not None
    assert child.module.forward.inputs is not None
    assert child.module.forward.graph is not None
    assert [item.name for item in child.tensors["w"].annotations] == ["frozen"]
    assert child.module.extends is None


def test_parameters_are_inherited_where_the_head_has_none() -> None:
    grandchild = built(FAMILY, "GrandChild", d=6, extra=1)
    assert shapes(grandchild) == {"w": (2, 6), "b": (6,), "more": (6,)}
    assert [item.name for item in grandchild.tensors["w"].annotations] == ["frozen", "trainable"]
    assert grandchild.module.backward is not None


def test_a_new_graph_drops_the_old_backward() -> None:
    other = built(FAMILY, "Other")
    assert other.module.backward is None
    assert other.module.forward is not None
    assert other.module.forward.save is None
    assert other.module.forward.inputs is not None
    assert other.module.forward.inputs[0].name == "z"
    assert shapes(other)["more"] == (24,)


def test_inherited_constraints_and_names_are_checked_first() -> None:
    text = FAMILY.replace("heads: int = 2", "heads: int = 16")
    found = build(text, "Child")
    assert "E027" in codes(found)
    own = "module Own(d: int = 8, D: int = 3) extends Child:\n  params:\n    u: [D]\n"
    assert set(codes(build(f"{FAMILY}\n{own}", "Own"))) == {"E009"}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("w: [heads, D] @frozen", "w: [heads, D + 1] @frozen", "E011"),
        ("w: [heads, D] @frozen", "w: [heads, D, fp32]", "E011"),
        ("w: [heads, D] @frozen", "w: [heads, D]?", "E011"),
        ("w: [heads, D] @frozen", "w: Base(2)", "E011"),
        ("+more: [E]", "+b: [D]", "E009"),
        ("in: z: [N, d]", "in: (z: [N, d], u: [N])", "E011"),
        ("in: z: [N, d]", "in: z: [N, d, d]", "E011"),
        ("in: z: [N, d]", "in: z: [d, N]", "E011"),
        ("heads: int = 2", "heads: int", "E012"),
    ],
)
def test_what_is_restated_must_be_the_same(old: str, new: str, code: str) -> None:
    assert old in FAMILY
    found = build(FAMILY.replace(old, new), "Other")
    assert codes(found) == [code], "\n".join(map(str, found.findings))


def test_an_inherited_graph_is_read_where_it_was_written() -> None:
    workspace = Workspace()
    unit = workspace.take(
        Source(
            "main.module",
            "from std.models.llama import Llama\nmodel Mine extends Llama:\n  params:\n    +x: [1]\n",
        )
    )
    resolved = resolve(unit, workspace)
    assert resolved.findings == ()
    found = instantiate(resolved.scope.local["Mine"], {}, resolved.scope)
    assert found.instance is not None, found.findings
    assert found.instance.scope.unit.standard
    assert "x" in found.instance.tensors
