"""Operands for what draws random numbers."""

from __future__ import annotations

from random import Random

from lamella.bridge.aten.nodes import AtenSchema
from tests.support.bridge.aten.draws import REALS, WHOLE, Case, shape, tensor
from tests.support.bridge.aten.judge import torch

NUMBERS = {
    **{"low": (-3, 0), "high": (2, 9), "from": (-3, 0), "to": (2, 9)},
    **{"mean": (-1, 2), "std": (1, 3), "median": (-2, 2), "sigma": (1, 3), "lambd": (1, 4)},
}
"""The least and the greatest of the numbers that parameters get."""
INTEGERS = ("SymInt", "int", "int?")


def chanced(random: Random, schema: AtenSchema) -> Case:
    """Every parameter of a distribution; a type now and then."""
    extents, whole = shape(random), "randint" in schema.name or "random" in schema.name
    types = (*REALS, *WHOLE) if whole else REALS
    found: Case = {}
    for item in schema.parameters:
        if item.name in ("size", "n"):
            found[item.name] = extents if item.name == "size" else random.randint(0, 9)
        elif item.type == "Tensor":
            low, high = NUMBERS.get(item.name, (-4, 4))
            found[item.name] = tensor(random, extents, random.choice(types), low, high)
        elif item.name in NUMBERS:
            number = random.randint(*NUMBERS[item.name])
            found[item.name] = number if item.type in INTEGERS else float(number)
        elif item.name == "p":
            found[item.name] = random.choice((0.25, 0.5, 0.75))
        elif item.name == "dtype" and random.random() < 0.5:
            found[item.name] = random.choice((torch.int64, torch.int32) if schema.find("n") else types)
    return found


def tossed(random: Random, schema: AtenSchema) -> Case:
    """Probabilities, in a tensor where the schema has no number for them."""
    found = chanced(random, schema)
    return found | {"self": tensor(random, shape(random), random.choice(REALS), 0, 1)}


def lottery(random: Random, _: AtenSchema) -> Case:
    """Weights that are above zero, and no more places than there are without replacement."""
    count, replaced = random.randint(1, 5), random.random() < 0.5
    weights = tensor(random, [*random.choice(([], [3])), count], random.choice(REALS), 0.25, 4).clamp(0.25)
    return {"self": weights, "num_samples": random.randint(1, count + 3 * replaced), "replacement": replaced}
