"""Modules of PyTorch that change their buffers: from the export to tokens, one call after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lamella
from tests.support.bridge.gpt_example import TOKEN, example, logits

STEPS = 24
Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


class Keeping(nn.Module):
    """Writes its input at a position into what it keeps, in one of several ways."""

    kept: torch.Tensor
    place: torch.Tensor
    fixed: torch.Tensor

    def __init__(self, write: Write) -> None:
        super().__init__()
        self.write = write
        self.register_buffer("kept", torch.arange(12.0).reshape(4, 3))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("fixed", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.write(self.kept, self.place, x)
        self.place.add_(1)
        return (self.kept * self.fixed).sum(0)


def _put(kept: torch.Tensor, place: torch.Tensor, x: torch.Tensor) -> None:
    kept[place] = x


WAYS: Mapping[str, Write] = {
    "index_copy": lambda kept, place, x: kept.index_copy_(0, place, x),
    "index_put": _put,
    "index_put that adds": lambda kept, place, x: kept.index_put_((place,), x, accumulate=True),
    "scatter": lambda kept, place, x: kept.scatter_(0, place.expand(1, 3), x),
    "index_add": lambda kept, place, x: kept.index_add_(0, place, x),
    "where": lambda kept, place, x: kept.copy_(torch.where(torch.arange(4)[:, None] == place, x, kept)),
}


def saved(module: nn.Module, sample: torch.Tensor, path: Path) -> Path:
    """A module as a file."""
    lamella.save(lamella.from_torch(module, sample), path)
    return path


@pytest.mark.parametrize("way", WAYS)
def test_mutated_buffers_are_states(way: str, tmp_path: Path) -> None:
    """What PyTorch changes in place is updated; four calls give what four calls of the module give."""
    module = Keeping(WAYS[way])
    model = lamella.from_torch(module, torch.zeros(1, 3))
    assert {item.variable.name for item in model.graph.updates} == {"kept", "place"}
    run: Any = lamella.compile(saved(module, torch.zeros(1, 3), tmp_path / "kept.nac"))
    for number in range(4):
        x = torch.randn(1, 3, generator=torch.Generator().manual_seed(number))
        with torch.no_grad():
            wanted = module(x)
        (found,) = run(x=x.numpy()).values()
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-6)
    np.testing.assert_allclose(run.state["kept"], module.kept.numpy(), rtol=1e-6)
    assert run.state["place"].tolist() == [4]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, int, Path]:
    """The GPT of the examples, the number of its heads, and its file."""
    module = example()
    path = tmp_path_factory.mktemp("gpt") / "gpt.nac"
    model = module.make()
    return model, module.HEADS, saved(model, TOKEN, path)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_tokens_are_those_of_a_full_computation(gpt: tuple[Any, int, Path], backend: str | None) -> None:
    """One token at a time with what is kept gives the logits of all tokens at once without it."""
    model, heads, path = gpt
    run: Any = lamella.compile(path, backend)
    tokens = [1]
    for _ in range(STEPS if backend is None else 4):
        found = run(token=np.array([tokens[-1:]]))["logits"]
        wanted = logits(model, tokens, heads)
        np.testing.assert_allclose(found[0, 0], wanted, atol=1e-5, rtol=1e-5)
        tokens.append(int(wanted.argmax()))
        assert int(found.argmax()) == tokens[-1]
    assert len(set(tokens)) > 2
    assert run.state["position"].tolist() == [len(tokens) - 1]


def test_a_reset_forgets_the_tokens(gpt: tuple[Any, int, Path]) -> None:
    model, heads, path = gpt
    run: Any = lamella.compile(path)
    first = [run(token=np.array([[token]]))["logits"] for token in (3, 1, 4)]
    run.reset()
    assert not any(values.any() for values in run.state.values())
    again = [run(token=np.array([[token]]))["logits"] for token in (3, 1, 4)]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(again[-1][0, 0], logits(model, [3, 1, 4], heads), atol=1e-5)


@pytest.mark.parametrize("ending", ["nacs", "nac"])
def test_files_that_are_written_again_keep_their_states(
    gpt: tuple[Any, int, Path], ending: str, tmp_path: Path
) -> None:
    _, _, path = gpt
    other = tmp_path / f"other.{ending}"
    lamella.save(lamella.load(path), other)
    run: Any = lamella.compile(other)
    wanted: Any = lamella.compile(path)
    for token in (5, 6):
        np.testing.assert_array_equal(
            run(token=np.array([[token]]))["logits"], wanted(token=np.array([[token]]))["logits"]
        )


def test_a_full_cache_is_told_and_stays(gpt: tuple[Any, int, Path]) -> None:
    run: Any = lamella.compile(gpt[2])
    length = run.state["blocks.0.attention.keys"].shape[2]
    for token in range(length):
        run(token=np.array([[token]]))
    before = {name: values.copy() for name, values in run.state.items()}
    with pytest.raises(lamella.LamellaError, match=str(length)):
        run(token=np.array([[0]]))
    for name, values in before.items():
        np.testing.assert_array_equal(run.state[name], values)
