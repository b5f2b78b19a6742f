"""Small models for ranks, steps of them, and two processes that take those; `python -m` of it is the first of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from lamella.graph.data import write_safetensors
from lamella.graph.rewrite import members
from lamella.pipeline.options import Options
from lamella.train import StepSettings, TrainableGraph, Trainer, trainable
from lamella.train.initial import with_initial
from lamella.train.ranks.launch import joined
from lamella.train.ranks.mesh import Mesh
from lamella.train.ranks.pipeline import StageTrainer
from lamella.train.ranks.trainer import RankTrainer, World
from tests.support.train import ranks

SETTINGS = StepSettings("adamw", clip=1.0, dtype="f64")
OPTIONS = Options(dtype="f64")
TEXT = """\
model Net(d: int = 8, hidden: int = 12, classes: int = 6):
  params:
    up: [hidden, d]
    bias: [hidden]
    down: [d, hidden]
    head: [classes, d]
  forward:
    in: x: [B, d]
    out: logits: [B, classes]
    graph:
      (x, up) -> matmul(transpose=NT) -> flat
      (flat, bias) -> bias_add() -> wide
      wide -> gelu() -> bent
      (bent, down) -> matmul(transpose=NT) -> narrow
      (x, narrow) -> add() -> sum
      (sum, head) -> matmul(transpose=NT) -> logits
"""


def source(folder: Path, text: str = TEXT) -> TrainableGraph:
    """A model with weights that are drawn."""
    path = folder / "net.module"
    path.write_text(text, encoding="utf-8")
    found = trainable(path, OPTIONS)
    return replace(found, model=with_initial(found.model, OPTIONS)[0])


def batch(number: int, *inner: int) -> dict[str, np.ndarray]:
    """Some rows, of whose targets the last ones do not count."""
    draw = np.random.default_rng(number)
    targets = draw.integers(0, 6, (8, *inner))
    targets[-3:] = -100
    return {"x": draw.standard_normal((8, *inner, 8)), "targets": targets}


def take(trainer: Trainer, steps: int = 3) -> tuple[list[float], dict[str, np.ndarray]]:
    """The losses and norms of some steps, and the parameters behind them."""
    (port,) = (item for item in members(trainer.source.model.graph.inputs) if item.name == "x")
    inner = [extent if isinstance(extent, int) else 2 for extent in port.shape[1:-1]]
    found = [trainer.step(batch(number, *inner), 0.01) for number in range(steps)]
    numbers = [number for item in found for number in (item.loss, item.gradient_norm or 0.0)]
    return numbers, {name: np.array(item) for name, item in trainer.parameters.items()}


MUCH = 1 << 22
"""More numbers than lie between two processes at once."""


def send_much(world: World) -> None:
    """The work of a rank that ends as soon as it has sent something."""
    world.transport.send(np.ones(MUCH), 0)


SHARDED = (
    TEXT.replace("up: [hidden, d]", "up: [hidden, d] @shard(column)")
    .replace("bias: [hidden]", "bias: [hidden] @shard(column)")
    .replace("down: [d, hidden]", "down: [d, hidden] @shard(row)")
    .replace("head: [classes, d]", "head: [classes, d] @shard(column)")
)


def marked(**marks: str) -> str:
    """The model whose tensors have annotations."""
    text = SHARDED.replace("[B, d]", "[B, 4, d]").replace("[B, classes]", "[B, 4, classes]")
    for name, mark in marks.items():
        text = text.replace(f"-> {name}\n", f"-> {name} {mark}\n")
    return text


STAGED = """\
model Net(d: int = 8, hidden: int = 12, classes: int = 6):
  params:
    up: [hidden, d] @shard(column)
    bias: [hidden] @shard(column)
    down: [d, hidden] @shard(row)
    gate: [d, d]
    head: [classes, d]
  forward:
    in: x: [B, d]
    out: logits: [B, classes]
    graph:
      (x, gate) -> matmul(transpose=NT) -> first @partition(0)
      first -> gelu() -> given @partition(0)
      (given, up) -> matmul(transpose=NT) -> flat @partition(1)
      (flat, bias) -> bias_add() -> wide @partition(1)
      wide -> gelu() -> bent @partition(1)
      (bent, down) -> matmul(transpose=NT) -> narrow @partition(1)
      (given, narrow) -> add() -> sum @partition(1)
      (sum, gate) -> matmul(transpose=NT) -> tied @partition(2)
      (tied, head) -> matmul(transpose=NT) -> logits @partition(3)
"""


STREAMED = TEXT.replace("[hidden, d]", "[hidden, d] @memory(stream)").replace(
    "[d, hidden]", "[d, hidden] @memory(stream)"
)
MIXED = """\
from std.modules import MoE

model Net(d: int = 8, classes: int = 6):
  params:
    experts: MoE(d, 8, 4, 2)
    head: [classes, d]
  forward:
    in: x: [B, T, d]
    out: logits: [B, T, classes]
    graph:
      x -> experts() -> mixed
      (mixed, head) -> matmul(transpose=NT) -> logits
"""
SHARDED_EXPERTS = """\
model Net(d: int = 8, hidden: int = 12, classes: int = 6, count: int = 4):
  params:
    router: [count, d]
    up: [count, hidden, d] @shard(expert)
    down: [count, d, hidden] @shard(expert)
    table: [d, d] @shard(expert)
    head: [classes, d]
  forward:
    in: x: [B, T, d]
    out: logits: [B, T, classes]
    graph:
      (x, table) -> matmul(transpose=NT) -> turned
      turned -> view([B * T, d]) -> flat
      (flat, router) -> moe_router(2) -> (weights, indices, _)
      indices -> moe_compute_offsets(count) -> offsets
      (flat, indices, offsets) -> moe_permute() -> (permuted, places)
      (permuted, up, offsets) -> grouped_gemm(transpose=NT) -> wide
      wide -> relu2() -> bent
      (bent, down, offsets) -> grouped_gemm(transpose=NT) -> given
      (given, weights, places) -> moe_unpermute() -> combined
      combined -> view([B, T, d]) -> mixed
      (mixed, head) -> matmul(transpose=NT) -> logits
"""


MESHES: dict[str, tuple[str, Mesh]] = {
    "dp": (TEXT, Mesh(dp=2)),
    "tp": (SHARDED, Mesh(tp=2)),
    "sequence": (marked(narrow="@shard(sequence)", bent="@comm(all_to_all)"), Mesh(tp=2)),
    "pp": (STAGED, Mesh(pp=2)),
    "ep": (MIXED, Mesh(ep=2)),
    "ZeRO-3": (STREAMED, Mesh(dp=2)),
}


def play(folder: Path, world: World) -> dict[str, tuple[list[float], dict[str, np.ndarray]]]:
    """Take steps of all models as one of two processes."""
    found = {}
    for name, (text, mesh) in MESHES.items():
        own = folder / f"{name}-{world.transport.rank}"
        own.mkdir()
        kind = StageTrainer if mesh.pp > 1 else RankTrainer
        made = source(own, text)
        found[name] = take(kind(made, SETTINGS, "reference", OPTIONS, World(mesh, world.transport)))
    return found


def main(folder: Path) -> None:
    """Take the steps in two processes, and write what the first has then."""
    with joined(Mesh(dp=2), partial(ranks.play, folder)) as world:
        found = play(folder, world)
    arrays = {name: np.array(numbers) for name, (numbers, _) in found.items()}
    arrays |= {f"{name} {path}": item for name, (_, kept) in found.items() for path, item in kept.items()}
    write_safetensors(folder / "found.safetensors", arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
