"""The groups of models: what torch exports, and the shipped architectures."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

import lamella
from lamella.backend.reference import compile_model
from lamella.base.paths import shipped
from lamella.graph.model import Model
from lamella.graph.passes.fuse import Fusion, GroupKind, fuse_model
from lamella.pipeline.skriptnd.run_passes import FUSE, apply_pass, passes_until
from tests.support.bridge.torch_models.judge import largest_error, stretched
from tests.support.bridge.torch_models.small_models import NETWORKS
from tests.support.bridge.torch_models.transformer_models import MODELS, Sample
from tests.support.graph.running import same

CLOSE = 1e-4
SAMPLES = {**NETWORKS, **MODELS}
NORM = "sum_reduce div sub sqr sum_reduce div add rsqrt mul mul add"
RMS = "pow sum_reduce div add rsqrt mul mul"
SOFTMAX = "max_reduce _finite sub exp sum_reduce eq select div"


def fused(model: Model) -> Fusion:
    """A model after all passes on the way to kernels."""
    for name in passes_until(FUSE)[:-1]:
        model = apply_pass(model, name)
    return fuse_model(model)


@cache
def sample(name: str) -> tuple[Sample, Fusion]:
    """A model of torch for open extents, fused."""
    found = SAMPLES[name]()
    return found, fused(lamella.from_torch(found.module, (), found.inputs, dynamic=found.dynamic))


def groups(fusion: Fusion) -> list[str]:
    """The groups that a run computes, without those of masks, positions and weights."""
    kinds = (GroupKind.ROW, GroupKind.CONTRACT, GroupKind.ATTENTION)
    return [
        f"{item.kind.value}: {' '.join(name.rpartition('.')[2] for name in item.operators)}"
        for item in fusion.groups
        if item.kind in kinds
    ]


@pytest.mark.parametrize("name", ["residual", "convolutions", "GPT-2", "Llama"])
def test_fused_models_compute_what_torch_computes(name: str) -> None:
    """At the exported size and at another one."""
    given, fusion = sample(name)
    assert largest_error(fusion.model, given, given.inputs) < CLOSE
    assert largest_error(fusion.model, given, stretched(given)) < CLOSE


EXPECTED = {
    "residual": [
        "contract: conv relu",
        "contract: conv relu add",
        "row: sum_pool div",
    ],
    "GPT-2": [
        f"row: add {NORM}",
        "contract: matmul add",
        f"attention: matmul mul select {SOFTMAX} matmul",
        "contract: matmul add unflatten add",
        f"row: {NORM}",
        "contract: matmul add unflatten mul pow mul add mul tanh add mul",
        "contract: matmul add unflatten add",
        f"row: {NORM}",
    ],
    "Llama": [
        f"row: {RMS}",
        f"attention: expand flatten expand flatten matmul mul select {SOFTMAX} matmul",
        "contract: linear unflatten add",
        f"row: {RMS}",
        "contract: linear unflatten add",
        f"row: {RMS}",
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_groups_of_exported_models(name: str) -> None:
    _, fusion = sample(name)
    assert groups(fusion) == EXPECTED[name]


def test_groups_of_the_shipped_llama() -> None:
    config = {
        "vocab_size": 64,
        "d_model": 32,
        "n_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "d_ff": 64,
        "max_seq": 32,
    }
    path = shipped("models") / "models" / "llama.module"
    model = lamella.load(path, config=config, shape={"B": 1, "T": 8})
    assert isinstance(model, Model)
    fusion = fused(model)
    norm = "_mean_square _inverse_root _scale_both"
    block = [
        "attention: _scores _see max_reduce _exp_rows sum_reduce _mix flatten _divide_rows",
        "contract: matmul add",
        f"row: {norm}",
        "contract: matmul add",
        f"row: {norm}",
    ]
    assert groups(fusion) == [f"row: add {norm}", *block, *block]
    # Equal groups call one operator.
    assert set(Counter(item.operator for item in fusion.groups[1:]).values()) == {2, 4}
    tokens = np.arange(8)[None]
    first, second = (compile_model(item, seed=0)(token_ids=tokens) for item in (model, fusion.model))
    same(first, second, exact=False)
