"""Adapters in models with `backward:` sections: what the text says of gradients counts, and they are put in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import lamella
from lamella.base.errors import InputError
from lamella.base.optional import need
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer
from lamella.train.adapters.model import find_adapters

DOUBLED = """
module Doubled(d: int):
  forward:
    in: x: [B, T, d]
    out: y: [B, T, d]
    graph:
      x -> scale(factor=2.0) -> y
  backward:
    d_y: [B, T, d]
    d_x: [B, T, d]
    graph:
      d_y -> scale(factor={factor}) -> d_x
"""
NET = """
module Net(d: int):
  params:
    up: [2 * d, d]
    up_bias: [2 * d]
    down: [d, 2 * d]
  forward:
    in: x: [B, T, d]
    out: y: [B, T, d]
    graph:
      (x, up) -> matmul(transpose=NT) -> h
      (h, up_bias) -> bias_add() -> b
      b -> relu() -> a
      (a, down) -> matmul(transpose=NT) -> y
"""
WRITTEN = """
    save: [x]
    recompute: [h, b, a]
  backward:
    d_y: [B, T, d]
    d_x: [B, T, d]
    graph:
      recompute:
        (saved.x, up) -> matmul(transpose=NT) -> h
        (h, up_bias) -> bias_add() -> b
        b -> relu() -> a
      (d_y, down) -> matmul(transpose=NN) -> d_a
      (d_a, b) -> relu_backward() -> {inner}
      ({inner}, up) -> matmul(transpose=NN) -> d_x
      ({inner}, saved.x) -> matmul(transpose=TN) -> d_up
      {inner} -> bias_backward() -> d_up_bias
      (d_y, a) -> matmul(transpose=TN) -> d_down
"""
MODEL = """
from std.modules import GQA

model Tiny(words: int = 32, d: int = 8):
  params:
    table: [words, d]
    attention: GQA(d, 2, 2, 16)
    net: Net(d)
    double: Doubled(d)
    head: [words, d]
  forward:
    in: token_ids: [B, T, int64]
    out: logits: [B, T, words]
    graph:
      (token_ids, table) -> embedding() -> x
      x -> attention() -> s
      (x, s) -> add() -> x1
      x1 -> double() -> x2
      x2 -> net() -> x3
      (x1, x3) -> add() -> z
      (z, head) -> matmul(transpose=NT) -> logits
"""
TARGETS = "targets=*weight,*.up,*.down"
KINDS = (
    f"lora:rank=2,dropout=0.2,{TARGETS}",
    f"dora:rank=2,{TARGETS}",
    f"ia3:{TARGETS}",
    f"bottleneck:dim=3,{TARGETS}",
    "prompt:length=3",
    "prefix:length=3,hidden_dim=4",
)


def write(folder: Path, factor: float | None, inner: str | None) -> Path:
    """A model with the backward sections that are asked for."""
    doubled = DOUBLED if factor is None else DOUBLED.format(factor=factor)
    doubled = doubled.partition("  backward:")[0] if factor is None else doubled
    net = NET.rstrip("\n") + ("\n" if inner is None else WRITTEN.format(inner=inner))
    path = folder / f"m{factor}{inner}.module"
    path.write_text(doubled + net + MODEL)
    return path


def losses(path: Path, kind: str, base: Literal["int8"] | None = None) -> list[float]:
    tokens = np.random.default_rng(0).integers(0, 32, 200)
    done = lamella.train(
        path,
        tokens,
        steps=3,
        batch=2,
        sequence=9,
        lr=0.02,
        adapters=(kind,),
        base=base,
        dtype="f64",
        backend="reference",
    )
    return list(done.losses)


@pytest.mark.parametrize("kind", KINDS)
def test_right_backward_sections_give_the_numbers_of_formulas(kind: str, tmp_path: Path) -> None:
    derived = losses(write(tmp_path, None, None), kind)
    np.testing.assert_allclose(losses(write(tmp_path, 2.0, "d_b"), kind), derived, rtol=1e-10)
    assert not np.allclose(losses(write(tmp_path, 3.0, "d_b"), kind), derived, rtol=1e-6)


def test_frozen_weights_of_few_bits_have_written_gradients_too(tmp_path: Path) -> None:
    kind = f"lora:rank=2,{TARGETS}"
    derived = losses(write(tmp_path, None, None), kind, base="int8")
    np.testing.assert_allclose(losses(write(tmp_path, 2.0, "d_b"), kind, base="int8"), derived, rtol=1e-10)


def test_a_gradient_without_its_name_leaves_no_place_for_an_adapter(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"around 'net\.b' has no gradient of that name"):
        losses(write(tmp_path, 2.0, "inner"), f"lora:rank=2,{TARGETS}")
    losses(write(tmp_path, 2.0, "inner"), "lora:rank=2,targets=*.down")


CHAIN = """
model Chain(words: int = 16, d: int = 6):
  params:
    table: [words, d]
    first: [d, d]
    last: [d, d]
    double: Doubled(d)
    head: [words, d]
  forward:
    in: token_ids: [B, T, int64]
    out: logits: [B, T, words]
    graph:
      (token_ids, table) -> embedding() -> x
      (x, first) -> matmul(transpose=NT) -> a
      a -> double() -> b
      (b, last) -> matmul(transpose=NT) -> c
      (c, head) -> matmul(transpose=NT) -> logits
"""


def test_an_estimator_of_a_text_is_that_of_a_torch_model_with_adapters(tmp_path: Path) -> None:
    """Twice forward, three times back: a term that is cut off from gradients makes torch do the same."""
    torch = need("torch")
    path = tmp_path / "chain.module"
    path.write_text(DOUBLED.format(factor=3.0) + CHAIN)
    model = find_adapters(path, Options(adapters=("lora:rank=2,alpha=6,targets=first,last",), dtype="f64"))
    assert model is not None
    random = np.random.default_rng(3)
    data = dict(model.trainable.model.data or {})
    data |= {item.variable: random.normal(size=item.shape) for item in model.adapted.weights}
    graph = replace(model.trainable, model=replace(model.trainable.model, data=data))
    trainer = Trainer(graph, StepSettings("sgd", weight_decay=0.0, momentum=0.0, dtype="f64"), "reference")
    rows = random.integers(0, 16, (2, 6))
    loss = trainer.step({"token_ids": rows[:, :-1], "targets": rows[:, 1:]}, 0.5).loss
    array = {name: torch.tensor(np.asarray(item, np.float64)) for name, item in data.items()}
    trained = [array[item.variable].requires_grad_() for item in model.adapted.weights]

    def adapted(x: Any, name: str) -> Any:
        low = x @ array[f"{name}.lora_A"].T @ array[f"{name}.lora_B"].T
        return x @ array[name].T + 3 * low

    inner = adapted(array["table"][torch.tensor(rows[:, :-1])], "first")
    scores = adapted(3 * inner - inner.detach(), "last") @ array["head"].T
    wanted = torch.nn.functional.cross_entropy(scores.flatten(0, 1), torch.tensor(rows[:, 1:]).flatten())
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-12)
    for item, tensor in zip(model.adapted.weights, trained, strict=True):
        after = (tensor - 0.5 * tensor.grad).detach().numpy()
        np.testing.assert_allclose(trainer.parameters[item.variable], after, rtol=1e-9, atol=1e-12)
