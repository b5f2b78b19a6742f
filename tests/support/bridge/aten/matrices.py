"""Operands for linear algebra, and for what the run shapes: different elements, counts, selections."""

from __future__ import annotations

from random import Random

import torch

from lamella.bridge.aten.nodes import AtenSchema
from tests.support.bridge.aten.draws import ANY, WHOLE, Case, axis, broadcast, shape, tensor

FLOATS = (torch.float32, torch.float64)


def _numbers(random: Random, *extents: int) -> torch.Tensor:
    drawn = torch.Generator().manual_seed(random.randint(0, 9999))
    return torch.randn(extents, generator=drawn, dtype=random.choice(FLOATS))


def _definite(random: Random, side: int, batch: tuple[int, ...] = ()) -> torch.Tensor:
    """Symmetric matrices that are far from singular."""
    half = _numbers(random, *batch, side, side)
    return half @ half.mT + side * torch.eye(side, dtype=half.dtype)


def factored(random: Random, schema: AtenSchema) -> Case:
    """A batch of definite matrices; a triangle of them where one is solved."""
    matrix = _definite(random, random.randint(1, 4), random.choice(((), (2,), (1, 2))))
    found: Case = {"A" if schema.find("A") else "self": matrix}
    found |= {"upper": random.random() < 0.5} if schema.find("upper") else {}
    if schema.find("rcond"):
        found["rcond"] = 1e-3 if schema.name.endswith("default") else torch.tensor(1e-3, dtype=matrix.dtype)
    return found


def eliminated(random: Random, schema: AtenSchema) -> Case:
    return {
        "A" if schema.find("A") else "self": _numbers(random, 2, random.randint(1, 4), random.randint(1, 4))
    }


def solved(random: Random, schema: AtenSchema) -> Case:
    """Matrices and right sides of one type, in the places that the schema has for them."""
    side, batch = random.randint(1, 4), random.choice(((), (2,)))
    matrix = _definite(random, side, batch)
    right = _numbers(random, *batch, side, random.randint(1, 3)).to(matrix.dtype)
    names = [item.name for item in schema.parameters[:2]]
    swapped = names in (["self", "A"], ["self", "input2"])
    found: Case = dict(zip(names, (right, matrix) if swapped else (matrix, right), strict=False))
    for name in ("upper", "left", "transpose", "unitriangular"):
        if schema.find(name):
            found[name] = random.random() < 0.5
    if found.get("left") is False:
        found["B"] = right.mT
    return found


def nearest(random: Random, _: AtenSchema) -> Case:
    matrix = _numbers(random, 5, random.randint(1, 4))
    return {"self": matrix, "b": _numbers(random, 5, 2).to(matrix.dtype)}


def different(random: Random, schema: AtenSchema) -> Case:
    """Few numbers, so that equal ones are common; all results are asked for."""
    extents = shape(random, 1 if schema.find("dim") else 0, 3)
    found: Case = {"self": tensor(random, extents, random.choice((torch.int64, torch.float32)), -1, 1)}
    found |= {name: True for name in ("return_inverse", "return_counts") if schema.find(name)}
    if schema.name == "aten.unique_dim.default":
        found |= {"dim": axis(random, len(extents)), "sorted": True}
    return found


def counted_up(random: Random, schema: AtenSchema) -> Case:
    count = random.randint(1, 6)
    numbers = tensor(random, [count], random.choice((torch.int64, torch.int32)), 0, 5)
    if schema.name == "aten.repeat_interleave.Tensor":
        return {"repeats": numbers} | ({"output_size": int(numbers.sum())} if random.random() < 0.5 else {})
    weights = tensor(random, [count], random.choice((torch.float32, torch.int64)))
    return {"self": numbers, "minlength": random.randint(0, 9)} | (
        {"weights": weights} if random.random() < 0.5 else {}
    )


def selected(random: Random, schema: AtenSchema) -> Case:
    """A tensor and a mask that broadcast, or how many places there are."""
    extents = shape(random)
    operand = tensor(random, extents, random.choice(ANY), -1, 1)
    if schema.find("size"):
        return {"self": operand, "size": random.randint(0, 9), "fill_value": random.choice((-1, 7))}
    return {"self": operand, "mask": tensor(random, broadcast(random, extents), torch.bool)}


def replaced(random: Random, _: AtenSchema) -> Case:
    extents = [random.randint(1, 3), random.randint(1, 3)]
    dtype, count = random.choice((*FLOATS, *WHOLE)), extents[0] * extents[1]
    places = torch.tensor(random.sample(range(count), random.randint(1, count)))
    values = tensor(random, [len(places)], dtype)
    return {"self": tensor(random, extents, dtype), "index": places, "source": values}


def cornered(random: Random, _: AtenSchema) -> Case:
    return {"row": random.randint(0, 5), "col": random.randint(0, 5), "offset": random.randint(-6, 6)}


def windowed(random: Random, schema: AtenSchema) -> Case:
    found: Case = {"window_length": random.randint(2, 9)}
    found |= {"periodic": random.random() < 0.5} if schema.find("periodic") else {}
    return found | ({"beta": 5.5} if schema.find("beta") else {})


def likely(random: Random, _: AtenSchema) -> Case:
    return {"self": torch.tensor([random.uniform(0.05, 0.95) for _ in range(5)])}


def doubled(random: Random, _: AtenSchema) -> Case:
    return {"self": tensor(random, [2, 3], random.choice(FLOATS)), "other": tensor(random, [3], torch.int64)}
