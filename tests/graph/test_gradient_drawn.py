"""Derived gradients in 64 bits on drawn shapes and attributes: the limit of differences, and what torch finds."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress

import numpy as np
import pytest
import torch

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.graph.gradient import differentiate
from lamella.graph.model import Model
from lamella.graph.nodes import tensors
from lamella.ops.gradient import STOPPING
from tests.graph.test_gradient import CALLS, WITHOUT
from tests.support.bridge.operators.calls import Invocation
from tests.support.graph.drawn_gradients import DrawnCall, drawn_call
from tests.support.graph.torch_functions import ALONE, torch_function

FUZZ = int(os.environ.get("LAMELLA_FUZZ", "0"))
SOME = 12
"""Draws of each operator in a long run."""


def grouped() -> dict[str, list[Invocation]]:
    """The calls of each operator that tests list."""
    found: dict[str, list[Invocation]] = defaultdict(list)
    for item in CALLS:
        found[item.operator].append(item)
    return found


LISTED = grouped()


@pytest.mark.parametrize("operator", LISTED)
def test_a_drawn_gradient_is_right(operator: str) -> None:
    judge(operator, 0)


@pytest.mark.fuzz
@pytest.mark.parametrize("operator", LISTED if FUZZ else ())
def test_many_drawn_gradients_are_right(operator: str) -> None:
    for seed in range(1, 1 + min(SOME, FUZZ)):
        judge(operator, seed)


def judge(operator: str, seed: int) -> None:
    """One drawn call, by all that can judge it."""
    drawn = drawn_call(LISTED[operator], seed)
    if not drawn.is_judged:
        return
    if operator in WITHOUT:
        with suppress(LamellaError):  # what the finding says is tested elsewhere
            drawn.gradients()
        return
    found = drawn.gradients()
    if operator not in STOPPING:
        drawn.judge_by_differences(found, np.random.default_rng(seed))
    function = torch_function(operator)
    if function is None:
        return
    try:
        drawn.judge_by_torch(found, function)
    except (TypeError, RuntimeError):  # torch refuses some drawn calls, and none of those that tests list
        listed = DrawnCall(drawn.origin)
        listed.judge_by_torch(listed.gradients(), function)


def test_torch_judges_what_it_can() -> None:
    """Most operators; those that it cannot be asked about are told, and are operators."""
    judged = [name for name in LISTED if torch_function(name) is not None]
    assert len(judged) > 290
    assert set(ALONE) <= set(LISTED)


def test_no_gradient_goes_through_what_is_detached() -> None:
    """As in the straight-through estimator: the value is rounded, the gradient is that of the identity."""

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            y = x * w
            return (y + (torch.round(y) - y).detach()) * w.detach()

    x, w = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    model = lamella.from_torch(Net(), (x, w))
    assert isinstance(model, Model)
    back = lamella.compile(differentiate(model, ["x", "w"]), backend="reference", dtype="f64")
    x.requires_grad_()
    w.requires_grad_()
    made = Net()(x, w)
    seed = torch.randn(made.shape, dtype=torch.float64)
    theirs = torch.autograd.grad(made, (x, w), seed)
    (name,) = (item.name for given in model.graph.outputs for item in tensors(given))
    found = back(x=x.detach().numpy(), w=w.detach().numpy(), **{f"d_{name}": seed.numpy()})
    for mine, other in zip(found.values(), theirs, strict=True):
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-12)
