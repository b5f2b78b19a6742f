"""Random-weight models of `transformers` compared with PyTorch, at the exported size and at another one."""

from __future__ import annotations

import pytest

import lamella
from tests.support.bridge.torch_models.judge import largest_error, stretched
from tests.support.bridge.torch_models.transformer_models import MODELS

CLOSE = 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_torch_computes(name: str) -> None:
    sample = MODELS[name]()
    model = lamella.from_torch(sample.module, (), sample.inputs, dynamic=sample.dynamic)
    assert largest_error(model, sample, sample.inputs) < CLOSE
    assert largest_error(model, sample, stretched(sample)) < CLOSE
