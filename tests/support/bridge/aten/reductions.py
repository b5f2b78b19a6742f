"""Operands for what works along dimensions."""

from __future__ import annotations

from random import Random

from lamella.bridge.aten.nodes import AtenSchema
from tests.support.bridge.aten.draws import ANY, REALS, Case, axes, axis, shape, tensor
from tests.support.bridge.aten.judge import torch


def reduced(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random)
    found: Case = {"self": tensor(random, whole, random.choice(ANY))}
    for item in schema.parameters[1:]:
        if item.name == "dim":
            several = "[" in item.type
            dims = axes(random, len(whole)) if several else axis(random, len(whole))
            if item.default is None or random.random() < 0.8:
                found["dim"] = None if item.type.endswith("?") and random.random() < 0.1 else dims
        elif item.name in ("keepdim", "unbiased", "descending", "largest") and random.random() < 0.5:
            found[item.name] = random.random() < 0.5
        elif item.name == "dtype" and random.random() < 0.3:
            found[item.name] = random.choice((*REALS, torch.int64, torch.int32, torch.int8))
        elif item.name == "correction" and random.random() < 0.5:
            found[item.name] = random.choice((0, 1, 2))
        elif item.name in ("ord", "p") and (item.name == "p" or random.random() < 0.5):
            found[item.name] = random.choice((1, 2, 3, float("inf")))
        elif item.name == "k":
            found[item.name] = random.randint(1, whole[found.get("dim", -1)] if whole else 1)
        elif item.name == "stable":
            found[item.name] = True
    return found


def ordered(random: Random, schema: AtenSchema) -> Case:
    """As above with elements that all differ: torch does not say where equal ones go."""
    found = reduced(random, schema)
    found.pop("k", None)
    whole = list(found["self"].shape)
    dtype = random.choice((*REALS, torch.int32, torch.int8, torch.uint8))
    count = found["self"].numel()
    values = random.sample(range(100), count) if count <= 100 else list(range(count))
    if count > 100:
        dtype = torch.float32
    found["self"] = torch.tensor(values, dtype=dtype).reshape(whole)
    rank = len(whole)
    found["dim"] = axis(random, rank)
    if schema.find("k"):
        found["k"] = random.randint(1, max(1, whole[found["dim"]] if whole else 1))
    return found


def running(random: Random, schema: AtenSchema) -> Case:
    found = reduced(random, schema)
    found["self"] = found["self"].clamp(-1, 1) if found["self"].dtype != torch.bool else found["self"]
    return found


def searched(random: Random, schema: AtenSchema) -> Case:
    dtype = random.choice((torch.float32, torch.int64, torch.int32))
    found: Case = {"self": tensor(random, [2, 3], dtype), "right": random.random() < 0.5}
    among = torch.sort(tensor(random, [5], dtype))[0]
    found["boundaries" if schema.find("boundaries") else "sorted_sequence"] = among
    return found | ({"out_int32": True} if random.random() < 0.5 else {})
