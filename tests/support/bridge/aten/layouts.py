"""Operands for what moves elements."""

from __future__ import annotations

from random import Random
from typing import Any

from lamella.bridge.aten.nodes import AtenSchema
from tests.support.bridge.aten.draws import (
    ANY,
    REALS,
    WHOLE,
    Case,
    axes,
    axis,
    broadcast,
    number,
    shape,
    tensor,
)
from tests.support.bridge.aten.judge import torch


def viewed(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random, 0, 4)
    found: Case = {"self": tensor(random, whole, random.choice(ANY))}
    total = found["self"].numel()
    target = random.choice(([total], [-1], [1, total], [total, 1], [*whole], [*reversed(whole)]))
    if schema.find("other"):
        expand = "expand" in schema.name
        wide = [2, *[3 if extent == 1 else extent for extent in whole]]
        found["other"] = torch.zeros(wide if expand else [item if item >= 0 else total for item in target])
    elif "expand" in schema.name or "broadcast" in schema.name:
        grown = [3 if extent == 1 else random.choice((extent, -1)) for extent in whole]
        found["size"] = [*random.choice(([], [2])), *grown]
    else:
        found["shape" if "reshape" in schema.name else "size"] = target
    return found


def dims_of(random: Random, schema: AtenSchema) -> Case:
    """A tensor and dimensions of it, whatever they are called."""
    whole = shape(random, 0 if "squeeze" in schema.name else 1, 4)
    found: Case = {"self": tensor(random, whole, random.choice(ANY))}
    rank = len(whole)
    for item in schema.parameters[1:]:
        if item.name in ("dim", "dim0", "dim1", "axis0", "axis1", "source", "destination"):
            several = "[" in item.type
            count = 1 + (rank if "unsqueeze" in schema.name else rank - 1)
            found[item.name] = axes(random, rank) if several else axis(random, count)
        elif item.name == "dims":
            flips = "flip" in schema.name
            found[item.name] = axes(random, rank) if flips else random.sample(range(rank), rank)
        elif item.name in ("start_dim", "end_dim"):
            found[item.name] = 0 if item.name == "start_dim" else -1
    if "intlist" in schema.name:
        found["destination"] = random.sample(range(rank), len(found["source"]))
    return found


def unflattened(random: Random, schema: AtenSchema) -> Case:
    whole = [*shape(random, 0, 2), 6]
    return {
        "self": tensor(random, whole, random.choice(ANY)),
        "dim": random.choice((-1, len(whole) - 1)),
        "sizes": random.choice(([2, 3], [-1, 2], [6], [1, 6])),
    }


def copied(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random)
    source = tensor(random, broadcast(random, whole), random.choice(ANY), 0)
    return {"self": tensor(random, whole, random.choice(ANY)), "src": source}


def repeated(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random)
    found: Case = {"self": tensor(random, whole, random.choice(ANY))}
    if schema.find("dim"):
        found["repeats"] = random.randint(1, 3)
        return found | ({"dim": axis(random, len(whole))} if whole and random.random() < 0.7 else {})
    extra = random.randint(0, 1)
    return found | {"repeats": [random.randint(1, 3) for _ in range(len(whole) + extra)]}


def rolled(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random, 1, 3)
    dims = axes(random, len(whole)) if random.random() < 0.7 else []
    shifts = [random.randint(-4, 4) for _ in dims] or [random.randint(-4, 4)]
    return {"self": tensor(random, whole, random.choice(ANY)), "shifts": shifts, "dims": dims}


def differing(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random, 1, 3)
    found: Case = {"self": tensor(random, whole, random.choice(ANY))}
    return found | ({"dim": axis(random, len(whole))} if random.random() < 0.7 else {})


def crossed(random: Random, schema: AtenSchema) -> Case:
    return {name: tensor(random, [3], random.choice(ANY)) for name in ("self", "vec2")}


def tiled(random: Random, schema: AtenSchema) -> Case:
    dims = [random.randint(1, 3) for _ in range(random.randint(0, 3))]
    return {"self": tensor(random, shape(random), random.choice(ANY)), "dims": dims}


def classed(random: Random, schema: AtenSchema) -> Case:
    return {"self": tensor(random, shape(random), torch.int64, 0, 3), "num_classes": random.randint(4, 6)}


def joined(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random, 1, 3)
    stacks = "stack" in schema.name
    dim = axis(random, len(whole) + 1) if stacks else axis(random, len(whole))
    found = []
    for _ in range(random.randint(1, 3)):
        extents = list(whole)
        if not stacks:
            extents[dim] = random.randint(1, 3)
        found.append(tensor(random, extents, random.choice(ANY)))
    if not stacks and random.random() < 0.2:
        found.append(torch.zeros(0, dtype=random.choice(ANY)))
    return {"tensors": found, "dim": dim}


def parted(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random, 1, 3)
    dim = axis(random, len(whole))
    whole[dim] = random.randint(3, 6)
    found: Case = {"self": tensor(random, whole, random.choice(ANY)), "dim": dim}
    for item in schema.parameters:
        if item.name in ("split_size", "split_sizes"):
            sizes = "[" in item.type
            found[item.name] = [1, whole[dim] - 1] if sizes else random.randint(1, whole[dim])
        elif item.name == "chunks":
            found[item.name] = random.randint(1, 4)
        elif item.name == "index":
            found[item.name] = random.randint(-whole[dim], whole[dim] - 1)
        elif item.name == "length":
            found |= {"start": 1, "length": random.randint(0, whole[dim] - 1)}
        elif item.name == "step":
            found |= {
                "start": random.choice((None, 1, -2, 0)),
                "end": random.choice((None, -1, 2, 2**63 - 1)),
            }
            found["step"] = random.randint(1, 3)
    if schema.find("src"):
        whole_, extents = found.pop("self"), [*whole]
        kind = torch.ops.aten.select.int if schema.find("index") else torch.ops.aten.slice.Tensor
        part = kind(whole_, **found)
        extents = list(part.shape)
        found |= {"self": whole_, "src": tensor(random, extents, whole_.dtype)}
    return found


def triangle(random: Random, schema: AtenSchema) -> Case:
    found: Case = {"self": tensor(random, shape(random, 2, 4), random.choice(ANY))}
    return found | ({"diagonal": random.randint(-2, 2)} if schema.find("diagonal") else {})


def picked(random: Random, schema: AtenSchema) -> Case:
    """Tensors of places."""
    if "index_fill" in schema.name:
        return numbered(random, schema)
    places = random.choice((torch.int64, torch.int64, torch.int32))
    if schema.find("weight"):
        weight = tensor(random, [5, 3], random.choice(REALS))
        return {"weight": weight, "indices": tensor(random, shape(random, 0, 3), places, 0, 4)}
    whole = shape(random, 1, 3)
    dim = axis(random, len(whole))
    types = (*REALS, *WHOLE) if "add" in schema.name else ANY
    found: Case = {"self": tensor(random, whole, random.choice(types)), "dim": dim}
    last = max(whole[dim] - 1, 0)
    if "index_select" in schema.name:
        return found | {"index": tensor(random, [3], places, 0, last)}
    extents = [max(1, extent - 1) for extent in whole]
    extents[dim] = 1 if "scatter" in schema.name else 3
    found["index"] = tensor(random, extents, torch.int64, 0, last)
    if schema.find("src"):
        found["src"] = tensor(random, extents, found["self"].dtype)
    if schema.find("value"):
        found["value"] = number(random)
    return found


def indexed(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random, 1, 4)
    places = broadcastable = shape(random, 0, 2)
    found: list[Any] = []
    for extent in whole[: random.randint(1, len(whole))]:
        chosen = tensor(random, broadcast(random, broadcastable), torch.int64, -extent, max(extent - 1, 0))
        found.append(None if random.random() < 0.35 else chosen)
    if all(item is None for item in found):
        found[0] = tensor(random, places, torch.int64, 0, max(whole[0] - 1, 0))
    return {"self": tensor(random, whole, random.choice(ANY)), "indices": found}


def strided(random: Random, schema: AtenSchema) -> Case:
    operand = tensor(random, [3, 4], random.choice(ANY))
    found: Case = {"self": operand, "size": random.choice(([2, 2], [3, 3])), "stride": [4, 1]}
    return found | ({"storage_offset": 1} if random.random() < 0.5 else {})


def diagonal(random: Random, schema: AtenSchema) -> Case:
    first, second = random.sample(range(3), 2)
    operand = tensor(random, [3, 4, 2], random.choice(ANY))
    return {"self": operand, "offset": random.randint(-1, 1), "dim1": first, "dim2": second}


def put(random: Random, schema: AtenSchema) -> Case:
    """Places that all differ: torch does not say which of several values stays."""
    operand = tensor(random, [4, 3], random.choice((*REALS, *WHOLE)))
    rows = torch.tensor(random.sample(range(-4, 0), 2))
    column = tensor(random, [], torch.int64, 0, 2)
    indices = random.choice(([rows], [rows, column], [None, torch.tensor([2, 0])]))
    taken = operand[tuple(slice(None) if item is None else item for item in indices)]
    values = tensor(random, broadcast(random, list(taken.shape)), operand.dtype)
    return {"self": operand, "indices": indices, "values": values, "accumulate": random.random() < 0.5}


def scattered(random: Random, schema: AtenSchema) -> Case:
    operand = tensor(random, [3, 4], random.choice((torch.float32, torch.float64, torch.int64)), 1, 3)
    found: Case = {"self": operand, "dim": random.choice((0, 1, -1)), "src": operand + 1}
    found["index"] = tensor(random, [2, 3], torch.int64, 0, 2)
    found["reduce"] = random.choice(("sum", "prod", "amax", "amin"))
    return found | {"include_self": random.random() < 0.5}


def masked(random: Random, schema: AtenSchema) -> Case:
    operand = tensor(random, [3, 4], random.choice(ANY))
    mask = tensor(random, random.choice(([3, 4], [4])), torch.bool)
    return {"self": operand, "mask": mask, "source": tensor(random, [12], operand.dtype)}


def unfolded(random: Random, schema: AtenSchema) -> Case:
    operand = tensor(random, [3, 6], random.choice(ANY))
    return {"self": operand, "dimension": random.choice((1, -1)), "size": 3, "step": random.randint(1, 2)}


def numbered(random: Random, schema: AtenSchema) -> Case:
    """Rows that all differ."""
    dtype = random.choice((*REALS, *WHOLE))
    found: Case = {"self": tensor(random, [4, 3], dtype), "dim": random.choice((0, -2))}
    found["index"] = torch.tensor(random.sample(range(4), 2))
    if schema.find("source"):
        found["source"] = tensor(random, [2, 3], dtype)
    if schema.find("value"):
        scalar = schema.name.endswith("Scalar")
        found["value"] = 2 if scalar else torch.tensor(3, dtype=dtype)
    return found | ({"alpha": 2} if schema.find("alpha") and random.random() < 0.5 else {})
