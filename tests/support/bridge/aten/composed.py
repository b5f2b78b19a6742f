"""Operands for calls that several operators say together."""

from __future__ import annotations

from random import Random

import torch

from lamella.bridge.aten.nodes import AtenSchema
from tests.support.bridge.aten.draws import Case
from tests.support.bridge.aten.reductions import ordered

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def middle(random: Random, schema: AtenSchema) -> Case:
    found = ordered(random, schema)
    if not found["self"].numel():  # torch gives what is no number, whatever that is among integers
        found["self"] = torch.ones(2, 3)
    return found if schema.find("dim") else {"self": found["self"]}


def shifted(random: Random, schema: AtenSchema) -> Case:
    dtype = random.choice(INTEGERS)
    low = 0 if dtype == torch.uint8 else -99
    values = torch.tensor([random.randint(low, 120) for _ in range(6)], dtype=dtype)
    if schema.name.endswith("Tensor"):
        return {"self": values, "other": torch.tensor([random.randint(0, 6) for _ in range(6)], dtype=dtype)}
    return {"self": values.reshape(random.choice(((6,), (2, 3)))), "other": random.randint(0, 6)}


def sloped(random: Random, _: AtenSchema) -> Case:
    values = torch.tensor([random.uniform(-2, 2) for _ in range(6)])
    ends = sorted(random.uniform(0, 1) for _ in range(2))
    return {"self": values, "noise": torch.zeros(6), "lower": ends[0], "upper": ends[1]}


def filtered(random: Random, _: AtenSchema) -> Case:
    """Results are two wide at least: of one column, torch reads other elements than those of the image."""
    shape = [random.randint(1, 2), random.randint(1, 3), random.randint(1, 13), random.randint(1, 13)]
    numbers = torch.rand(shape, generator=torch.Generator().manual_seed(random.randint(0, 999)))
    size = [random.randint(1, 15), random.randint(2, 15)]
    return {"self": numbers, "output_size": size, "align_corners": False}


def labelled(random: Random, _: AtenSchema) -> Case:
    rows, classes = random.randint(1, 4), random.randint(1, 6)
    targets = [
        [*(kept := random.sample(range(classes), random.randint(0, classes))), *[-1] * (classes - len(kept))]
        for _ in range(rows)
    ]
    numbers = torch.rand(rows, classes, generator=torch.Generator().manual_seed(random.randint(0, 999))) * 2
    given, target = numbers, torch.tensor(targets)
    if random.random() < 0.3:
        given, target = given[0], target[0]
    return {"self": given, "target": target, "reduction": random.randint(0, 2)}
