"""Random networks by kernels give what the reference gives in 64 bits: 20 000 of them in `make fuzz`."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from lamella.graph.model import Model
from tests.support.bridge.layers import (
    RandomNetwork,
    compare,
    random_attention,
    random_image_network,
    random_row_network,
    random_wide_network,
    reference,
    run_network,
)

SHARE = 20
"""Mutations that one network stands for: it is compiled and run on two backends."""
IS_LONG = "LAMELLA_FUZZ" in os.environ
SEED = int(os.environ.get("LAMELLA_SEED", time.time_ns() if IS_LONG else 0))
WAYS: dict[str, Callable[[int, int], tuple[Model, RandomNetwork]]] = {
    "images": random_image_network,
    "wide": random_wide_network,
    "rows": random_row_network,
    "attention": lambda seed, _: random_attention(seed),
}


@pytest.mark.parametrize("way", WAYS)
def test_networks_give_the_numbers_of_the_reference(way: str, mutations: int) -> None:
    chance = random.Random(f"{way} {SEED}")
    for _ in range(mutations // SHARE if IS_LONG else 3):
        seed, steps = chance.randrange(1 << 40), chance.randint(1, 6)
        model, net = WAYS[way](seed, steps)
        try:
            compare(run_network(model, net), reference(model, net))
        except Exception as problem:
            raise AssertionError(f"{way} network {seed} of {steps} steps") from problem
