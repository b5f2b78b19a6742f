"""What a text says of gradients counts where they are derived from formulas: with adapters, or without a backward."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lamella.base.arrays import Array
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer
from lamella.train.adapters.model import find_adapters
from lamella.train.gradients import trainable
from lamella.train.sources import TrainableGraph

TEXT = """
module Inner(d: int):
  params:
    w: [d, d]
  forward:
    in: (x: [B, T, d], m: [B, T, d] {port})
    out: y: [B, T, d] {out}
    graph:
      (x, w) -> matmul(transpose=NT) -> p
      (p, m) -> mul() -> y

model Net(v: int = 7, d: int = 6):
  params:
    table: [v, d]
    first: [d, d]
    inner: Inner(d)
    head: [v, d]
  forward:
    in: ids: [B, T, int64]
    out: logits: [B, T, v]
    graph:
      (ids, table) -> embedding() -> x
      (x, first) -> matmul(transpose=NT) -> h {h}
      h -> {function}() -> a
      (x, a) -> inner() -> y
      (y, head) -> matmul(transpose=NT) -> logits
      h -> reduce_mean() -> aux_loss {aux}
"""
BATCH = {"ids": np.arange(12).reshape(2, 6) % 7, "targets": np.arange(1, 13).reshape(2, 6) % 7}
WAYS = ("tape", "formula", "lora")


def source(folder: Path, way: str, **marks: str) -> TrainableGraph:
    """The model, its gradients by the backward operators of primitives or by formulas, of all or of adapters."""
    path = folder / f"{len(list(folder.iterdir()))}.module"
    gaps = dict.fromkeys(("port", "out", "h", "aux"), "") | marks
    path.write_text(TEXT.format(**gaps, function="exp" if way == "formula" else "sigmoid"), encoding="utf-8")
    if way != "lora":
        return trainable(path, Options(seed=3, dtype="f64"))
    model = find_adapters(path, Options(adapters=("lora:rank=2,targets=*",), seed=3, dtype="f64"))
    assert model is not None
    return model.trainable


def gradients(graph: TrainableGraph) -> dict[str, Array]:
    trainer = Trainer(graph, StepSettings(is_split=True, dtype="f64"), "reference")
    random = np.random.default_rng(0)
    for name, array in trainer.parameters.items():  # away from the zeros that adapters begin with
        variable = next(key for key in graph.gradients if graph.policy(key).path == name)
        trainer._state[variable] = random.normal(size=array.shape)
    trainer.collect(BATCH)
    return trainer.gradients


def of_first(found: dict[str, Array]) -> list[Array]:
    """The gradients of what belongs to the first product."""
    return [array for name, array in sorted(found.items()) if name.startswith("first")]


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_scaled_clipped_and_skipped(way: str, tmp_path: Path) -> None:
    plain = gradients(source(tmp_path, way, aux="@gradient(skip)"))
    assert of_first(plain)
    half = gradients(source(tmp_path, way, aux="@gradient(skip)", h="@gradient(scale=0.5)"))
    clipped = gradients(source(tmp_path, way, aux="@gradient(skip)", h="@gradient(clip=1e-3)"))
    for mine, whole, small in zip(of_first(half), of_first(plain), of_first(clipped), strict=True):
        np.testing.assert_allclose(mine, 0.5 * whole, rtol=1e-12)
        share = np.linalg.norm(small) / np.linalg.norm(whole)
        assert 0 < share < 0.5
        np.testing.assert_allclose(small, share * whole, rtol=1e-9)
    for marks in ({"h": "@gradient(skip)"}, {"port": "@gradient(skip)"}, {"out": "@gradient(skip)"}):
        found = gradients(source(tmp_path, way, aux="@gradient(skip)", **marks))
        assert not any(array.any() for array in of_first(found)), marks
        others = [array for name, array in found.items() if name.startswith("inner")]
        assert any(array.any() for array in others) == ("out" not in marks)


@pytest.mark.parametrize("way", WAYS)
def test_losses_of_parts_are_added(way: str, tmp_path: Path) -> None:
    """A step of SGD lowers the sum of both losses by its rate times the square of the norm of the gradient."""
    graph = source(tmp_path, way)
    assert graph.auxiliary is not None
    assert len(graph.auxiliary.trained) == 1
    trainer = Trainer(graph, StepSettings("sgd", weight_decay=0.0, clip=1e9, dtype="f64"), "reference")
    trainer._state.update({name: np.full_like(trainer._state[name], 0.3) for name in graph.gradients})
    before = trainer.evaluate(BATCH)
    found = trainer.step(BATCH, 1e-6)
    assert found.auxiliary not in (None, 0.0)
    assert found.loss == pytest.approx(before, rel=1e-12)
    assert found.gradient_norm is not None
    drop = before - trainer.evaluate(BATCH)
    assert drop == pytest.approx(1e-6 * found.gradient_norm**2, rel=1e-3)
    skipped = source(tmp_path, way, aux="@gradient(skip)").auxiliary
    assert skipped is not None
    assert not skipped.trained


def test_probes_look_at_derived_gradients(tmp_path: Path) -> None:
    """Adapters begin with nothing: the gradient of a tensor is that of the model without them."""
    found = []
    for way in ("tape", "lora"):
        graph = source(tmp_path, way, h='@probe("h", capture=grad_full)')
        random = np.random.default_rng(1)
        names = [item.name for item in graph.model.graph.variables if "lora" not in item.name]
        weights = {name: random.normal(size=_shape(graph, name)) for name in sorted(names)}
        model = graph.model
        data = {**(model.data or {}), **weights}
        trainer = Trainer(
            replace(graph, model=replace(model, data=data)), StepSettings(dtype="f64"), "reference"
        )
        trainer.enable_probes()
        trainer.step(BATCH, 0.0)
        values = trainer.get_probe("h").values
        assert values is not None
        assert values.any()
        found.append(values)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)


def _shape(graph: TrainableGraph, name: str) -> tuple[int, ...]:
    tensor = next(item for item in graph.model.graph.variables if item.name == name)
    return tuple(item for item in tensor.shape if isinstance(item, int))
