"""A training step of GPT-2-small: the loss and all its gradients, beside PyTorch eager in the same process.

usage: python -m bench.gradients [--layers N] [--batch B] [--length T] [--threads N] [--top N]

The graph of the loss is differentiated by its formulas (`graph.gradient`); weights are inputs, as they change from step
to step. Seconds are the least of some rounds taken in turns, of CPU time where one thread computes.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import numpy as np
import torch
from torch import Tensor, nn

import lamella
from bench.measuring import beside, row
from bench.networks import language
from lamella.backend.executor import GraphExecutable
from lamella.graph.gradient import differentiate
from lamella.graph.model import Model
from lamella.graph.nodes import tensors
from lamella.kernels.launches import LaunchTime

WORDS = 50257
ROUNDS = 5


class Loss(nn.Module):
    """GPT-2-small with its tied head and the mean cross-entropy of the next tokens."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, language.WIDTH)
        self.places = nn.Embedding(1024, language.WIDTH)
        self.layers = nn.ModuleList(
            language.Layer(before=True, causal=True, tanh=True) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(language.WIDTH)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The loss."""
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = self.norm(x) @ self.words.weight.t()
        return nn.functional.cross_entropy(logits.reshape(-1, WORDS), targets.reshape(-1))


def with_gradients(loss: Loss, example: tuple[Tensor, Tensor]) -> tuple[Model, list[str]]:
    """The graph of the gradients, its weights as inputs, and their names in the order of the outputs."""
    model = lamella.from_torch(loss, example)
    assert isinstance(model, Model)
    names = [item.name for item in model.graph.variables if item.element.is_float]
    back = differentiate(model, names)
    inputs = (*back.graph.inputs, *back.graph.variables)
    return replace(back, graph=replace(back.graph, inputs=inputs, variables=())), names


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("layers", 12), ("batch", 4), ("length", 128), ("threads", 1), ("top", 12)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(given.threads)
    loss = Loss(given.layers)
    tokens, targets = (torch.randint(0, WORDS, (given.batch, given.length)) for _ in range(2))
    model, names = with_gradients(loss, (tokens, targets))
    run = lamella.compile(model, backend="cpu", threads=given.threads)
    assert isinstance(run, GraphExecutable)
    weights = dict(loss.named_parameters())
    fed = {name: weights[name].detach().numpy() for name in names}
    first, second, seed = (item.name for argument in model.graph.inputs[:3] for item in tensors(argument))
    fed |= {first: tokens.numpy(), second: targets.numpy(), seed: np.ones((), np.float32)}

    def ours() -> object:
        return run(**fed)

    def theirs() -> None:
        loss.zero_grad(set_to_none=True)
        loss(tokens, targets).backward()

    found = run(**fed)
    theirs()
    errors = [
        float(np.abs(made - weights[name].grad.numpy()).max() / np.abs(weights[name].grad.numpy()).max())
        for name, made in zip(names, found.values(), strict=True)
    ]
    row("largest difference of a gradient, relative", f"{max(errors):.1e}", "PyTorch eager")
    clock = time.thread_time if given.threads == 1 else time.perf_counter
    mine, peer = in_turns((ours, theirs), clock)
    what = f"GPT-2-small, {given.layers} layers, {given.batch} x {given.length}, forward and backward"
    row(what, f"{mine * 1000:.0f} ms", beside(mine, peer, "PyTorch eager"))
    for launch in slowest(run.profile(fed))[: given.top]:
        row(f"  {launch.kernel}", f"{launch.seconds * 1000:.1f} ms", launch.operator)


def in_turns(works: tuple[Callable[[], object], ...], clock: Callable[[], float]) -> list[float]:
    """The least seconds of each work, all of them in each round."""
    found = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for place, work in enumerate(works):
            start = clock()
            work()
            found[place] = min(found[place], clock() - start)
    return found


def slowest(times: list[LaunchTime]) -> list[LaunchTime]:
    """Launches, the longest first."""
    return sorted(times, key=lambda item: -item.seconds)


if __name__ == "__main__":
    main()
