"""Hooks and probes of training steps, judged by torch: what they see, what they change, gradients among it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.cli import lamella as command
from lamella.graph.rewrite import members
from lamella.pipeline.options import Options
from lamella.pipeline.profile import share_in
from lamella.train import StepSettings, Trainer

TEXT = """
module Layer(d: int):
  CHECKPOINT
  params:
    w: [d, d]
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      (x, w) -> matmul(transpose=NT) -> h @hook(AfterMLPUpProjection, mode=modify) @probe("h", capture=grad_full)
      h -> silu() -> a @hook(AfterMLPActivation, mode=replace)
      (x, a) -> add() -> y @hook(AfterResidualAdd) @probe("y", capture=grad_stats, condition="max(y) > 1000.0")
  BACKWARD

model Net(d: int = 5):
  params:
    layers: [2] x Layer(d)
    head: [4, d]
  forward:
    in: x: [B, d]
    out: logits: [B, 4]
    graph:
      x -> StackedBlocks(layers, 2) -> z @probe("z", capture=grad_stats, frequency=2) @probe("forward")
      (z, head) -> matmul(transpose=NT) -> logits
"""
BACKWARD = """backward:
    graph:
      d_y -> copy() -> d_a
      (d_a, saved.h) -> silu_backward() -> d_h
      (d_h, w) -> matmul(transpose=NN) -> d_through
      (d_h, saved.x) -> matmul(transpose=TN) -> d_w
      (d_y, d_through) -> add() -> d_x
"""
RANDOM = np.random.default_rng(2)
BATCHES: list[dict[str, Array]] = [
    {"x": RANDOM.standard_normal((6, 5)), "targets": RANDOM.integers(0, 4, 6)} for _ in range(3)
]
RATE = 0.05
Change = Callable[[Any, int], Any]


def trainer_of(folder: Path, checkpoint: str = "", backward: str = "", **told: Any) -> Trainer:
    path = folder / "net.module"
    path.write_text(TEXT.replace("CHECKPOINT", checkpoint).replace("BACKWARD", backward), encoding="utf-8")
    return Trainer(path, StepSettings(dtype="f64", **told), "reference", Options(seed=3))


class TorchNet:
    """The same network and optimiser in torch; changes of values that gradients do not see."""

    def __init__(self, trainer: Trainer, up: Change | None = None, active: Change | None = None) -> None:
        start = trainer.parameters
        self.numbers = {name: torch.nn.Parameter(torch.tensor(array)) for name, array in start.items()}
        self.rule = torch.optim.AdamW(list(self.numbers.values()), lr=RATE)
        self.up, self.active = up, active
        self.seen: dict[str, Any] = {}

    def step(self, batch: dict[str, Array]) -> float:
        x = torch.tensor(batch["x"])
        for number in range(2):
            h = x @ self.numbers[f"layers[{number}].w"].T
            h = self._changed(h, number, self.up)
            a = self._changed(torch.nn.functional.silu(h), number, self.active)
            x = x + a
            self.seen[f"h{number}"], self.seen["z"] = h, x
            h.retain_grad(), x.retain_grad()
        scores = x @ self.numbers["head"].T
        loss = torch.nn.functional.cross_entropy(scores, torch.tensor(batch["targets"]))
        self.rule.zero_grad()
        loss.backward()
        self.rule.step()
        return float(loss.item())

    def _changed(self, tensor: Any, layer: int, change: Change | None) -> Any:
        return tensor if change is None else tensor + (change(tensor, layer) - tensor).detach()


@pytest.mark.parametrize("backward", ["", BACKWARD])
def test_probes_of_gradients_keep_what_torch_has(backward: str, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, backward=backward)
    judge = TorchNet(trainer)
    trainer.enable_probes()
    for number, batch in enumerate(BATCHES):
        assert trainer.step(batch, RATE).loss == pytest.approx(judge.step(batch), rel=1e-10)
        for layer in range(2):
            found = trainer.get_probe("h", layer=layer)
            assert found.values is not None
            np.testing.assert_allclose(found.values, judge.seen[f"h{layer}"].grad, rtol=1e-9)
        norm = float(judge.seen["z"].grad.norm())
        if number != 1:  # every second step
            assert trainer.get_probe("z").norm == pytest.approx(norm, rel=1e-9)
        assert trainer.get_probe("forward").max == pytest.approx(
            float(judge.seen["z"].detach().max()), rel=1e-9
        )
    with pytest.raises(InputError, match="has seen nothing yet"):
        trainer.get_probe("y", layer=0)  # its condition never held
    trainer.disable_probes()
    trainer.step(BATCHES[0], RATE)
    shown = [item.name for item in members(trainer.graphs[0].model.graph.outputs)]
    assert not any(name.startswith("watched") for name in shown)


def double(tensor: Any, layer: int | None, stream: object = None) -> Any:
    """Doubles what the first layer multiplies, as it lies."""
    if layer == 0:
        tensor *= 2


def shifted(tensor: Any, layer: int | None, stream: object = None) -> Any:
    """Gives other numbers."""
    return tensor + 0.25


@pytest.mark.parametrize(
    ("checkpoint", "told"), [("", {}), ("@checkpoint(full)", {}), ("", {"accumulation": 2})]
)
def test_hooks_change_steps_as_they_do_in_torch(
    checkpoint: str, told: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever is computed again on the way back, a hook is called once in a step, and what it gave is used."""
    trainer = trainer_of(tmp_path, checkpoint, **told)
    judge = TorchNet(
        trainer, lambda tensor, layer: tensor * (2 if layer == 0 else 1), lambda tensor, layer: tensor + 0.25
    )
    calls: list[int | None] = []

    def counted(tensor: Array, layer: int | None, stream: object) -> None:
        calls.append(layer)
        double(tensor, layer)

    trainer.register_hook("AfterMLPUpProjection", counted)
    trainer.register_hook("AfterMLPActivation", shifted)
    for batch in BATCHES:
        assert trainer.step(batch, RATE).loss == pytest.approx(judge.step(batch), rel=1e-9)
    assert calls == [0, 1] * len(BATCHES) * told.get("accumulation", 1)
    for name, array in trainer.parameters.items():
        np.testing.assert_allclose(array, judge.numbers[name].detach(), rtol=1e-8, atol=1e-12)


def test_hooks_that_observe_change_nothing_and_can_be_taken_away(tmp_path: Path) -> None:
    plain, watched = trainer_of(tmp_path), trainer_of(tmp_path)
    seen: list[tuple[int | None, Array]] = []
    hook = watched.register_hook("AfterResidualAdd", lambda tensor, layer, _: seen.append((layer, tensor)))
    before = watched.graphs
    for batch in BATCHES[:2]:
        assert watched.step(batch, RATE) == plain.step(batch, RATE)
    assert [layer for layer, _ in seen] == [0, 1, 0, 1]
    assert watched.graphs is not before
    hook.remove()
    assert watched.step(BATCHES[2], RATE) == plain.step(BATCHES[2], RATE)
    assert len(seen) == 4
    for name, array in watched.state.items():
        assert np.array_equal(array, plain.state[name])
    untouched = plain.graphs
    plain.step(BATCHES[0], RATE)
    assert plain.graphs is untouched  # nobody watches: nothing was made anew
    with pytest.raises(InputError, match="no hook point"):
        plain.register_hook("AfterResidual", lambda tensor, layer, stream: None)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_profile_tells_both_ways_of_a_region(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "net.module"
    text = TEXT.replace("CHECKPOINT", '@profile("layer", memory=true)').replace("BACKWARD", "")
    path.write_text(text, encoding="utf-8")
    trainer, plain = (Trainer(path, StepSettings(), backend, Options(seed=3)) for _ in range(2))
    batch = {**BATCHES[0], "x": BATCHES[0]["x"].astype(np.float32)}
    found = trainer.profile(batch, RATE)
    assert trainer.step(batch, RATE).loss == (plain.step(batch, RATE), plain.step(batch, RATE))[1].loss
    layers = list(found.region_times())
    assert [item.region.path for item in layers] == ["layers[0]", "layers[1]"]
    for item in layers:
        names = {step.operator for step in found.steps if share_in(step.item, item.region)}
        assert item.steps >= 3
        assert item.size > 0
        assert any("silu" in name for name in names)
    assert sum(item.seconds for item in layers) < found.run_seconds


ASSERTING = """
model Net(words: int = 7, width: int = 8):
  params:
    table: [words, width]
  forward:
    in: token_ids: [B, T, int64]
    out: logits: [B, T, words]
    graph:
      (token_ids, table) -> embedding() -> x @assert(all(x < {limit}), message="too large") @trace(level=values)
      (x, table) -> matmul(transpose=NT) -> logits @trace(level=tensors)
"""


@pytest.mark.parametrize(("limit", "is_right"), [("9", True), ("0", False)])
def test_assertions_end_a_training_where_they_are_tested(tmp_path: Path, limit: str, is_right: bool) -> None:
    path = tmp_path / "net.module"
    path.write_text(ASSERTING.format(limit=limit), encoding="utf-8")
    np.save(tmp_path / "t.npy", np.arange(40) % 7)
    words = [
        "train",
        str(path),
        "--data",
        str(tmp_path / "t.npy"),
        "--steps",
        "2",
        "--batch",
        "2",
        "--sequence",
        "4",
    ]
    words += ["--backend", "reference"]
    assert CliRunner().invoke(command, words).exit_code == 0
    done = CliRunner().invoke(command, [*words, "--observe"])
    assert done.exit_code == int(not is_right), done.output
    assert ("E104" in done.output and "too large" in done.output) != is_right
    told = [line for line in done.output.splitlines() if line.startswith("trace ")]
    if is_right:  # of both steps, in their order
        assert told[1] == told[3] == "trace logits: float32 2×4×7"
        assert told[0].startswith("trace x: float32 2×4×8, mean ")
        assert told[2] != told[0]
        found = json.loads(CliRunner().invoke(command, [*words, "--observe", "--json"]).output)
        assert found["traces"] == told


def test_traces_can_be_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "net.module"
    path.write_text(ASSERTING.format(limit="9").replace("(level=values)", ""), encoding="utf-8")
    trainer = Trainer(path, StepSettings(dtype="f64"), "reference", Options(seed=3))
    told: list[str] = []
    trainer.enable_traces(told.append)
    batch = {"token_ids": np.ones((1, 3), np.int64), "targets": np.ones((1, 3), np.int64)}
    trainer.step(batch, RATE)
    assert told == ["trace x", "trace logits: float64 1×3×7"]
    trainer.enable_traces(None)
    trainer.step(batch, RATE)
    assert len(told) == 2
