"""A step of training: what annotations and settings change in it, and that it leaves no trace where it fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lamella
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer, trainable

TEXT = """
model Net(width: int = 6, classes: int = 5):
  params:
    table: [7, width]{table}
    inner: [width, width]{inner}
    head: [classes, width]{head}

  forward:
    in: ids: [B, int64]
    out: logits: [B, classes]
    graph:
      (ids, table) -> embedding() -> x
      (x, inner) -> matmul(transpose=NT){product} -> h
      h -> silu() -> a
      (a, head) -> matmul(transpose=NT) -> logits
"""
NOTHING = {"table": "", "inner": "", "head": "", "product": ""}
RANDOM = np.random.default_rng(5)
BATCHES = [
    {
        "ids": RANDOM.integers(0, 7, 8),
        "targets": np.where(RANDOM.random(8) < 0.2, -100, RANDOM.integers(0, 5, 8)),
    }
    for _ in range(4)
]
RATE = 0.05
Change = Callable[[dict[str, Any]], None]


def written(folder: Path, **changes: str) -> Path:
    """A small network as a file, with annotations in some places."""
    path = folder / "net.module"
    path.write_text(TEXT.format(**{**NOTHING, **changes}), encoding="utf-8")
    return path


def trainer_of(path: Path, backend: str = "reference", **told: Any) -> Trainer:
    """A trainer in 64 bits."""
    return Trainer(path, StepSettings(dtype="f64", **told), backend=backend, options=Options(seed=1))


def in_torch(start: Mapping[str, Array]) -> dict[str, Any]:
    """The same parameters for torch."""
    return {name: torch.nn.Parameter(torch.tensor(array)) for name, array in start.items()}


def loss_of(numbers: Mapping[str, Any], batch: Mapping[str, Array]) -> Any:
    """The loss of the network as torch computes it."""
    x = numbers["table"][torch.tensor(batch["ids"])]
    scores = torch.nn.functional.silu(x @ numbers["inner"].T) @ numbers["head"].T
    return torch.nn.functional.cross_entropy(scores, torch.tensor(batch["targets"]))


def judge(trainer: Trainer, optimizer: Callable[[dict[str, Any]], Any], change: Change | None = None) -> None:
    """See that losses and parameters are those of torch; `change` does something to gradients before a step."""
    numbers = in_torch(trainer.parameters)
    rule = optimizer(numbers)
    for batch in BATCHES:
        loss = loss_of(numbers, batch)
        rule.zero_grad()
        loss.backward()
        if change is not None:
            change(numbers)
        rule.step()
        assert trainer.step(batch, RATE).loss == pytest.approx(loss.item(), rel=1e-10)
    for name, array in trainer.parameters.items():
        np.testing.assert_allclose(array, numbers[name].detach().numpy(), rtol=1e-9, atol=1e-12)


def adamw(numbers: dict[str, Any]) -> Any:
    """The optimiser that is taken where nothing is said."""
    return torch.optim.AdamW(list(numbers.values()), lr=RATE)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_clipping_by_the_norm_of_all_gradients(backend: str, tmp_path: Path) -> None:
    def change(numbers: dict[str, Any]) -> None:
        torch.nn.utils.clip_grad_norm_(list(numbers.values()), 0.05)

    trainer = trainer_of(written(tmp_path), backend, clip=0.05)
    judge(trainer, adamw, change)
    assert (trainer.step(BATCHES[0], RATE).gradient_norm or 0.0) > 0.05


def test_clipping_of_one_parameter(tmp_path: Path) -> None:
    def change(numbers: dict[str, Any]) -> None:
        torch.nn.utils.clip_grad_norm_([numbers["inner"]], 0.01)

    judge(trainer_of(written(tmp_path, inner=" @trainable(grad_clip=0.01)")), adamw, change)


def test_rates_and_decays_of_one_parameter(tmp_path: Path) -> None:
    def groups(numbers: dict[str, Any]) -> Any:
        own = {"table": {"lr": 0.5 * RATE}, "inner": {"weight_decay": 0.0}, "head": {}}
        return torch.optim.AdamW([{"params": [numbers[name]], **told} for name, told in own.items()], lr=RATE)

    marks = {"table": " @trainable(lr_scale=0.5)", "inner": " @trainable(wd_scale=0.0)"}
    judge(trainer_of(written(tmp_path, **marks)), groups)


def test_rates_that_the_configuration_of_a_part_says(tmp_path: Path) -> None:
    text = """
module Part(width: int, slow: float = 0.5):
  params:
    weight: [width, width] @trainable(lr_scale=slow)

  forward:
    in: [B, width]
    out: [B, width]
    graph:
      (in, weight) -> matmul(transpose=NT) -> out

module Plain(width: int):
  params:
    weight: [width, width]

  forward:
    in: [B, width]
    out: [B, width]
    graph:
      (in, weight) -> matmul(transpose=NT) -> out

module Pair(width: int):
  params:
    inner: Plain(width)

  forward:
    in: [B, width]
    out: [B, width]
    graph:
      in -> inner() -> out

model Whole(width: int = 5):
  params:
    table: [7, width]
    parts: [2] x Part(width, slow=0.25 * (layer + 1))
    last: Part(width, slow=3.0) @frozen
    fixed: [2] x Pair(width) @frozen
    quick: Pair(width) @trainable(lr_scale=2.0)

  forward:
    in: ids: [B, int64]
    out: logits: [B, width]
    graph:
      (ids, table) -> embedding() -> x
      x -> parts[0]() -> parts[1]() -> last() -> fixed[0]() -> fixed[1]() -> quick() -> logits
"""
    path = tmp_path / "whole.module"
    path.write_text(text, encoding="utf-8")
    source = trainable(path, Options(model="Whole"))
    rates = {source.policy(name).path: source.policy(name).rate_scale for name in source.gradients}
    # What is marked as trainable itself is so in a part that is frozen, too.
    parts = {"parts[0].weight": 0.25, "parts[1].weight": 0.5, "last.weight": 3.0}
    assert rates == {"table": 1.0, **parts, "quick.inner.weight": 2.0}


def test_frozen_parameters_stay(tmp_path: Path) -> None:
    trainer = trainer_of(written(tmp_path, inner=" @frozen"))
    assert set(trainer.parameters) == {"table", "head"}
    before = np.array(trainer.fixed["inner"])
    trainer.step(BATCHES[0], RATE)
    np.testing.assert_array_equal(trainer.fixed["inner"], before)


def test_scaled_and_skipped_gradients(tmp_path: Path) -> None:
    def change(numbers: dict[str, Any]) -> None:
        for name in ("table", "inner"):
            numbers[name].grad *= 0.5

    def sgd(numbers: dict[str, Any]) -> Any:
        return torch.optim.SGD(list(numbers.values()), lr=RATE, weight_decay=0.01)

    path = written(tmp_path, product=" -> m @gradient(scale=0.5)\n      m -> view([B, width])")
    judge(trainer_of(path, optimizer="sgd"), sgd, change)

    def clip(numbers: dict[str, Any]) -> None:
        numbers["inner"].grad *= 0.5
        torch.nn.utils.clip_grad_norm_([numbers["inner"]], 0.01)

    path = written(tmp_path, inner=" @gradient(scale=0.5, clip=0.01)")
    judge(trainer_of(path, optimizer="sgd"), sgd, clip)
    path = written(tmp_path, product=" -> m @gradient(skip)\n      m -> view([B, width])")
    trainer = trainer_of(path, optimizer="sgd", weight_decay=0.0)
    before = {name: np.array(array) for name, array in trainer.parameters.items()}
    trainer.step(BATCHES[0], RATE)
    changed = {name for name, array in trainer.parameters.items() if not np.array_equal(array, before[name])}
    assert changed == {"head"}


def test_clipped_gradients_of_a_tensor(tmp_path: Path) -> None:
    path = written(tmp_path, product=" -> m @gradient(scale=3.0, clip=0.02)\n      m -> view([B, width])")
    trainer = trainer_of(path, optimizer="sgd", weight_decay=0.0)
    numbers = in_torch(trainer.parameters)
    x = numbers["table"][torch.tensor(BATCHES[0]["ids"])]
    middle = x @ numbers["inner"].T
    middle.register_hook(lambda slope: 3 * slope * min(1.0, 0.02 / (3 * slope.norm().item() + 1e-6)))
    scores = torch.nn.functional.silu(middle) @ numbers["head"].T
    torch.nn.functional.cross_entropy(scores, torch.tensor(BATCHES[0]["targets"])).backward()
    trainer.step(BATCHES[0], 1.0)
    for name, array in trainer.parameters.items():
        moved = (numbers[name] - numbers[name].grad).detach().numpy()
        np.testing.assert_allclose(array, moved, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_gradients_are_collected_part_by_part(backend: str, tmp_path: Path) -> None:
    """In 32 bits, bit by bit: the sum over parts of a batch, each weighed by its share of the targets that count."""
    path = written(tmp_path)
    told: dict[str, Any] = {"optimizer": "sgd", "weight_decay": 0.0}
    whole = Trainer(path, StepSettings(accumulation=4, **told), backend, Options(seed=1))
    start = {name: np.array(array) for name, array in whole.parameters.items()}
    whole.step(BATCHES[0], 1.0)
    counts = [np.count_nonzero(BATCHES[0]["targets"][at : at + 2] != -100) for at in range(0, 8, 2)]
    collected = Trainer(path, StepSettings(is_split=True, **told), backend, Options(seed=1))
    sums: dict[str, Array] = {}
    for number, count in enumerate(counts):
        part = {name: item[2 * number : 2 * number + 2] for name, item in BATCHES[0].items()}
        collected.collect(part, count / sum(counts))
        for name, gradient in collected.gradients.items():
            sums[name] = np.array(gradient) if number == 0 else sums[name] + gradient
    for name, array in whole.parameters.items():
        np.testing.assert_array_equal(array, start[name] - sums[name])


def test_collected_gradients_are_those_of_the_batch(tmp_path: Path) -> None:
    path = written(tmp_path)
    one, many = trainer_of(path, "cpu"), trainer_of(path, "cpu", accumulation=4)
    for batch in BATCHES:
        assert many.step(batch, RATE).loss == pytest.approx(one.step(batch, RATE).loss, rel=1e-12)
    for name, array in many.parameters.items():
        np.testing.assert_allclose(array, one.parameters[name], rtol=1e-10)
    with pytest.raises(InputError, match="cannot be cut into 4 equal parts"):
        many.step({name: item[:6] for name, item in BATCHES[0].items()}, RATE)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "lion", "muon", "adamw8bit"])
def test_every_optimiser_learns_and_goes_on_from_a_state(optimizer: str, tmp_path: Path) -> None:
    path, told = written(tmp_path), {"optimizer": optimizer, "momentum": 0.9}
    trainer = Trainer(path, StepSettings(**told), options=Options(seed=1))  # type: ignore[arg-type]
    judge_ = Trainer(path, StepSettings(**told), "reference", Options(seed=1))  # type: ignore[arg-type]
    losses = [trainer.step(BATCHES[0], 0.02).loss for _ in range(6)]
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, [judge_.step(BATCHES[0], 0.02).loss for _ in range(6)], rtol=1e-4)
    state = {name: np.array(array) for name, array in trainer.state.items()}
    other = Trainer(path, StepSettings(**told), options=Options(seed=2))  # type: ignore[arg-type]
    other.load_state(state)
    for batch in BATCHES:
        assert trainer.step(batch, 0.02) == other.step(batch, 0.02)


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    trainer = trainer_of(written(tmp_path))
    state = dict(trainer.state)
    with pytest.raises(InputError, match=r"nothing for 'head\.mean'"):
        trainer.load_state({name: item for name, item in state.items() if name != "head.mean"})
    with pytest.raises(InputError, match=r"float64\[1\]"):
        trainer.load_state({**state, "head": np.zeros(1)})


def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    """Kernels overwrite parameters where they lie, but only when nothing can go wrong any more."""
    trainer = trainer_of(written(tmp_path), "cpu")
    trainer.step(BATCHES[0], RATE)
    before = {name: np.array(array) for name, array in trainer.state.items()}
    for wrong in ({"ids": np.full(8, 7)}, {"targets": np.full(8, 5)}):
        with pytest.raises(LamellaError):
            trainer.step({**BATCHES[0], **wrong}, RATE)
    for name, array in trainer.state.items():
        np.testing.assert_array_equal(array, before[name])


def test_arrays_that_somebody_holds_are_not_written(tmp_path: Path) -> None:
    trainer = trainer_of(written(tmp_path), "cpu")
    trainer.step(BATCHES[0], RATE)
    held = trainer.parameters
    before = {name: np.array(array) for name, array in held.items()}
    trainer.step(BATCHES[1], RATE)
    for name, array in held.items():
        np.testing.assert_array_equal(array, before[name])
        assert not np.array_equal(trainer.parameters[name], before[name])


def test_evaluation_changes_nothing(tmp_path: Path) -> None:
    trainer = trainer_of(written(tmp_path), "cpu")
    first = trainer.evaluate(BATCHES[0])
    assert trainer.step(BATCHES[0], RATE).loss == pytest.approx(first, rel=1e-12)
    assert trainer.evaluate(BATCHES[0]) < first


ROUTER = """
model Routed(width: int = 4, experts: int = 3):
  params:
    table: [7, width]
    gate: [experts, width]
    head: [5, width]

  forward:
    in: ids: [B, int64]
    out: logits: [B, 5]
    graph:
      (ids, table) -> embedding() -> x
      (x, gate) -> moe_router(1, aux_loss_coef=0.5) -> (weights, indices, aux_loss MARK)
      (x, head) -> matmul(transpose=NT) -> logits
"""


@pytest.mark.parametrize("mark", ["", "@gradient(skip)"])
def test_auxiliary_losses(mark: str, tmp_path: Path) -> None:
    """They are part of the loss where gradients go through them, and only told where these are stopped."""
    path = tmp_path / "net.module"
    path.write_text(ROUTER.replace("MARK", mark), encoding="utf-8")
    trainer = trainer_of(path, "cpu", optimizer="sgd", weight_decay=0.0)
    numbers = in_torch(trainer.parameters)
    x = numbers["table"][torch.tensor(BATCHES[0]["ids"])]
    shares = torch.softmax(x @ numbers["gate"].T, -1)
    used = torch.nn.functional.one_hot(shares.argmax(-1), 3).double().mean(0)
    auxiliary = 0.5 * 3 * (used * shares.mean(0)).sum()
    targets = torch.tensor(BATCHES[0]["targets"])
    loss = torch.nn.functional.cross_entropy(x @ numbers["head"].T, targets)
    loss = loss if mark else loss + auxiliary
    loss.backward()
    found = trainer.step(BATCHES[0], 1.0)
    assert found.loss == pytest.approx(loss.item(), rel=1e-10)
    assert found.auxiliary == pytest.approx(auxiliary.item(), rel=1e-10)
    for name, array in trainer.parameters.items():
        gradient = numbers[name].grad
        moved = numbers[name].detach() - (0.0 if gradient is None else gradient)
        np.testing.assert_allclose(array, moved.numpy(), rtol=1e-9, atol=1e-12)


class Convolutions(torch.nn.Module):
    """A small network for images, with statistics of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(1, 3, 3, padding=1), torch.nn.BatchNorm2d(3)
        self.head = torch.nn.Linear(27, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of classes."""
        return self.head(torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2).flatten(1))


@pytest.mark.parametrize("ending", ["sknd", "onnx", "nac", "own.nac"])
def test_graphs_of_other_languages(ending: str, tmp_path: Path) -> None:
    """What has no training graph of its own is differentiated by its formulas."""
    torch.manual_seed(0)
    module = Convolutions().eval()
    x, y = torch.randn(4, 1, 6, 6), torch.tensor([0, 3, 2, 1])
    told: dict[str, Any] = {}
    if ending == "own.nac":
        told = {"loss": torch.nn.functional.cross_entropy, "targets": (y,)}
    graph = lamella.from_torch(module, (x,), **told)
    path = tmp_path / f"net.{ending}"
    lamella.save(lamella.lower(graph, ending) if ending in ("onnx", "nac") else graph, path)
    trainer = Trainer(path)
    image, target = trainer.inputs
    rule = torch.optim.AdamW(module.parameters(), lr=0.01)
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(module(x), y)
        rule.zero_grad()
        loss.backward()
        rule.step()
        found = trainer.step({image: x.numpy(), target: y.numpy()}, 0.01)
        assert found.loss == pytest.approx(loss.item(), rel=1e-5)


def test_what_cannot_be_trained_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no parameter that is trained"):
        trainer_of(written(tmp_path, table=" @frozen", inner=" @frozen", head=" @frozen"))
    with pytest.raises(InputError, match="no optimiser 'adam'"):
        trainer_of(written(tmp_path), optimizer="adam")
    path = tmp_path / "plain.sknd"
    path.write_text(
        "import math; graph plain { @input { x: real[3]; } @output { y: real[3]; } @compose { y = math.exp(x); } }",
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="no variable that could be trained"):
        trainable(path, Options())


WORDS = """
recipe Types:
  output_dtype: fp32
  {field}
model Net(d: int = 4):
  {declaration}
  params:
    w: [d, d] {parameter}
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      (x, w) -> matmul(transpose=NT) -> y {result}
"""


@pytest.mark.parametrize(
    ("place", "word", "message"),
    [
        ("declaration", "@checkpoint(some)", "one of full, selective, none"),
        ("parameter", "@trainable(lr_scal=0.1)", "has no argument 'lr_scal'"),
        ("parameter", "@trainable(lr_scale=-1)", "at least 0"),
        ("parameter", "@shard(diagonal)", "one of column, row"),
        ("result", "@frozen", "it belongs on a tensor parameter"),
        ("field", "output_typ: bf16", "a recipe has no field 'output_typ'"),
        ("field", "scaling_strategy: none", "one of per_tensor"),
    ],
)
def test_words_of_a_text_that_say_nothing_end_a_training(
    tmp_path: Path, place: str, word: str, message: str
) -> None:
    """They would have no effect, and nobody would know."""
    gaps = dict.fromkeys(("field", "parameter", "result"), "") | {"declaration": "@recipe(Types)"}
    path = tmp_path / "net.module"
    path.write_text(WORDS.format(**{**gaps, place: word}), encoding="utf-8")
    with pytest.raises(LamellaError) as caught:
        trainable(path, Options())
    assert "E008" in str(caught.value)
    assert message in str(caught.value)
