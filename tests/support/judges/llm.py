"""Operators of `llm` against torch: what it computes, and what its automatic gradients give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.judges.aten import tensor_of, torch
from tests.support.judges.draws import Array, arrays
from tests.support.judges.harness import Input, Result, near, run
from tests.support.judges.registry import Given

__all__ = ("agree", "differentiate", "draw", "tensor_of", "torch")

Data = st.DataObject
TOLERANCE = 1e-6


def draw(data: Data, *shape: int, low: int = -3, high: int = 3) -> Array:
    """An array of 64-bit reals."""
    found: Array = data.draw(arrays(shape, ("float64",), low, high))
    return found


def agree(
    name: str,
    inputs: Sequence[Input],
    expected: Any,
    types: Sequence[str] = (),
    /,
    **attributes: Given,
) -> None:
    """See that an operator gives what torch gave: one tensor, or several."""
    results = run(f"llm.{name}", inputs, attributes, types)
    found = [item for result in results for item in _items(result)]
    wanted = list(expected) if isinstance(expected, tuple | list) else [expected]
    assert len(found) == len(wanted)
    for array, other in zip(found, wanted, strict=True):
        near(array, _array(other), TOLERANCE)


def differentiate(
    function: Callable[..., Any],
    inputs: Sequence[Input],
    backs: Sequence[Array | None],
    wanted: Sequence[int],
) -> tuple[list[Array], list[Array]]:
    """What torch gives for a function, and the gradients of the wanted inputs, from what comes back to each result."""
    leaves = [tensor_of(item) for item in inputs]
    for place in wanted:
        leaves[place].requires_grad_()
    outputs = function(*leaves)
    results = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    pairs = [(result, back) for result, back in zip(results, backs, strict=False) if back is not None]
    total = sum((result * tensor_of(back)).sum() for result, back in pairs)
    found = torch.autograd.grad(total, [leaves[place] for place in wanted], allow_unused=True)
    zeros = [torch.zeros_like(leaves[place]) for place in wanted]
    grads = [zero if grad is None else grad for grad, zero in zip(found, zeros, strict=True)]
    return [_array(item) for item in results], [_array(item) for item in grads]


def _array(value: Any) -> Array:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _items(result: Result) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)
