"""Memory policy of a training: what is computed again, that no bit changes by it, and how far memory falls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lamella.backend.executor.segments import Segment
from lamella.graph.nodes import Operation
from lamella.graph.passes.recompute import AFTER
from lamella.graph.rewrite import results_of
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer
from lamella.train.sources import trainable

BLOCK = """
block Layer(d: int, f: int):
  {whole}
  params:
    up: [f, d]
    down: [d, f]
  forward:
    in: x: [B, T, d]
    out: y: [B, T, d]
    graph:
      (x, up) -> matmul(transpose=NT) -> h {h}
      h -> gelu() -> a
      (a, down) -> matmul(transpose=NT) -> b
      (x, b) -> add() -> y
"""
MODEL = """
model Stack(n: int = {layers}, d: int = 16, f: int = 64, v: int = 11):
  params:
    table: [v, d]
    layers: [n] x Layer(d, f) {place}
    head: [v, d]
  forward:
    in: ids: [B, T, int64]
    out: logits: [B, T, v]
    graph:
      (ids, table) -> embedding() -> x0
      x0 -> StackedBlocks(layers, n) -> xn {statement}
      (xn, head) -> matmul(transpose=NT) -> logits
"""


def write(folder: Path, layers: int = 3, **marks: str) -> Path:
    """The model with annotations in some places."""
    block = BLOCK.format(whole=marks.get("whole", ""), h=marks.get("h", ""))
    model = MODEL.format(layers=layers, place=marks.get("place", ""), statement=marks.get("statement", ""))
    path = folder / f"{len(list(folder.iterdir()))}.module"
    path.write_text(block + model)
    return path


def losses(trainer: Trainer, shape: tuple[int, int] = (2, 9)) -> list[float]:
    tokens = np.random.default_rng(0).integers(0, 11, (3, *shape))
    return [trainer.step({"ids": item[:, :-1], "targets": item[:, 1:]}, 1e-2).loss for item in tokens]


def recomputed(trainer: Trainer) -> set[str]:
    """The operations that are there twice, by the tensors that they made the first time."""
    made = [item.name for node in trainer.graphs[0].model.graph.nodes for item in results_of(node)]
    return {name.removesuffix("_again") for name in made if name.endswith("_again")}


WHOLE = {f"layers.{number}.{name}" for number in range(3) for name in ("h", "a")}
PLACES = {
    "declared": ({"whole": "@checkpoint(full)"}, WHOLE),
    "where it is made": ({"place": "@checkpoint"}, WHOLE),
    "statement": ({"statement": "@checkpoint"}, {*WHOLE, "layers.0.y", "layers.1.y"}),
    "none": ({"place": "@checkpoint(granularity=none)", "whole": "@checkpoint"}, set[str]()),
    "preserved": ({"whole": "@checkpoint(preserve=[h])"}, {f"layers.{number}.a" for number in range(3)}),
    "selective": ({"whole": "@checkpoint(granularity=selective)"}, set[str]()),
    "one tensor": ({"h": "@memory(recompute)"}, {f"layers.{number}.h" for number in range(3)}),
    "stronger than the region": (
        {"h": "@memory(save)", "whole": "@checkpoint"},
        {f"layers.{number}.a" for number in range(3)},
    ),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return losses(Trainer(write(tmp_path_factory.mktemp("plain")), backend="reference"))


@pytest.mark.parametrize("place", PLACES)
def test_regions(place: str, plain: list[float], tmp_path: Path) -> None:
    marks, expected = PLACES[place]
    trainer = Trainer(write(tmp_path, **marks), backend="reference")
    again = recomputed(trainer)
    assert (
        expected <= again if place == "statement" else {item for item in again if item in WHOLE} == expected
    )
    assert losses(trainer) == plain


def test_frontier(tmp_path: Path) -> None:
    """What flows into a region is kept; copies read it behind a gradient, never the original."""
    trainer = Trainer(write(tmp_path, whole="@checkpoint"), backend="reference")
    nodes = trainer.graphs[0].model.graph.nodes
    waits = {node.inputs[0].name for node in nodes if isinstance(node, Operation) and node.operator == AFTER}  # type: ignore[union-attr]
    assert {"x0", "layers.0.y", "layers.1.y"} <= waits
    source = trainable(write(tmp_path, whole="@checkpoint"), Options())
    assert source.kept is not None
    assert not source.kept & WHOLE


def test_memory_falls(tmp_path: Path) -> None:
    """Twelve layers, in machine code: the arena is 60 % smaller, and the losses have the same bits."""
    arenas, curves = [], []
    for marks in ({}, {"whole": "@checkpoint(full)"}):
        trainer = Trainer(write(tmp_path, 12, **marks), StepSettings(), "cpu")
        curves.append(losses(trainer, (4, 65)))
        arenas.append(arena_bytes(trainer))
    assert curves[0] == curves[1]
    assert arenas[1] < 0.4 * arenas[0]


def arena_bytes(trainer: Trainer) -> int:
    run = trainer._parts[0]
    steps = run._context.runner.cut(run.model.graph.nodes, run._needed)  # type: ignore[attr-defined]
    return sum(item.each.arena_bytes for item in steps if isinstance(item, Segment))
