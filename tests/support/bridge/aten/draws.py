"""Drawn tensors, shapes, dimensions and numbers, in all the types that torch knows and we compute with."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from lamella.bridge.aten.nodes import AtenSchema
from tests.support.bridge.aten.judge import torch

Case: TypeAlias = dict[str, Any]
Draw: TypeAlias = Callable[[Random, AtenSchema], Case]

REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int64, torch.int32, torch.int8, torch.uint8)
ANY = (*REALS, *WHOLE, torch.bool)
USUAL = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)


FLOATING = ("aten.relu6", "aten.hardtanh", "aten.threshold")
"""What torch computes for integers too, and we do not."""


def shape(random: Random, least: int = 0, most: int = 4, low: int = 1, high: int = 4) -> list[int]:
    """A shape; one in ten has an empty dimension."""
    rank = random.randint(least, most)
    return [0 if random.random() < 0.02 else random.randint(low, high) for _ in range(rank)]


def broadcast(random: Random, whole: list[int]) -> list[int]:
    """A shape that is broadcast to another."""
    kept = whole[random.randint(0, len(whole)) if random.random() < 0.4 else 0 :]
    return [1 if random.random() < 0.25 else extent for extent in kept]


def tensor(random: Random, extents: list[int], dtype: Any, low: float = -4, high: float = 4) -> Any:
    """A tensor of quarters, so that equal elements are common and sums are exact."""
    count = 1
    for extent in extents:
        count *= extent
    if dtype == torch.bool:
        return torch.tensor([random.random() < 0.5 for _ in range(count)], dtype=dtype).reshape(extents)
    floor = max(low, 0) if dtype == torch.uint8 else low
    if dtype in WHOLE:
        values: list[float] = [random.randint(int(floor), int(high)) for _ in range(count)]
    else:
        values = [random.randint(int(4 * low), int(4 * high)) / 4 for _ in range(count)]
    return torch.tensor(values, dtype=dtype).reshape(extents)


def number(random: Random) -> Any:
    """A number of any kind."""
    return random.choice((True, 2, 3, -1, 0.5, -1.5, 2.0))


def axis(random: Random, rank: int) -> int:
    """A dimension, counted from either end."""
    return random.randint(-rank, rank - 1) if rank else random.choice((0, -1))


def axes(random: Random, rank: int, least: int = 0) -> list[int]:
    """Some dimensions."""
    picked = random.sample(range(rank), random.randint(min(least, rank), rank))
    return [item - rank if random.random() < 0.3 else item for item in picked]
