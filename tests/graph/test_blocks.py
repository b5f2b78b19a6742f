"""A block of a model is a model: what it computes alone is what it computes in the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lamella
from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError
from lamella.graph.blocks import block_paths, cut_block
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Tensor
from lamella.graph.rewrite import members
from lamella.graph.verify import verify
from lamella.pipeline.diff.values import observed_model, observed_values
from tests.support.repository import ROOT

TINY = ROOT / "examples/sessions/tiny.module"


@pytest.fixture(scope="module")
def tiny() -> Model:
    model = lamella.load(TINY, preset="tiny", shape={"B": 2, "T": 8})
    assert isinstance(model, Model)
    return replace(model, data=dict(compile_model(model, seed=1).state))


@pytest.mark.parametrize(
    "path", ["blocks.0", "blocks[1].mlp", "blocks/1/attention", "blocks.0.ln2", "blocks"]
)
def test_a_block_alone_computes_what_it_does_in_the_model(tiny: Model, path: str) -> None:
    part = cut_block(tiny.graph, path)
    assert not verify(part, tiny.library)
    found = compile_model(observed_model(tiny, _seen(part)), seed=1)(token_ids=np.arange(16).reshape(2, 8))
    values = observed_values(found)
    inputs = {item.name: values[item.name] for item in members(part.inputs)}
    alone = compile_model(tiny[path])(**inputs)
    assert alone
    for name, array in alone.items():
        np.testing.assert_array_equal(array, values[name], err_msg=name)


def _seen(part: Graph) -> list[Tensor]:
    return [item for item in members((*part.inputs, *part.outputs)) if isinstance(item, Tensor)]


def test_every_path_is_a_block(tiny: Model) -> None:
    paths = block_paths(tiny.graph)
    assert {"blocks", "blocks.0", "blocks.1.mlp"} <= paths
    for path in paths:
        assert not verify(cut_block(tiny.graph, path), tiny.library)


def test_one_that_is_not_there_gets_the_nearest(tiny: Model) -> None:
    with pytest.raises(LamellaError, match=r"(?s)no block 'blocs\.0'.*did you mean 'blocks\.0'"):
        tiny["blocs.0"]
