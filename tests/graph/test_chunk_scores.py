"""Losses in chunks of scores: torch judges numbers, and the arena tells that scores of all rows are never there."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import lamella
from lamella.base.arrays import Array
from lamella.graph.model import Model
from lamella.graph.nodes import Operation
from lamella.graph.passes.chunk_scores import chunk_scores
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer
from lamella.train.gradients import trainable
from lamella.train.memory import keep_all, plan_memory

WORDS, WIDTH = 96, 16
NET = f"""
model Net(words: int = {WORDS}, width: int = {WIDTH}):
  params:
    table: [words, width]
    head: [words, width]

  forward:
    in: token_ids: [B, T, int64]
    out: logits: [B, T, words]
    graph:
      (token_ids, table) -> embedding() -> x
      (x, head) -> matmul(transpose=NT) -> logits
"""


def load(folder: Path, lines: str, more: str = "") -> Model:
    """A graph of scores with a loss."""
    path = folder / "loss.sknd"
    path.write_text(
        "import llm, layout, math;\ngraph Loss { @input { x: real[2,11,8]; w: real[13,8]; t: int[2,11]; g: real[]; }"
        f' @output {{ loss: real[]; {more} }} @compose {{ s = llm.matmul{{transpose="NT"}}(x, w); {lines} }} }}\n'
    )
    return cast(Model, lamella.load(path))


def operators(model: Model) -> list[str]:
    """The operators of a graph."""
    return [node.operator for node in model.graph.nodes if isinstance(node, Operation)]


BOTH = (
    "loss = llm.cross_entropy(s, t); d = llm.cross_entropy_backward(g, s, t);"
    ' dx, dw = llm.matmul_backward{transpose="NT"}(d, x, w);'
)
GRADIENTS = "dx: real[2,11,8]; dw: real[13,8];"


def draw() -> dict[str, Array]:
    """Rows, a weight, labels of which one is left out, and what comes back to the loss."""
    random = np.random.default_rng(3)
    labels = random.integers(0, 13, (2, 11))
    labels[1, 4] = -100
    return {
        "x": random.standard_normal((2, 11, 8)).astype(np.float32),
        "w": random.standard_normal((13, 8)).astype(np.float32),
        "t": labels,
        "g": np.asarray(1.5, np.float32),
    }


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("rows", [4, 11, 21])
def test_a_loss_in_chunks_is_that_of_torch(backend: Any, rows: int, tmp_path: Path) -> None:
    made = chunk_scores(load(tmp_path, BOTH, GRADIENTS), rows, 0)
    assert operators(made) == ["llm.linear_cross_entropy_gradients"]
    given = draw()
    found = lamella.compile(made, backend=backend)(**given)
    x, w = (torch.tensor(given[name], requires_grad=True) for name in "xw")
    loss = torch.nn.functional.cross_entropy((x @ w.T).flatten(0, 1), torch.tensor(given["t"]).flatten())
    (loss * 1.5).backward()
    want = {"loss": loss.detach(), "dx": x.grad, "dw": w.grad}
    for name, value in want.items():
        assert value is not None
        np.testing.assert_allclose(found[name], value.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_loss_without_a_way_back_is_in_chunks_too(backend: Any, tmp_path: Path) -> None:
    model = load(tmp_path, "loss = llm.cross_entropy(s, t);")
    made = chunk_scores(model, 4, 0)
    assert operators(made) == ["llm.linear_cross_entropy"]
    given = draw()
    found, want = (lamella.compile(item, backend=backend)(**given)["loss"] for item in (made, model))
    np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        ("loss = llm.cross_entropy(s, t); y = math.neg(s);", "y: real[2,11,13];"),
        ("loss = llm.cross_entropy(s, t); d = llm.cross_entropy_backward(g, s, t);", "d: real[2,11,13];"),
        ("loss = llm.cross_entropy(s, t);", "s: real[2,11,13];"),
        ("a = layout.cast<f16>(s); b = layout.cast<bf16>(s); c = layout.cast<real>(a);"
         " loss = llm.cross_entropy(c, t); y = math.neg(b);", "y: bf16[2,11,13];"),
    ],
)  # fmt: skip
def test_scores_that_somebody_wants_stay(lines: str, more: str, tmp_path: Path) -> None:
    model = load(tmp_path, lines, more)
    assert chunk_scores(model, 4, 0) is model


def test_few_scores_stay(tmp_path: Path) -> None:
    model = load(tmp_path, BOTH, GRADIENTS)
    assert chunk_scores(model) is model
    assert chunk_scores(model, 22, 0) is model


def set_sizes(monkeypatch: pytest.MonkeyPatch, rows: int, least: int) -> None:
    """Let scores be in chunks of so many rows where they have so many bytes."""
    module = import_module("lamella.graph.passes.chunk_scores")
    monkeypatch.setattr(module, "CHUNK", rows)
    monkeypatch.setattr(module, "LEAST_BYTES", least)


def step_of(folder: Path, recipe: str | None) -> tuple[Trainer, dict[str, Array]]:
    """A step of a small model, and a batch."""
    (folder / "net.module").write_text(NET)
    options = Options(seed=0, recipe=recipe)
    made = Trainer(keep_all(trainable(folder / "net.module", options)), StepSettings(), "cpu", options)
    tokens = np.random.default_rng(1).integers(0, WORDS, (4, 33))
    return made, {"token_ids": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}


@pytest.mark.parametrize("recipe", [None, "bf16"])
def test_steps_in_chunks_train_as_whole_ones(
    recipe: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = []
    for least in (1 << 40, 0):
        set_sizes(monkeypatch, 32, least)
        made, batch = step_of(tmp_path, recipe)
        losses.append([made.step(batch, 0.01).loss for _ in range(6)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6 if recipe is None else 2e-4)
    assert losses[0][-1] < losses[0][0]


def test_the_memory_of_a_step_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.module").write_text(NET)
    options = Options(seed=0, shape={"B": 8, "T": 64})
    scores = 4 * 8 * 64 * WORDS
    arenas = []
    for least in (1 << 40, 0):
        set_sizes(monkeypatch, 64, least)
        source = keep_all(trainable(tmp_path / "net.module", options))
        arenas.append(plan_memory(source, StepSettings(), options).arena)
    assert arenas[0] >= 2 * scores
    assert arenas[1] < scores
