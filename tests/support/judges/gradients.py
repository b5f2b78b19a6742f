"""Backward operators against the automatic gradients of torch, in 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.support.judges.aten import tensor_of, torch
from tests.support.judges.draws import Array
from tests.support.judges.harness import Input, near, run
from tests.support.judges.registry import Given

__all__ = ("draw_normal", "gives", "pull", "torch")

TOLERANCE = 1e-9


def draw_normal(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    """Arrays of normal numbers in 64 bits."""
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in shapes]


def gives(
    operator: str, inputs: Sequence[Input], expected: Sequence[Any], attributes: Mapping[str, Given] = {}
) -> list[Array]:
    """See that an operator gives what torch gave, in types, shapes and numbers; its outputs."""
    found = [item for item in run(operator, inputs, attributes) if isinstance(item, np.ndarray)]
    assert len(found) == len(expected)
    for array, other in zip(found, expected, strict=True):
        near(array, other.detach().numpy() if torch.is_tensor(other) else other, TOLERANCE)
    return found


def pull(function: Callable[..., Any], inputs: Sequence[Array], backs: Sequence[Array]) -> list[Any]:
    """What the automatic gradients of torch give for each input, from what comes back to the results of a function."""
    leaves = [tensor_of(item).requires_grad_() for item in inputs]
    results = function(*leaves)
    outputs = results if isinstance(results, tuple) else (results,)
    found = torch.autograd.grad(outputs, leaves, [tensor_of(item) for item in backs], allow_unused=True)
    return [
        torch.zeros_like(leaf) if item is None else item for leaf, item in zip(leaves, found, strict=True)
    ]
