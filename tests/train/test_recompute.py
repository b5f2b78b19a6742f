"""Memory policy of a training: what is computed again, that no bit changes by it, and how far memory falls."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from lamella.backend.executor.kernels import KernelExecutable
from lamella.base.errors import InputError
from lamella.cli import lamella as command
from lamella.graph.nodes import Operation
from lamella.graph.passes.recompute import AFTER
from lamella.graph.rewrite import results_of
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer
from lamella.train.adapters.model import find_adapters
from lamella.train.gradients import trainable
from lamella.train.memory import MemoryPlan, plan_memory, within_budget
from lamella.train.ranks.mesh import Mesh
from lamella.train.ranks.pipeline import StageTrainer
from lamella.train.ranks.trainer import RankTrainer, World
from lamella.train.ranks.transport import Threads, run_threads
from lamella.train.sources import TrainableGraph

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
      h -> gelu() -> a {a}
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


def write(folder: Path, layers: int = 3, /, **marks: str) -> Path:
    """The model with annotations in some places."""
    block = BLOCK.format(whole=marks.get("whole", ""), h=marks.get("h", ""), a=marks.get("a", ""))
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
    "none for one statement": (
        {"h": "@checkpoint(none)", "whole": "@checkpoint"},
        {f"layers.{number}.a" for number in range(3)},
    ),
    "preserved": ({"whole": "@checkpoint(preserve=[h])"}, {f"layers.{number}.a" for number in range(3)}),
    "selective": ({"whole": "@checkpoint(granularity=selective)"}, set[str]()),
    "selective with a list": (
        {"whole": "@checkpoint(granularity=selective, preserve=[h])"},
        {f"layers.{number}.a" for number in range(3)},
    ),
    "one tensor": ({"h": "@memory(recompute)"}, {f"layers.{number}.h" for number in range(3)}),
    "one gradient": ({"h": "@gradient(checkpoint)"}, {f"layers.{number}.h" for number in range(3)}),
    "a life on the way forward": (
        {"h": "@lifetime(sublayer)"},
        {f"layers.{number}.h" for number in range(3)},
    ),
    "a life to the end": ({"h": "@lifetime(global)"}, set[str]()),
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
    trainer = Trainer(write(tmp_path, 3, **marks), backend="reference")
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


DERIVED = {
    "lora": Options(adapters=("lora:rank=2,targets=*",)),
    "a primitive without backward": None,
}


@pytest.mark.parametrize("kind", DERIVED)
def test_derived_gradients_obey_the_policy(kind: str, tmp_path: Path) -> None:
    """What operations are decomposed into, and what adapters add, is computed again with them, in machine code too."""
    plans, curves = [], []
    for marks in ({}, {"whole": "@checkpoint(full)"}, {"h": "@memory(offload)", "a": "@memory(recompute)"}):
        source = derived(write(tmp_path, 3, **marks), DERIVED[kind])
        trainer = Trainer(source, backend="cpu")
        curves.append(losses(trainer, BATCH))
        plans.append(plan_memory(source, StepSettings(), Options(shape={"B": BATCH[0], "T": BATCH[1] - 1})))
        assert arena_bytes(trainer) == plans[-1].arena
        again = recomputed(trainer)
        if "whole" in marks:
            inner = {"layers.0.h", "layers.0.a"}
            assert inner <= again
            assert "layers.0.y" not in again
            assert any(name.startswith("layers.0.h.") for name in again) == (kind == "lora")
    assert curves[0] == curves[1] == curves[2]
    assert plans[1].arena < 0.8 * plans[0].arena
    assert plans[1].peak("activations") < 0.75 * plans[0].peak("activations")
    assert len(plans[2].moved) == 3


def derived(path: Path, options: Options | None) -> TrainableGraph:
    """The model with adapters, or with an operation whose gradient only its formula tells."""
    if options is None:
        text = path.read_text(encoding="utf-8").replace("gelu()", "exp()")
        path.write_text(
            text.replace("-> b\n", "-> c\n      c -> scale(factor=0.01) -> b\n"), encoding="utf-8"
        )
        return trainable(path, Options())
    model = find_adapters(path, options)
    assert model is not None
    return model.trainable


POLICIES = {"plain": {}, "checkpoint": {"whole": "@checkpoint(full)"}, "offload": {"h": "@memory(offload)"}}
BATCH = (4, 65)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[float], Trainer, Path]]:
    """Twelve layers in machine code, by each policy."""
    folder, found = tmp_path_factory.mktemp("policies"), {}
    for name, marks in POLICIES.items():
        path = write(folder, 12, **marks)
        trainer = Trainer(path, StepSettings(), "cpu")
        found[name] = losses(trainer, BATCH), trainer, path
    return found


def test_policies_change_no_bit(trained: dict[str, tuple[list[float], Trainer, Path]]) -> None:
    curves = [curve for curve, _, _ in trained.values()]
    assert curves[1:] == curves[:-1]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_plan_is_what_runs(policy: str, trained: dict[str, tuple[list[float], Trainer, Path]]) -> None:
    """The arena that a run worked in has the bytes that were planned before it."""
    _, trainer, path = trained[policy]
    plan = plan_of(path)
    assert arena_bytes(trainer) == plan.arena
    assert plan.least <= plan.arena
    assert plan.parameters == sum(item.nbytes for item in trainer.parameters.values())


def test_memory_falls(trained: dict[str, tuple[list[float], Trainer, Path]]) -> None:
    plain, checkpoint, offload = (plan_of(path) for _, _, path in trained.values())
    assert checkpoint.arena < 0.4 * plain.arena
    assert checkpoint.peak("activations") < 0.4 * plain.peak("activations")
    moved = 12 * 4 * 64 * 64 * 4
    assert offload.outside == moved
    assert offload.arena <= plain.arena - 0.9 * moved
    assert len(offload.moved) == 12


def plan_of(path: Path) -> MemoryPlan:
    options = Options(shape={"B": BATCH[0], "T": BATCH[1] - 1})
    return plan_memory(trainable(path, options), StepSettings(), options)


def arena_bytes(trainer: Trainer) -> int:
    """What the last run worked in."""
    (run,) = trainer._parts
    assert isinstance(run, KernelExecutable)
    return sum(item.each.arena_bytes for item in run.segments({"B": BATCH[0], "T": BATCH[1] - 1}))


def test_a_budget_offloads_no_more_than_it_has_to(tmp_path: Path) -> None:
    """Candidates go by priority, then by size; what is pinned stays; bits stay, and a plan that cannot fit says so."""
    options = Options(shape={"B": BATCH[0], "T": BATCH[1] - 1})
    settings = StepSettings()
    path = write(tmp_path, 3, h="@memory(offload, priority=1)", a="@memory(pin)")
    source = trainable(path, options)
    whole = plan_memory(replace(source, moved=frozenset()), settings, options)
    every = plan_memory(source, settings, options)
    _, free = within_budget(source, settings, options, whole.total)
    assert not free.moved
    made, half = within_budget(source, settings, options, (whole.total + every.total) // 2)
    assert every.total < half.total <= (whole.total + every.total) // 2
    assert 0 < len(half.moved) < 3
    assert set(half.moved) < source.moved
    assert losses(Trainer(made, settings, "cpu"), BATCH) == losses(Trainer(source, settings, "cpu"), BATCH)
    _, more = within_budget(source, settings, options, every.total - 1)  # nothing says so of these
    assert set(more.moved) > source.moved
    assert not set(more.moved) & source.pinned
    assert source.pinned
    with pytest.raises(InputError, match=r"even where .* are offloaded"):
        within_budget(source, settings, options, 1000)
    words = ["show", str(path), "--memory", "--shape", "B=4,T=64", "--memory-budget", "?"]
    found = CliRunner().invoke(command, words)
    assert "is no amount of memory" in found.output


def test_a_budget_holds_for_parts_of_batches_and_for_ranks(tmp_path: Path) -> None:
    """What collects gradients and what applies them have an arena each; a rank plans what it has of the model."""
    path, tokens = write(tmp_path, 2), np.random.default_rng(0).integers(0, 11, 400)
    source, settings = trainable(path, Options()), StepSettings(accumulation=2)
    options = Options(shape={"B": 2, "T": 16})
    whole = plan_memory(source, settings, options)
    assert whole.slots == 3 * whole.parameters  # those of AdamW, and what is collected
    trainer = Trainer(source, settings, "cpu")
    rows = tokens[:68].reshape(4, 17)
    trainer.step({"ids": rows[:, :-1], "targets": rows[:, 1:]}, 1e-2)
    parts = [run for run in trainer._parts if isinstance(run, KernelExecutable)]
    extents: list[dict[str, int]] = [{"B": 2, "T": 16}, {}]
    found = [
        item.each.arena_bytes
        for run, sizes in zip(parts, extents, strict=True)
        for item in run.segments(sizes)
    ]
    assert sum(found) == whole.arena
    batch = {"ids": rows[:, :-1], "targets": rows[:, 1:]}
    held, plan = within_budget(source, settings, options, whole.total - 20_000)
    assert plan.moved
    assert plan.total <= whole.total - 20_000
    other = Trainer(held, settings, "reference")
    plain = Trainer(source, settings, "reference")
    losses_of = [[item.step(batch, 1e-2).loss for _ in range(2)] for item in (other, plain)]
    assert losses_of[0] == losses_of[1]
    last = losses_of[0][-1]

    def work(place: Threads) -> tuple[int, float]:
        plans: list[MemoryPlan] = []

        def fit_memory(item: TrainableGraph, told: StepSettings) -> TrainableGraph:
            found, plan = within_budget(item, told, options, whole.total - 20_000)
            plans.append(plan)
            return found

        mesh = World(Mesh(dp=2), place)
        trainer = RankTrainer(source, StepSettings(), "reference", Options(), mesh, fit_memory)
        return len(plans[0].moved), [trainer.step(batch, 1e-2).loss for _ in range(2)][-1]

    for moved, loss in cast(list[tuple[int, float]], run_threads(2, work)):
        assert moved == len(plan.moved)
        assert loss == pytest.approx(last, rel=1e-6)
    with pytest.raises(InputError, match="no stages share"):
        StageTrainer(source, settings, "cpu", options, cast(World, None), lambda item, _: item)


def test_show_tells_the_memory_of_a_step(tmp_path: Path) -> None:
    path, picture = write(tmp_path, whole="@checkpoint"), tmp_path / "memory.svg"
    words = ["show", str(path), "--memory", "--shape", "B=2,T=8", "--json", "--picture", str(picture)]
    done = CliRunner().invoke(command, words)
    found = json.loads(done.output)["memory"]
    assert found["arena"] < found["if_all_were_kept"]["arena"]
    assert set(found["recomputed"]) >= WHOLE
    assert ElementTree.fromstring(picture.read_text(encoding="utf-8")).tag.endswith("svg")
    done = CliRunner().invoke(command, ["show", str(path), "--memory"])
    assert done.exit_code == 1
    assert "say --shape B=…,T=…" in done.output
