"""Operands for what works element by element."""

from __future__ import annotations

from random import Random

from lamella.bridge.aten.nodes import AtenSchema
from tests.support.bridge.aten.draws import (
    ANY,
    FLOATING,
    REALS,
    USUAL,
    Case,
    axis,
    broadcast,
    number,
    shape,
    tensor,
)
from tests.support.bridge.aten.judge import torch


def single(random: Random, schema: AtenSchema) -> Case:
    """One tensor, and numbers for the other parameters."""
    low, high = (0.25, 4) if random.random() < 0.5 else (-4, 4)
    types = REALS if schema.operator in FLOATING else ANY
    found: Case = {"self": tensor(random, shape(random), random.choice(types), low, high)}
    for item in schema.parameters[1:]:
        if item.type.startswith("Scalar") and (item.default is None or random.random() < 0.5):
            found[item.name] = random.choice((0.5, 1.5, 2, 1))
        elif item.name == "approximate":
            found[item.name] = random.choice(("none", "tanh"))
    return found


def pair(random: Random, schema: AtenSchema) -> Case:
    """Two operands that broadcast, of two types; numbers where the overload takes them or torch puts them."""
    whole = shape(random)
    found: Case = {}
    divides = any(word in schema.name for word in ("div", "remainder", "fmod"))
    for item in schema.parameters:
        second = item.name in ("other", "exponent")
        low, high = (1, 3) if second and (divides or "pow" in schema.name) else (-4, 4)
        if item.type == "Tensor" and item.name == "condition":
            found[item.name] = tensor(random, broadcast(random, whole), torch.bool)
        elif item.type == "Tensor" and second and random.random() < 0.15 and "Scalar" not in schema.name:
            found[item.name] = number(random)
        elif item.type == "Tensor":
            found[item.name] = tensor(random, broadcast(random, whole), random.choice(ANY), low, high)
        elif item.name == "alpha":
            found |= {"alpha": random.choice((1, 2, -1, 0.5))} if random.random() < 0.5 else {}
        elif item.name == "rounding_mode":
            found[item.name] = random.choice(("floor", "trunc", None))
        else:
            found[item.name] = number(random)
    return found


def replace(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random)
    dtype = random.choice(ANY)
    found: Case = {"self": tensor(random, whole, dtype)}
    if schema.find("mask"):
        found["mask"] = tensor(random, broadcast(random, whole), torch.bool)
    scalar = "Scalar" in schema.name
    found["value"] = number(random) if scalar else tensor(random, [], random.choice(ANY), 0)
    return found


def clamp(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random)
    found: Case = {"self": tensor(random, whole, random.choice(ANY))}
    for item in schema.parameters[1:]:
        if item.default is None or random.random() < 0.7:
            tensors = item.type.startswith("Tensor")
            rank = [] if random.random() < 0.5 else broadcast(random, whole)
            found[item.name] = tensor(random, rank, random.choice(ANY)) if tensors else number(random)
    return found


def fused(random: Random, schema: AtenSchema) -> Case:
    whole, dtype = shape(random), random.choice(ANY)
    alike = random.random() < 0.5
    found: Case = {}
    for item in ("self", "tensor1", "tensor2"):
        found[item] = tensor(random, whole if alike else broadcast(random, whole), dtype, 1, 4)
    return found | ({"value": random.choice((2, 0.5))} if random.random() < 0.5 else {})


def lerp(random: Random, schema: AtenSchema) -> Case:
    whole, dtype = shape(random), random.choice(REALS)
    ends = {name: tensor(random, broadcast(random, whole), dtype) for name in ("self", "end")}
    return ends | {"weight": random.choice((0.25, 1, 2))}


def prelu(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random, 2, 4)
    dtype = random.choice(REALS)
    kernel = "kernel" in schema.name
    weight = [1, whole[1], *[1] * (len(whole) - 2)] if kernel else [random.choice((1, whole[1]))]
    return {"self": tensor(random, whole, dtype), "weight": tensor(random, weight, dtype)}


def dropout(random: Random, schema: AtenSchema) -> Case:
    return {"input": tensor(random, [2, random.randint(1, 3)], random.choice(ANY)), "p": 0.25, "train": False}


def convert(random: Random, schema: AtenSchema) -> Case:
    found: Case = {"self": tensor(random, shape(random), random.choice(ANY), 0)}
    if schema.find("other"):
        found["other"] = tensor(random, shape(random), random.choice(ANY))
    if schema.find("dtype") and (schema.name.endswith(("dtype", "device")) or random.random() < 0.9):
        found["dtype"] = random.choice(ANY)
    if schema.name.endswith("device"):
        found["device"] = "cpu"
    return found


def gated(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random, 1, 4)
    dim = axis(random, len(whole))
    whole[dim] *= 2
    return {"self": tensor(random, whole, random.choice(USUAL)), "dim": dim}
