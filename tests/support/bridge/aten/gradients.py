"""Operands for gradients and losses."""

from __future__ import annotations

from random import Random
from typing import Any

from lamella.bridge.aten.nodes import AtenSchema
from tests.support.bridge.aten.draws import USUAL, Case, axis, shape, tensor
from tests.support.bridge.aten.judge import torch

WIDE = (torch.float32, torch.float64)
MASK = [True, True, True]


def returned(random: Random, schema: AtenSchema) -> Case:
    """What comes back and one tensor of the same shape and type, and numbers."""
    whole, dtype = shape(random), random.choice(USUAL)
    found: Case = {}
    for item in schema.parameters:
        if item.type == "Tensor":
            found[item.name] = tensor(random, whole, dtype, -2, 2)
        elif item.type == "Scalar":
            found[item.name] = random.choice((0.5, 1.5, 2, 1))
        elif item.type == "bool":
            found[item.name] = item.name == "is_result" and random.random() < 0.5
        elif item.name == "approximate":
            found[item.name] = random.choice(("none", "tanh"))
    return found


def softened_back(random: Random, schema: AtenSchema) -> Case:
    whole, dtype = shape(random, 0, 3), random.choice(WIDE)
    found: Case = {name: tensor(random, whole, dtype, -2, 2) for name in ("grad_output", "output")}
    return found | {"dim": axis(random, len(whole)), "input_dtype": dtype}


def _normalised_back(random: Random, schema: AtenSchema) -> Case:
    dtype, whole = random.choice(WIDE), [2, 4, 3]
    found: Case = {name: tensor(random, whole, dtype, -2, 2) for name in ("grad_out", "input")}
    scaled = random.random() < 0.7
    found["output_mask"] = MASK if scaled else [True, False, False]
    if schema.find("HxW"):
        group = random.choice((1, 2, 4))
        moments = {name: tensor(random, [2, group], dtype, 1, 2) for name in ("mean", "rstd")}
        sizes: Case = {"N": 2, "C": 4, "HxW": 3, "group": group}
        return found | moments | sizes | {"weight": tensor(random, [4], dtype) if scaled else None}
    count = random.randint(1, 2)
    moments = {name: tensor(random, whole[:-count] + [1] * count, dtype, 1, 2) for name in ("mean", "rstd")}
    scales: Case = {
        name: tensor(random, whole[-count:], dtype) if scaled else None for name in ("weight", "bias")
    }
    return found | moments | scales | {"normalized_shape": whole[-count:]}


def returned_all(random: Random, schema: AtenSchema) -> Case:
    """Operands of what gives several gradients, of which some are asked for."""
    return (_convolved_back if schema.find("stride") else _normalised_back)(random, schema)


def embedded_back(random: Random, schema: AtenSchema) -> Case:
    places = shape(random, 1, 2)
    return {
        "grad_output": tensor(random, [*places, 3], random.choice(WIDE)),
        "indices": tensor(random, places, torch.int64, 0, 3),
        "num_weights": 4,
        "padding_idx": random.choice((-1, 2)),
        "scale_grad_by_freq": False,
    }


def lost(random: Random, schema: AtenSchema) -> Case:
    """Numbers and what they should be: classes or other numbers."""
    dtype, whole, reduction = random.choice(WIDE), [3, 4], random.randint(0, 2)
    classes = schema.find("ignore_index") is not None
    target = tensor(random, [3], torch.int64, 0, 3) if classes else tensor(random, whole, dtype)
    found: Case = {"self": tensor(random, whole, dtype), "target": target, "reduction": reduction}
    if classes:
        weight = tensor(random, [4], dtype, 1, 3) if random.random() < 0.5 else None
        found |= {"weight": weight, "ignore_index": random.choice((-100, 1))}
    if schema.find("total_weight"):
        found["total_weight"] = tensor(random, [], dtype, 1, 4)
    if schema.find("grad_output"):
        found["grad_output"] = tensor(random, [] if reduction else target.shape, dtype)
    return found


def _convolved_back(random: Random, schema: AtenSchema) -> Case:
    dtype, rank, groups = random.choice(WIDE), random.randint(1, 2), random.randint(1, 2)
    image, weight = [2, 4, *[6] * rank], [4, 4 // groups, *[random.randint(1, 3) for _ in range(rank)]]
    found: Case = {
        "input": tensor(random, image, dtype, -2, 2),
        "weight": tensor(random, weight, dtype, -2, 2),
        **{name: [random.randint(1, 2) for _ in range(rank)] for name in ("stride", "dilation")},
        **{"padding": [random.randint(0, 1) for _ in range(rank)], "output_padding": [0] * rank},
        **{"transposed": False, "groups": groups},
    }
    result: Any = torch.ops.aten.convolution(bias=None, **found)
    found["grad_output"] = tensor(random, list(result.shape), dtype, -2, 2)
    return found | {"bias_sizes": [4], "output_mask": random.choice((MASK, [False, True, True]))}


def pooled_back(random: Random, schema: AtenSchema) -> Case:
    dtype, image = random.choice(WIDE), [2, 3, 6, 5]
    operand = tensor(random, image, dtype)
    if not schema.find("kernel_size"):
        return {"grad_output": tensor(random, [2, 3, 2, 4], dtype), "self": operand}
    window: Case = {"kernel_size": [3, 2], "stride": random.choice(([], [2, 1])), "padding": [1, 0]}
    window["ceil_mode"] = random.random() < 0.5
    if schema.find("indices"):
        window["dilation"] = [1, 1]
        values, indices = torch.ops.aten.max_pool2d_with_indices(operand, **window)
        window["indices"] = indices
    else:
        window |= {"count_include_pad": random.random() < 0.5, "divisor_override": random.choice((None, 3))}
        values = torch.ops.aten.avg_pool2d(operand, **window)
    return {"grad_output": tensor(random, list(values.shape), dtype), "self": operand, **window}
