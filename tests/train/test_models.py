"""Models of the library trained on text, step for step beside those of transformers with torch's AdamW."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lamella.base.arrays import Array
from lamella.train import StepSettings, Trainer
from tests.support.models.checkpoints import VOCABULARY, build

NAMES = ("llama", "mixtral", "mamba")
RATE, STEPS = 1e-3, 100
TEXT = np.frombuffer((Path(__file__).read_bytes() * 2)[: STEPS * 4 * 9], np.uint8).astype(np.int64)
BATCHES = TEXT.reshape(STEPS, 4, 9) % VOCABULARY


@contextmanager
def in_64_bits() -> Iterator[None]:
    """Let transformers compute norms and angles in 64 bits too, which it does in 32 whatever a model is in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            patch.undo()
            torch.set_default_dtype(torch.float32)


def expected(model: Any) -> list[float]:
    """The losses of a model of transformers."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    losses = []
    for batch in torch.tensor(BATCHES):
        scores = model(batch[:, :-1]).logits.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(scores, batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def judge(name: str, folder: Path, dtype: str) -> tuple[Array, Array]:
    """The losses of a hundred steps: ours, and those of transformers."""
    model: Any = build(name)
    if name == "mixtral":
        model.set_experts_implementation("eager")
    model.save_pretrained(folder)
    trainer = Trainer(folder, StepSettings(dtype=dtype))
    found = []
    for batch in BATCHES:
        given = {"token_ids": batch[:, :-1], "targets": np.ascontiguousarray(batch[:, 1:])}
        found.append(trainer.step(given, RATE).loss)
    return np.array(found), np.array(expected(model))


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    found, wanted = judge(name, tmp_path, "f32")
    np.testing.assert_allclose(found[:10], wanted[:10], rtol=1e-5)
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
    assert found[-10:].mean() < 0.9 * found[:10].mean(), "it learns"


@pytest.mark.parametrize("name", NAMES)
def test_losses_in_64_bits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    with in_64_bits():
        found, wanted = judge(name, tmp_path, "f64")
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
