"""Targets that do not count: windows, parts of batches and evaluations in which nothing is learnt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lamella.base.dtype import I64
from lamella.base.errors import InputError
from lamella.graph.nodes import Tensor
from lamella.train import StepSettings, Trainer
from lamella.train.data.batches import IGNORED, Batches
from lamella.train.data.examples import make_examples
from lamella.train.data.windows import TokenStream, TokenWindows, learnt_windows
from lamella.train.loop import LoopSettings, TrainingLoop
from lamella.train.schedules import Schedule

LENGTH = 4


def batch_of(targets: np.ndarray) -> dict[str, np.ndarray]:
    rows = np.arange(targets.size).reshape(targets.shape)
    return {"token_ids": rows, "targets": targets}


@pytest.fixture(scope="module")
def trainer(llama: Path) -> Trainer:
    return Trainer(llama, StepSettings("sgd", accumulation=2), "reference")


def test_windows_without_anything_to_learn_are_left_out() -> None:
    learnt = np.random.default_rng(0).random(200) < 0.2
    stream = TokenStream(np.arange(200), learnt)
    data = TokenWindows(stream, LENGTH, "x", kept=learnt_windows(stream, LENGTH))
    found = data.take(np.arange(data.size))["targets"]
    assert 0 < data.size < 199 // LENGTH
    assert (found != IGNORED).any(axis=1).all()
    np.testing.assert_array_equal(found[found != IGNORED], np.flatnonzero(learnt[1:197]) + 1)


def test_a_part_in_which_nothing_counts_adds_nothing(trainer: Trainer) -> None:
    """Its mean loss is 0 / 0, which must not reach the sum, wherever the part lies."""
    start = dict(trainer.state)
    targets = np.arange(2 * LENGTH).reshape(2, LENGTH)
    targets[0] = IGNORED
    batch = batch_of(targets)
    wanted = trainer.evaluate({name: rows[1:] for name, rows in batch.items()})
    for step in (1, -1):
        trainer.load_state(start)
        assert trainer.step({name: rows[::step] for name, rows in batch.items()}, 0.1).loss == wanted
        assert all(np.isfinite(item).all() for item in trainer.parameters.values())


def test_an_evaluation_is_the_mean_of_all_targets(trainer: Trainer) -> None:
    targets = np.arange(4 * LENGTH).reshape(4, LENGTH)
    targets[2:, 1:] = IGNORED
    port = Tensor("token_ids", I64, (4, LENGTH))
    data = make_examples(batch_of(targets), [port], "it", 260)
    loop = TrainingLoop(
        trainer, Batches(data, 2), LoopSettings(1, Schedule("constant", 0.1, 1)), Batches(data, 2)
    )
    wanted = trainer.evaluate(data.take(np.arange(4)))
    assert loop.evaluate() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("value", "message"), [(260, "is 260"), (-1, "is -1"), (IGNORED, "counts")])
def test_targets_without_a_loss_are_said(value: int, message: str) -> None:
    port = Tensor("token_ids", I64, (4, LENGTH))
    data = make_examples(batch_of(np.full((2, LENGTH), value)), [port], "it", 260)
    with pytest.raises(InputError, match=message):
        data.take(np.arange(2))
