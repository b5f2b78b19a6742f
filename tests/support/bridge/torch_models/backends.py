"""A module of PyTorch on three backends: the reference, the kernels of the cpu, and the machine of NAC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

import lamella
from lamella.base.arrays import Array

BACKENDS = ("reference", "cpu", "nacvm")


class Functions(nn.Module):
    """The results of several functions of the same tensors, under names of their own."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__()
        self.functions = dict(functions)

    def forward(self, *given: torch.Tensor) -> dict[str, Any]:
        return {name: function(*given) for name, function in self.functions.items()}


class OnBackends:
    """What a module gives on each backend, exported once."""

    def __init__(
        self, module: nn.Module, example: tuple[torch.Tensor, ...], folder: Path, seed: int = 0
    ) -> None:
        model = lamella.from_torch(module, example)
        path = folder / "model.nac"
        lamella.save(model, path)
        self._runs: dict[str, Any] = {
            name: lamella.compile(path if name == "nacvm" else model, backend=name, seed=seed)
            for name in BACKENDS
        }

    def __call__(self, *given: torch.Tensor) -> dict[str, dict[str, Array]]:
        """The results by backend and by name."""
        found = {}
        for name, run in self._runs.items():
            named = zip(run.inputs, given, strict=True)
            found[name] = dict(run(**{word: item.numpy() for word, item in named}))
        return found
