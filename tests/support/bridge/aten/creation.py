"""Operands for what makes tensors."""

from __future__ import annotations

from random import Random

from lamella.bridge.aten.nodes import AtenSchema
from tests.support.bridge.aten.draws import ANY, REALS, Case, number, shape, tensor
from tests.support.bridge.aten.judge import torch


def created(random: Random, schema: AtenSchema) -> Case:
    found: Case = {}
    for item in schema.parameters:
        if item.name == "size":
            found["size"] = shape(random)
        elif item.name == "fill_value":
            found["fill_value"] = number(random)
        elif item.name == "self":
            found["self"] = tensor(random, shape(random), random.choice(ANY))
        elif item.name == "s":
            found["s"] = number(random)
        elif item.name == "dtype" and random.random() < 0.5:
            found["dtype"] = random.choice(ANY)
    return found


def ranged(random: Random, schema: AtenSchema) -> Case:
    found: Case = {}
    whole = random.random() < 0.6
    for item in schema.parameters:
        if item.name in ("start", "end"):
            base = 5 if item.name == "end" else 0
            found[item.name] = random.randint(0, 4) + base + (0 if whole else 0.5)
        elif item.name == "step" and random.random() < 0.7:
            found[item.name] = random.randint(1, 3) if whole else 0.75
        elif item.name == "dtype" and random.random() < 0.4:
            found[item.name] = random.choice((*REALS, torch.int64, torch.int32) if whole else REALS)
    return found


def identity(random: Random, schema: AtenSchema) -> Case:
    found: Case = {"n": random.randint(1, 4)} | ({"m": random.randint(1, 4)} if schema.find("m") else {})
    return found | ({"dtype": random.choice(ANY)} if random.random() < 0.5 else {})


def spaced(random: Random, schema: AtenSchema) -> Case:
    found: Case = {"start": random.choice((0, -1.5)), "end": random.choice((2, 2.5))}
    found["steps"] = random.randint(1, 5)
    return found | ({"dtype": random.choice((torch.float32, torch.float16))} if random.random() < 0.5 else {})


def strode(random: Random, schema: AtenSchema) -> Case:
    found = created(random, schema)
    if schema.find("stride"):
        found |= {"size": [2, 3], "stride": [3, 1]}
    if schema.find("physical_layout"):
        found |= {"size": [2, 3], "physical_layout": [0, 1]}
    return found
