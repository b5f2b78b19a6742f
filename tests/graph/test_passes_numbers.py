"""Passes keep the numbers: random graphs before and after, run by the reference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.graph.model import Model
from lamella.graph.passes import INEXACT, PASSES
from lamella.graph.passes.fold_constants import fold_constants
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.graph.rewrite import members
from lamella.graph.verify import verify
from tests.support.graph.running import evaluate, run, same
from tests.support.strategies.graph import models

LAYOUT = ("transpose", "unary", "binary", "conv", "pool_window", "reduce_axes", "concat")
EXACT = tuple(name for name in PASSES if name not in INEXACT)
EXTENTS = st.integers(1, 4).map(lambda size: {"n": size})


def keeps_numbers(before: Model, after: Model, extents: dict[str, int], exact: bool = True) -> None:
    """A pass leaves a whole graph with the same outputs that computes the same."""
    assert not verify(after.graph, after.library)
    names = [item.name for item in members(before.graph.outputs)]
    assert names == [item.name for item in members(after.graph.outputs)]
    same(run(before, extents), run(after, extents), exact)


@pytest.mark.parametrize("name", EXACT)
@given(model=models(), extents=EXTENTS)
def test_passes_keep_every_bit(name: str, model: Model, extents: dict[str, int]) -> None:
    keeps_numbers(model, PASSES[name](model), extents)


@given(model=models(only=LAYOUT), extents=EXTENTS)
def test_layout_keeps_the_numbers(model: Model, extents: dict[str, int]) -> None:
    """Sums may be added up in another order."""
    moved = PASSES["propagate_layout"](model)
    keeps_numbers(model, moved, extents, exact=False)
    keeps_numbers(model, PASSES["cancel_transposes"](moved), extents, exact=False)


@given(model=models(), extents=EXTENTS)
def test_all_passes_together(model: Model, extents: dict[str, int]) -> None:
    """All that keep numbers and variables."""
    found = model
    for name in (*EXACT, "propagate_layout", *EXACT):
        found = PASSES[name](found)
    keeps_numbers(model, found, extents, exact=False)
    assert sum(1 for _ in found.graph.operations()) <= sum(1 for _ in model.graph.operations())


@given(model=models(), extents=EXTENTS)
def test_constants_are_folded_to_the_same_bits(model: Model, extents: dict[str, int]) -> None:
    found = fold_constants(model, lambda operation, arrays: evaluate(model, operation, arrays))
    keeps_numbers(model, found, extents)


@given(model=models(), extents=EXTENTS)
def test_models_for_one_size_compute_the_same(model: Model, extents: dict[str, int]) -> None:
    open_extents = {str(extent) for item in members(model.graph.inputs) for extent in item.shape}
    found = specialise_shapes(model, extents if "n" in open_extents else {})
    assert all(isinstance(extent, int) for item in members(found.graph.inputs) for extent in item.shape)
    keeps_numbers(model, found, extents)
