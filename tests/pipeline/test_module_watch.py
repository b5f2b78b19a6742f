"""Hooks and probes of a model while it runs: what they see, what they change, and that nobody who does not ask pays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.lang.module.annotations import HOOK_POINTS
from lamella.pipeline.module.watch import WatchedModel

TEXT = """
module Layer(d: int):
  params:
    w: [d, d]
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      (x, w) -> matmul(transpose=NT) -> h @hook(AfterMLPUpProjection, mode=modify) @probe("h", capture=histogram)
      h -> relu() -> a @hook(AfterMLPActivation, mode=replace, priority=2)
      (x, a) -> add() -> y @hook(AfterResidualAdd) @probe("y", capture=full, frequency=2)

model Net(n: int = 2, d: int = 4):
  params:
    layers: [n] x Layer(d)
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      x -> StackedBlocks(layers, n) -> z @probe("wild", condition="max(z) > 1000.0") @probe("some", capture=sample)
      z -> relu() -> y @hook(AfterLMHead, mode=replace)
"""
X = np.arange(12, dtype=np.float32).reshape(3, 4) / 7


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("watch") / "net.module"
    found.write_text(TEXT, encoding="utf-8")
    return found


def open_model(path: Path, backend: str = "reference") -> WatchedModel:
    return lamella.watch(path, backend=backend, seed=3)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_hook_sees_each_layer_and_changes_nothing(path: Path, backend: str) -> None:
    model, seen = open_model(path, backend), list[tuple[int | None, Array]]()
    before = model(x=X)["y"]
    hook = model.register_hook("AfterResidualAdd", lambda tensor, layer, stream: seen.append((layer, tensor)))
    after = model(x=X)
    assert list(after) == ["y"]
    assert np.array_equal(before, after["y"])
    assert [layer for layer, _ in seen] == [0, 1]
    assert np.array_equal(np.maximum(seen[1][1], 0), before)
    assert not seen[0][1].flags.writeable
    hook.remove()
    assert np.array_equal(model(x=X)["y"], before)
    assert len(seen) == 2


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_hooks_modify_and_replace(path: Path, backend: str) -> None:
    """By NumPy: the first layer's product is doubled in place, the second one's activation is replaced by ones."""
    model = open_model(path, backend)
    w = [model.executable.state[f"layers.{number}.w"] for number in range(2)]

    def double(tensor: Array, layer: int | None, stream: object) -> None:
        if layer == 0:
            tensor *= 2

    def ones(tensor: Array, layer: int | None, stream: object) -> Array:
        return np.ones_like(tensor) if layer == 1 else tensor

    model.register_hook("AfterMLPUpProjection", double)
    model.register_hook("AfterMLPActivation", ones)
    model.register_hook("AfterLMHead", lambda tensor, layer, stream: tensor + 1)
    first = X + np.maximum(2 * (X @ w[0].T), 0)
    wanted = np.maximum(first + 1, 0) + 1
    assert np.allclose(model(x=X)["y"], wanted, rtol=1e-5)


def test_nobody_watches_and_nothing_is_different(path: Path) -> None:
    """The graph that runs is that of the model, operation by operation."""
    model, plain = open_model(path), lamella.compile(path, backend="reference", seed=3)
    assert model.executable.model.graph == plain.model.graph  # type: ignore[attr-defined]
    hook = model.register_hook("AfterLMHead", lambda tensor, layer, stream: tensor)
    model(x=X)
    assert model.executable.model.graph != plain.model.graph  # type: ignore[attr-defined]
    hook.remove()
    model(x=X)
    assert model.executable.model.graph == plain.model.graph  # type: ignore[attr-defined]


def test_probes_keep_what_they_say(path: Path) -> None:
    model = open_model(path)
    with pytest.raises(InputError, match="has seen nothing yet"):
        model.get_probe("y")
    model.enable_probes()
    outputs = model(x=X)
    found = model.get_probe("y", layer=1)
    assert np.array_equal(np.maximum(found.values, 0), outputs["y"])  # type: ignore[arg-type]
    assert found.mean == pytest.approx(float(np.mean(found.values)))  # type: ignore[arg-type]
    assert found.norm == pytest.approx(float(np.linalg.norm(found.values)))  # type: ignore[arg-type]
    histogram = model.get_probe("h", layer=0)
    assert histogram.counts is not None
    assert histogram.counts.sum() == X.size
    sample = model.get_probe("some")
    assert sample.values is not None
    assert found.values is not None
    assert np.isin(sample.values, found.values).all()
    model(x=2 * X)
    assert model.get_probe("y", layer=1) is found  # every second call
    assert model.get_probe("h", layer=0) is not histogram
    model(x=1e6 * X)
    assert model.get_probe("wild").max > 1000
    model.disable_probes()
    before = model.get_probe("some")
    model(x=X)
    assert model.get_probe("some") is before


REFUSED = {
    "no such point": ("AfterMLPActivatoin", None, "no hook point"),
    "more than the model allows": ("AfterResidualAdd", "replace", "cannot 'replace'"),
    "no mode": ("AfterLMHead", "rewrite", "cannot 'rewrite'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, path: Path) -> None:
    point, mode, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        open_model(path).register_hook(point, lambda tensor, layer, stream: None, mode)


def test_what_a_hook_gives_has_the_shape_of_what_it_got(path: Path) -> None:
    model = open_model(path)
    hook = model.register_hook("AfterLMHead", lambda tensor, layer, stream: tensor[:1])
    with pytest.raises(InputError, match=r"shape \[1, 4\], not \[3, 4\]"):
        model(x=X)
    hook.remove()
    model.register_hook("AfterLMHead", lambda tensor, layer, stream: None)
    with pytest.raises(InputError, match="gave nothing"):
        model(x=X)


def test_the_library_has_all_points_of_the_specification(tmp_path: Path) -> None:
    """A mixture of experts with norms of queries shows all sixteen, and each is called in its place."""
    path = tmp_path / "all.module"
    path.write_text(LIBRARY, encoding="utf-8")
    model = lamella.watch(path, backend="reference", seed=1)
    seen: set[str] = set()

    def noting(point: str) -> Callable[[Array, int | None, object], None]:
        return lambda tensor, layer, stream: seen.add(point)

    for point in HOOK_POINTS:
        model.register_hook(point, noting(point))
    model(token_ids=np.arange(6).reshape(2, 3))
    assert seen == set(HOOK_POINTS)


LIBRARY = """
from std.blocks import DenseTransformerBlock
from std.modules import MoE

model All(d: int = 8):
  params:
    embedding: [11, d]
    dense: DenseTransformerBlock(d, 2, 1, 12, 16, use_qk_norm=true)
    experts: MoE(d, 12, 4, 2)
  forward:
    in: token_ids: [B, T, int64]
    out: logits: [B, T, 11]
    graph:
      (token_ids, embedding) -> embedding() -> x @hook(AfterEmbedding)
      zeros([B, T, d]) -> none
      (x, none) -> dense() -> (y, residual)
      y -> experts() -> z @hook(BeforeLMHead)
      (z, embedding) -> matmul(transpose=NT) -> logits @hook(AfterLMHead)
"""
