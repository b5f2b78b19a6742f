"""PyTorch as the judge: the same module, the same inputs, every result by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.graph.model import Model
from tests.support.bridge.torch_models.transformer_models import Sample

MORE = 2
"""How much longer an open extent is than the one that was exported."""


def results_of(value: Any, path: str = "") -> dict[str, Array]:
    """All tensors of a result, named after keys and places."""
    if isinstance(value, torch.Tensor):
        return {path or "output": value.detach().numpy()}
    if isinstance(value, Mapping):
        parts = list(value.items())
    else:
        path, parts = path or "output", list(enumerate(value))
    found = (results_of(item, f"{path}_{key}" if path else str(key)) for key, item in parts)
    return {name: array for group in found for name, array in group.items()}


def stretched(sample: Sample) -> dict[str, Any]:
    """The inputs with open extents longer than they were."""
    return {name: _longer(item, sample.dynamic.get(name, {})) for name, item in sample.inputs.items()}


def _longer(tensor: Any, axes: Mapping[int, str]) -> Any:
    for axis in axes:
        tensor = torch.cat([tensor, tensor.narrow(axis, 0, MORE)], axis)
    return tensor


def largest_error(model: Model, sample: Sample, inputs: Mapping[str, Any]) -> float:
    """The largest difference of any result, as a part of the largest number in it; infinite where names differ."""
    found = compile_model(model)(**{name: item.numpy() for name, item in inputs.items()})
    with torch.no_grad():
        wanted = results_of(sample.module(**inputs))
    if list(found) != list(wanted) or any(found[name].shape != item.shape for name, item in wanted.items()):
        return float("inf")
    return max(float(np.abs(found[name] - item).max() / np.abs(item).max()) for name, item in wanted.items())
