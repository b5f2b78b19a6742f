"""`model.at`: a model at every level as a sequence, and what of it comes from one part."""

from __future__ import annotations

import re

import pytest

import lamella
from lamella.base.errors import InputError
from lamella.base.levels import Level
from tests.support.repository import ROOT

TINY = ROOT / "examples/sessions/tiny.module"
PART = "blocks.0.mlp"


def at(level: str) -> Level:
    """A small Llama at a level."""
    model = lamella.load(TINY, preset="tiny", shape={"B": 1, "T": 2})
    given: dict[str, object] = {"seed": 1} if level in ("nac", "nem") else {}
    return model.at(level, **given, **({"device": "npm_lite"} if level == "nem" else {}))


@pytest.mark.parametrize("level", ["sknd", "nac", "tensor", "llvm", "nem"])
def test_a_part_is_what_comes_from_its_operations(level: str) -> None:
    """Every level has the two products of the block, and nothing of another block."""
    whole = at(level)
    part = whole[PART]
    assert 0 < len(part) < len(whole)
    made = {name for item in part for name in item.operations}
    assert {f"{PART}.gate_up_plain", f"{PART}.out_plain"} <= made
    assert all(item.text in whole.text for item in part)
    assert repr(part) == f"<level {level} TinyLlama {PART}: {len(part)} items>"
    if level in ("sknd", "nac", "nem"):  # kernels serve several blocks
        assert not [name for name in made if name.startswith("blocks.1.")]


def test_items_have_shapes() -> None:
    """What instructions give is what the operations of the graph give."""
    shapes = {item.operations: item.shape for item in at("sknd")}
    products = [item for item in at("nac")[PART] if re.search(r"linear|matmul", item.name)]
    assert [item.shape for item in products] == [shapes[item.operations] for item in products]


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'llvm'"):
        at("lvm")
    with pytest.raises(InputError, match=r"did you mean 'blocks.0.mlp'"):
        at("sknd")["blocks.0.mpl"]
    with pytest.raises(InputError, match="there is no lowering to 'nac'"):
        lamella.load(ROOT / "examples/kernels/fibonacci.tensor").at("nac")
