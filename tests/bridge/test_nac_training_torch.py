"""Modules of PyTorch whose training travels in NAC: steps from the file are those of torch's gradient descent."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import lamella
from lamella import LamellaError
from lamella.base.diagnostic import errors
from lamella.bridge.nac_to_graph.training import check_training
from lamella.lang.nac import File, check, parse, write
from lamella.lang.nac.nodes import Resource
from lamella.pipeline.nac.model import Model
from lamella.pipeline.nac.running import Training
from tests.support.bridge.nac_training import Layers, Network, train_torch

RATE = 0.0625


class Pictures(nn.Module):
    """A convolution, the statistics of its training, and a linear layer that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.normal, self.last = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Linear(12, 4)
        self.last.weight.requires_grad_(False)

    def forward(self, x: Any, scale: Any) -> Any:
        """Logits, which a second input scales."""
        pooled = functional.max_pool2d(functional.relu(self.normal(self.convolution(x))), 2)
        return self.last(pooled.flatten(1)) * scale


class Words(nn.Module):
    """Attention over words, whose table gives the logits too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.normal = nn.Embedding(7, 8), nn.LayerNorm(8)
        self.logits = nn.Linear(8, 7, bias=False)
        self.logits.weight = self.table.weight
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, words: Any) -> Any:
        """The logits of all places."""
        normal = self.normal(self.table(words))
        heads = normal.unflatten(-1, (2, 4)).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return self.logits(functional.gelu(mixed.transpose(1, 2).flatten(2))).flatten(0, 1)


def _layers() -> tuple[Any, tuple[Any, ...], Any, Callable[..., Any]]:
    return Layers(torch.tanh), (torch.randn(5, 4),), torch.randn(5, 3), functional.mse_loss


def _wide() -> tuple[Any, tuple[Any, ...], Any, Callable[..., Any]]:
    module, x = Layers(torch.relu).double(), torch.randn(5, 4, dtype=torch.float64)
    return module, (x,), torch.tensor([0, 1, 2, 2, 1]), functional.cross_entropy


def _pictures() -> tuple[Any, tuple[Any, ...], Any, Callable[..., Any]]:
    given = (torch.randn(2, 1, 6, 6), torch.tensor(0.5))
    return Pictures().eval(), given, torch.tensor([3, 0]), functional.cross_entropy


def _words() -> tuple[Any, tuple[Any, ...], Any, Callable[..., Any]]:
    words = torch.randint(0, 7, (2, 3))
    return Words(), (words,), torch.randint(0, 7, (6,)), functional.cross_entropy


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("draw", [_layers, _wide, _pictures, _words])
def test_steps_from_a_file_are_those_of_torch(
    draw: Callable[[], tuple[Any, tuple[Any, ...], Any, Callable[..., Any]]], tmp_path: Path
) -> None:
    torch.manual_seed(5)
    module, args, target, loss = draw()
    path = tmp_path / "net.nac"
    lamella.save(lamella.from_torch(module, args, loss=loss, targets=(target,)), path)
    assert not lamella.check(path)
    forward = lamella.compile(path)
    arrays = dict(zip(forward.inputs, (item.numpy() for item in args), strict=True))
    wanted = module(*args).detach().numpy()
    np.testing.assert_allclose(forward(**arrays)["output"], wanted, rtol=1e-5, atol=1e-5)
    run = lamella.compile(path, training=True, lr=RATE)
    assert isinstance(run, Training)
    steps = [run(**arrays, **{run.targets[0]: target.numpy()}) for _ in range(3)]
    called = Network("", _spread(module, args), args, target, loss)
    losses, parameters = train_torch(called, 3, RATE)
    close = 1e-6 if wanted.dtype == np.float64 else 1e-5
    np.testing.assert_allclose([out["loss"] for out in steps], losses, rtol=close)
    trained = {name: item for name, item in parameters.items() if name.partition(".")[2] in run.state}
    assert len(trained) == len(run.state) > 2
    for name, array in trained.items():
        found = run.state[name.partition(".")[2]]
        np.testing.assert_allclose(found, array, rtol=close, atol=close)


def _spread(module: Any, args: tuple[Any, ...]) -> Any:
    """The module, called with all arguments at once, whatever is given."""

    class Spread(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, given: Any) -> Any:
            return self.inner(*args)

    return Spread()


def test_only_what_needs_a_gradient_is_trained() -> None:
    torch.manual_seed(5)
    module, args, target, loss = _pictures()
    made = lamella.from_torch(module, args, loss=loss, targets=(target,))
    run = lamella.compile(made, training=True, lr=RATE)
    assert isinstance(run, Training)
    names = {"convolution.weight", "convolution.bias", "normal.weight", "normal.bias", "last.bias"}
    assert run.state.keys() == names
    assert module.convolution.weight.grad is None
    assert module.last.training is False


def test_what_cannot_be_traced_is_told() -> None:
    module, args, target, loss = _layers()
    with pytest.raises(LamellaError, match="fixed shapes"):
        lamella.from_torch(module, args, dynamic={"x": {0: "N"}}, loss=loss, targets=(target,))
    with pytest.raises(LamellaError, match="'targets' cannot have an effect without 'loss'"):
        lamella.from_torch(module, args, targets=(target,))  # type: ignore[call-overload]  # that is the point
    with pytest.raises(LamellaError, match=r"shape \[5, 3\]"):
        lamella.from_torch(module, args, loss=lambda y, t: y - t, targets=(target,))
    with pytest.raises(LamellaError, match="targets are tensors"):
        lamella.from_torch(module, args, loss=loss, targets=(1.0,))
    with pytest.raises(LamellaError, match="depends on no parameter"):
        lamella.from_torch(module.requires_grad_(False), args, loss=loss, targets=(target,))


# --- the resources ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trainable() -> Model:
    """A file with a training graph in its resources."""
    torch.manual_seed(5)
    module, args, target, loss = _layers()
    return lamella.from_torch(module, args, loss=loss, targets=(target,))


def resource(file: File, name: str) -> bytes:
    """What a resource holds."""
    return next(bytes(item.data) for item in file.resources if item.name == name)


def with_resource(file: File, name: str, data: bytes) -> File:
    """The file with another content of a resource."""
    changed = [Resource(name, data) if item.name == name else item for item in file.resources]
    return replace(file, resources=tuple(changed))


def notes(file: File) -> dict[str, Any]:
    """What `training.json` says."""
    found: dict[str, Any] = json.loads(resource(file, "training.json"))
    return found


def found_in(file: File, **changes: object) -> set[str]:
    """The codes of what is wrong after changes of `training.json`."""
    data = json.dumps({**notes(file), **changes}).encode()
    damaged = with_resource(file, "training.json", data)
    return {item.code for item in errors(check(damaged)) or errors(check_training(damaged))}


def test_the_resources_say_what_the_documentation_says(trainable: Model) -> None:
    said, graph = notes(trainable.file), parse(resource(trainable.file, "training.nac")).file
    assert said["format"] == 1
    names = {"first.weight", "first.bias", "second.weight", "second.bias"}
    assert set(said["gradients"]) == set(said["parameters"].values()) == names
    assert len(said["targets"]) == 1
    assert list(said["inputs"].values()) == ["x"]
    assert len(graph.inputs) == 6
    assert not graph.parameters
    assert graph.header.outputs == 5


def test_damaged_notes_are_told(trainable: Model) -> None:
    said = notes(trainable.file)
    first, second = sorted(said["gradients"])[:2]
    swapped = {**said["gradients"], first: said["gradients"][second], second: said["gradients"][first]}
    assert found_in(trainable.file) == set()
    assert found_in(trainable.file, gradients=swapped) == {"NAC276"}
    assert found_in(trainable.file, gradients={"nobody": said["loss"]}) == {"NAC284"}
    assert found_in(trainable.file, gradients={first: "nothing"}) == {"NAC284"}
    assert found_in(trainable.file, loss="nothing") == {"NAC284"}
    assert found_in(trainable.file, targets=[]) == {"NAC284"}
    assert found_in(trainable.file, saved={said["targets"][0]: 0}) == {"NAC281"}
    assert found_in(trainable.file, targets=[], saved={said["targets"][0]: 99}) == {"NAC284"}
    assert found_in(trainable.file, lr=float("inf")) == {"NAC281"}
    assert found_in(trainable.file, format=2) == {"NAC281"}
    moved = dict(zip(said["parameters"], reversed(said["parameters"].values()), strict=True))
    assert found_in(trainable.file, parameters=moved) == {"NAC285"}


def test_a_training_graph_is_not_trained_itself(trainable: Model) -> None:
    outer = trainable.file
    inner = replace(parse(resource(outer, "training.nac")).file, resources=outer.resources)
    data = write(inner)
    assert {item.code for item in check(with_resource(outer, "training.nac", data))} == {"NAC283"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["format", "targets", "inputs", "parameters", "saved", "loss", "gradients", "lr"])


@settings(max_examples=60)
@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_any_notes_are_answered(trainable: Model, changes: dict[str, object]) -> None:
    assert all(code.startswith("NAC") for code in found_in(trainable.file, **changes))


def test_saved_results_of_the_program_are_taken(trainable: Model, tmp_path: Path) -> None:
    """What the graph computes from the input may be handed to it as a result of the program."""
    file, said = trainable.file, notes(trainable.file)
    (name,) = said["inputs"]
    place = next(item.index for item in file.inputs if item.name == "x")
    data = json.dumps({**said, "inputs": {}, "saved": {name: place}, "lr": RATE}).encode()
    saved = replace(trainable, file=with_resource(file, "training.json", data))
    one, other = lamella.compile(trainable, training=True, lr=RATE), lamella.compile(saved, training=True)
    x, target = np.ones((5, 4), np.float32), np.ones((5, 3), np.float32)
    for _ in range(2):
        assert one(x=x, target_0=target) == other(x=x, target_0=target)
