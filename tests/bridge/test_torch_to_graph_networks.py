"""Small networks compared with PyTorch: as exported, with open extents at another size, and decomposed before."""

from __future__ import annotations

import pytest
import torch

import lamella
from lamella.bridge.torch_to_graph import torch_to_graph
from lamella.graph.verify import verify
from tests.support.bridge.torch_models.judge import largest_error, stretched
from tests.support.bridge.torch_models.small_models import NETWORKS

CLOSE = 1e-5
EACH = pytest.mark.parametrize("name", NETWORKS)


@EACH
def test_a_network_computes_what_torch_computes(name: str) -> None:
    sample = NETWORKS[name]()
    model = lamella.from_torch(sample.module, (), sample.inputs)
    assert not verify(model.graph, model.library)
    assert largest_error(model, sample, sample.inputs) < CLOSE


@EACH
def test_open_extents_take_other_sizes(name: str) -> None:
    sample = NETWORKS[name]()
    model = lamella.from_torch(sample.module, (), sample.inputs, dynamic=sample.dynamic)
    assert not verify(model.graph, model.library)
    assert largest_error(model, sample, stretched(sample)) < CLOSE


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@EACH
def test_a_program_that_is_decomposed_already_is_taken_too(name: str) -> None:
    sample = NETWORKS[name]()
    program = torch.export.export(sample.module, (), dict(sample.inputs))
    model = torch_to_graph(program.run_decompositions(torch.export.default_decompositions()))
    assert largest_error(model, sample, sample.inputs) < CLOSE
