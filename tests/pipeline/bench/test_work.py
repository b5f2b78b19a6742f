"""The work of graphs, counted from formulas: torch counts the same products, NumPy the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import lamella
from lamella.bridge.graph_to_kernels import flatten
from lamella.graph.model import Model
from lamella.pipeline.bench.work import GraphWork, count_graph

RANDOM = np.random.default_rng(7)


def number(low: int, high: int) -> int:
    return int(RANDOM.integers(low, high + 1))


def convolution() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    groups = number(1, 3)
    inner, outer = groups * number(1, 4), groups * number(1, 4)
    layer = nn.Conv2d(inner, outer, number(1, 3), number(1, 2), 0, number(1, 2), groups)
    return layer, (torch.randn(number(1, 3), inner, number(5, 9), number(5, 9)),)


def product() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    inner = number(1, 20)
    return nn.Linear(inner, number(1, 20)), (torch.randn(number(1, 5), number(1, 5), inner),)


def counted(module: Any, inputs: tuple[torch.Tensor, ...]) -> GraphWork:
    model = lamella.from_torch(module.eval(), inputs)
    assert isinstance(model, Model)
    return count_graph(flatten(model), {})


@pytest.mark.parametrize("make", [convolution, product] * 4)
def test_products_are_those_that_torch_counts(make: Any) -> None:
    module, inputs = make()
    with FlopCounterMode(display=False) as judge, torch.no_grad():
        module(*inputs)
    found = counted(module, inputs)
    assert 2 * found.macs == judge.get_total_flops()
    weights = sum(item.numel() * item.element_size() for item in module.parameters())
    given = sum(item.numel() * item.element_size() for item in inputs)
    # a stride may pass over pixels
    assert found.fixed == weights + given if make is product else weights < found.fixed <= weights + given


def test_a_gather_reads_the_rows_that_it_takes() -> None:
    tokens = torch.randint(0, 1000, (2, 3))
    found = counted(nn.Embedding(1000, 8), (tokens,))
    assert found == GraphWork(0, 2 * 3 * 8 * 4 + tokens.numel() * 8)


class Twice(nn.Module):
    """One weight in two products."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight) @ self.weight.t()


def test_a_weight_counts_once_however_often_it_is_read() -> None:
    assert counted(Twice(), (torch.randn(2, 4),)) == GraphWork(2 * 2 * 4 * 4, 4 * (16 + 8))


def test_a_composed_operation_has_the_work_of_its_components() -> None:
    module, inputs = nn.MultiheadAttention(8, 2, batch_first=True).eval(), (torch.randn(2, 5, 8),) * 3
    model = lamella.from_torch(module, inputs)
    assert isinstance(model, Model)
    assert count_graph(model, {}).macs == count_graph(flatten(model), {}).macs
    # q, k, v and the output; scores and what they mix
    products = 4 * 2 * 5 * 8 * 8 + 2 * (2 * 2 * 5 * 5 * 4)
    assert products <= count_graph(model, {}).macs <= 1.2 * products
