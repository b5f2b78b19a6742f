"""Training in narrow types: every rounding where recipes put it, judged by a step written with NumPy and ml_dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from lamella.base.arrays import Array
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer
from lamella.train.adapters.model import find_adapters

RECIPE = """
recipe Narrow:
  forward_activation_dtype: {forward}
  backward_gradient_dtype: {backward}
  accumulation_dtype: fp32
  output_dtype: {output}
  weight_storage_dtype: {storage}
  scaling_strategy: delayed
  amax_history_len: 3
"""
NET = """
model Net(width: int = 12, classes: int = 6):
  {recipe}
  params:
    first: [width, width]{first}
    second: [classes, width]{second}

  forward:
    in: x: [B, width, fp32]
    out: logits: [B, classes]
    graph:
      (x, first) -> matmul(transpose=NT) -> h {one}
      h -> relu() -> a
      (a, second) -> matmul(transpose=NT) -> logits {two}
"""
NOTHING = {"recipe": "", "first": "", "second": "", "one": "", "two": ""}
RANDOM = np.random.default_rng(3)
BATCHES: list[dict[str, Array]] = [
    {
        "x": (RANDOM.standard_normal((8, 12)) * 2.0 ** (number % 4)).astype(np.float32),
        "targets": RANDOM.integers(0, 6, 8),
    }
    for number in range(12)
]
RATE = 0.02
BETAS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 0.01
E4M3, E5M2 = (448.0, ml_dtypes.float8_e4m3fn), (57344.0, ml_dtypes.float8_e5m2)
BF16 = ml_dtypes.bfloat16


def written(folder: Path, text: str, **changes: str) -> Path:
    """The network as a file."""
    path = folder / "net.module"
    path.write_text(text + NET.format(**{**NOTHING, **changes}), encoding="utf-8")
    return path


def trainer_of(path: Path, backend: str = "reference", **told: Any) -> Trainer:
    """A trainer that begins with the same numbers whenever it is made."""
    return Trainer(path, StepSettings(**told), backend, Options(seed=1))


def real(array: Array) -> Any:
    """Numbers in 32 bits."""
    return np.asarray(array).astype(np.float32)


class History:
    """The scale of one tensor: the largest number of the last calls, looked up every so often."""

    def __init__(self, kind: tuple[float, Any], length: int = 3, interval: int = 1) -> None:
        self.limit, self.type = kind
        self.seen: list[Any] = [np.float32(0)] * length
        self.held, self.interval, self.calls = np.float32(0), interval, 0

    def __call__(self, array: Any) -> Any:
        """The numbers as the narrow type holds them."""
        amax = np.abs(array).max()
        used = self.held if self.held > 0 else amax
        self.seen = [amax, *self.seen[:-1]]
        self.calls += 1
        if self.calls % self.interval == 0:
            self.held = max(self.seen)
        scale = np.float32(max(used, np.float32(1e-12)) * np.float32(1.0 / self.limit))
        limit = np.float32(self.limit)
        narrow = np.clip(array / scale, -limit, limit).astype(self.type)
        return narrow.astype(np.float32) * scale


class NarrowStep:
    """The same step with NumPy: fp8 with delayed scales forward and back, bf16 between, AdamW on wide masters."""

    def __init__(self, start: Mapping[str, Array]) -> None:
        self.masters = {name: real(array) for name, array in start.items()}
        self.moments = {name: [np.zeros_like(item)] * 2 for name, item in self.masters.items()}
        self.scales = {name: History(E4M3) for name in ("x", "first", "a", "second")}
        self.scales |= {name: History(E5M2) for name in ("d_logits", "d_h")}
        self.steps = 0

    def __call__(self, batch: Mapping[str, Array]) -> float:
        narrow = {name: item.astype(BF16) for name, item in self.masters.items()}
        x = self.scales["x"](batch["x"])
        first = self.scales["first"](real(narrow["first"]))
        h = (x @ first.T).astype(BF16)
        a = np.maximum(h, BF16(0))
        inner = self.scales["a"](real(a))
        second = self.scales["second"](real(narrow["second"]))
        logits = real((inner @ second.T).astype(BF16))
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        total = shares.sum(-1, keepdims=True)
        rows = np.arange(len(logits))
        loss = float(np.mean(np.log(total[:, 0]) + logits.max(-1) - logits[rows, batch["targets"]]))
        d_logits = shares / total
        d_logits[rows, batch["targets"]] -= 1
        d_logits = self.scales["d_logits"](real((d_logits / np.float32(len(logits))).astype(BF16)))
        d_a = (d_logits @ second).astype(BF16)
        d_h = self.scales["d_h"](real(np.where(real(h) > 0, real(d_a), 0)))
        gradients = {"first": d_h.T @ x, "second": d_logits.T @ inner}
        self.steps += 1
        for name, gradient in gradients.items():
            self._adamw(name, real(gradient.astype(BF16)))
        return loss

    def _adamw(self, name: str, gradient: Any) -> None:
        mean, square = self.moments[name]
        mean = mean + (gradient - mean) * np.float32(1 - BETAS[0])
        square = square * np.float32(BETAS[1]) + gradient * gradient * np.float32(1 - BETAS[1])
        root = np.sqrt(square) / np.float32(np.sqrt(1 - BETAS[1] ** self.steps)) + np.float32(EPSILON)
        moved = np.float32(RATE / (1 - BETAS[0] ** self.steps)) * (mean / root)
        self.moments[name] = [mean, square]
        self.masters[name] = real(self.masters[name] * np.float32(1 - RATE * DECAY) - moved)


FP8 = RECIPE.format(forward="fp8_e4m3", backward="fp8_e5m2", output="bf16", storage="bf16")


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_recipe_of_eight_bits_with_delayed_scales(backend: str, tmp_path: Path) -> None:
    """Histories, roundings and masters are those of NumPy; a run that goes on from a state is the same run."""
    path = written(tmp_path, FP8, recipe="@recipe(Narrow)")
    trainer = trainer_of(path, backend)
    judge = NarrowStep(trainer.parameters)
    state: dict[str, Array] = {}
    for number, batch in enumerate(BATCHES):
        if number == 6:
            state = {name: np.array(item) for name, item in trainer.state.items()}
        assert trainer.step(batch, RATE).loss == pytest.approx(judge(batch), rel=2e-3)
    histories = sorted(tuple(item) for name, item in trainer.state.items() if "amax_history" in name)
    wanted = sorted(tuple(item.seen) for item in judge.scales.values())
    np.testing.assert_allclose(histories, wanted, rtol=0.02)
    again = trainer_of(path, backend)
    again.load_state(state)
    for batch in BATCHES[6:]:
        again.step(batch, RATE)
    for name, item in trainer.state.items():
        assert np.array_equal(item, again.state[name]), name
    assert trainer.parameters["first"].dtype == BF16
    assert np.array_equal(trainer.parameters["first"], trainer.state["first.master"].astype(BF16))


def scaled(folder: Path, one: str, **changes: str) -> Trainer:
    """A trainer of the network with annotations on its first product."""
    return trainer_of(written(folder, "", one=one, **changes))


def test_a_history_is_looked_up_every_so_often(tmp_path: Path) -> None:
    marks = "@precision(compute=fp8_e4m3, output=fp32) @scaling(delayed, history_len=2, update_interval=3)"
    trainer = scaled(tmp_path, marks)
    judge = History(E4M3, 2, 3)
    for batch in BATCHES[:8]:
        judge(batch["x"])
        trainer.step(batch, RATE)
        held = {name: item for name, item in trainer.state.items() if ".amax" in name}
        assert held["h.amax"] == judge.held
        assert list(held["h.amax_history"]) == judge.seen
        assert held["h.amax_count"] == judge.calls % 3
    trainer.evaluate(BATCHES[0])
    assert trainer.state["h.amax"] == judge.held


def test_scaling_alone_means_eight_bits_and_quantize_takes_it(tmp_path: Path) -> None:
    """`@scaling` on a product, on `quantize()` and on a stored parameter all round as NumPy does."""
    product = scaled(tmp_path, "@scaling(per_channel)")
    start = {name: real(item) for name, item in product.parameters.items()}
    batch = BATCHES[0]

    def rounded(array: Any, axis: int | None, kind: tuple[float, Any] = E4M3) -> Any:
        limit, narrow = kind
        scale = np.abs(array).max(axis, keepdims=True) * np.float32(1 / limit)
        return real(np.clip(array / scale, -limit, limit).astype(narrow)) * scale

    def loss(x: Any, first: Any) -> float:
        scores = torch.tensor(np.maximum(x @ first.T, 0) @ start["second"].T)
        return float(torch.nn.functional.cross_entropy(scores, torch.tensor(batch["targets"])))

    wanted = loss(rounded(batch["x"], None), rounded(start["first"], 1))
    assert product.evaluate(batch) == pytest.approx(wanted, rel=1e-5)
    text = NET.format(**NOTHING).replace(
        "(x, first)", "x -> quantize() -> q @scaling(dynamic)\n      (q, first)"
    )
    path = tmp_path / "quantized.module"
    path.write_text(text, encoding="utf-8")
    assert trainer_of(path).evaluate(batch) == pytest.approx(
        loss(rounded(batch["x"], None), start["first"]), rel=1e-5
    )
    mark = " @dtype(fp4_e2m1) @scaling(per_block, block_size=(4, 6))"
    blocks = start["first"].reshape(3, 4, 2, 6)
    scale = np.abs(blocks).max((1, 3), keepdims=True) * np.float32(1 / 6)
    held = (real((blocks / scale).astype(ml_dtypes.float4_e2m1fn)) * scale).reshape(12, 12)
    stored = scaled(tmp_path, "", first=mark)
    assert stored.evaluate(batch) == pytest.approx(loss(batch["x"], held), rel=1e-5)
    before = stored.parameters["first"].copy()
    stored.step(batch, RATE)
    assert not np.array_equal(before, stored.parameters["first"])


FP16 = RECIPE.format(forward="fp16", backward="fp16", output="fp16", storage="fp16")


@pytest.mark.parametrize("parts", [1, 2])
def test_losses_of_half_precision_are_scaled(parts: int, tmp_path: Path) -> None:
    """A step whose gradients are not finite changes nothing but the scale, as GradScaler has it."""
    path = written(tmp_path, FP16, recipe="@recipe(Narrow)")
    trainer = trainer_of(path, accumulation=parts)
    assert trainer.loss_scale == 65536.0
    large = {**BATCHES[0], "x": BATCHES[0]["x"] * 64}  # h fits fp16, the gradient of `first` does not
    before = {name: np.array(item) for name, item in trainer.state.items()}
    found = trainer.step(large, RATE)
    assert found.is_skipped
    assert np.isfinite(found.loss)
    assert trainer.loss_scale == 32768.0
    assert trainer.steps == 0
    for name, item in trainer.state.items():
        assert np.array_equal(item, before[name]) or name.startswith("loss_scale"), name
    small = {**BATCHES[0], "x": BATCHES[0]["x"] / 64}
    for _ in range(30):
        if not trainer.step(small, RATE).is_skipped:
            break
    assert trainer.steps == 1
    moved = np.abs(real(trainer.state["first.master"]) - real(before["first.master"]))
    assert moved.max() == pytest.approx(RATE, rel=0.05)  # the first step of Adam goes as far as the rate says


def test_steps_below_the_rounding_of_a_parameter_add_up(tmp_path: Path) -> None:
    """A master takes steps in that its bf16 parameter alone would not see."""
    path = written(tmp_path, FP8.replace("fp8_e4m3", "bf16"), recipe="@recipe(Narrow)")
    trainer = trainer_of(path, optimizer="sgd", weight_decay=0.0)
    start = np.array(trainer.parameters["second"])
    for _ in range(60):
        trainer.step(BATCHES[0], 2e-4)
    moved = real(trainer.parameters["second"]) - real(start)
    assert (np.abs(moved) > 0).sum() > moved.size // 4


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16", "fp8_hybrid", "fp8_pure", "fp4"])
def test_every_policy_learns(name: str, tmp_path: Path) -> None:
    trainer = scaled(tmp_path, f"@precision(policy={name})")
    losses = [trainer.step(BATCHES[0], RATE).loss for _ in range(6)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("storage", ["bf16", "fp32"])
def test_adapters_learn_in_the_types_of_a_recipe(storage: str, tmp_path: Path) -> None:
    """LoRA beside a product that is rounded: the numbers of torch, whose casts round gradients too."""
    text = RECIPE.format(forward="bf16", backward="bf16", output="bf16", storage=storage)
    path = written(tmp_path, text, recipe="@recipe(Narrow)", one="@adapter(lora, rank=2, alpha=2)")
    model = find_adapters(path, Options(seed=1))
    assert model is not None
    found = {item.role: item.variable for item in model.adapted.weights}
    settings = StepSettings("sgd", weight_decay=0.0)
    trainer = Trainer(model.trainable, settings, "reference", Options(seed=1))
    start = {name: torch.tensor(real(item)) for name, item in trainer.fixed.items()}
    down, up = (torch.tensor(real(trainer.parameters[found[role]])) for role in ("lora_A", "lora_B"))

    def rounded(item: torch.Tensor) -> torch.Tensor:
        return item.bfloat16().float()

    for batch in BATCHES[:6]:
        down, up = (item.detach().requires_grad_() for item in (down, up))
        x = rounded(torch.tensor(batch["x"]))
        h = (x @ rounded(start["first"]).T + x @ down.T @ up.T).bfloat16()
        scores = (torch.relu(h).float() @ rounded(start["second"]).T).bfloat16()
        loss = torch.nn.functional.cross_entropy(scores.float(), torch.tensor(batch["targets"]))
        loss.backward()
        assert trainer.step(batch, RATE).loss == pytest.approx(float(loss.detach()), rel=1e-4)
        assert down.grad is not None
        assert up.grad is not None
        down, up = down - RATE * down.grad, up - RATE * up.grad
    assert trainer.parameters[found["lora_B"]].dtype == np.float32
    np.testing.assert_allclose(trainer.parameters[found["lora_B"]], up.detach(), rtol=0.02, atol=1e-5)


def test_adapters_remember_scales_and_every_policy_takes_them(tmp_path: Path) -> None:
    path = written(tmp_path, FP8, recipe="@recipe(Narrow)", one="@adapter(lora, rank=2)")
    model = find_adapters(path, Options(seed=1))
    assert model is not None
    trainer = Trainer(model.trainable, StepSettings(), "reference", Options(seed=1))
    losses = [trainer.step(BATCHES[0], RATE).loss for _ in range(6)]
    assert losses[-1] < losses[0]
    histories = [item for name, item in trainer.state.items() if "amax_history" in name]
    assert len(histories) == 4  # of both operands of both products
    assert all(item.all() for item in histories)
