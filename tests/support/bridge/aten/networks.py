"""Operands for what neural networks are made of."""

from __future__ import annotations

from random import Random

from lamella.bridge.aten.nodes import AtenSchema
from tests.support.bridge.aten.draws import ANY, REALS, USUAL, Case, axis, shape, tensor
from tests.support.bridge.aten.judge import torch


def multiplied(random: Random, schema: AtenSchema) -> Case:
    dtype = random.choice(USUAL)
    b, n, k, m = (random.randint(1, 4) for _ in range(4))
    shapes = {
        **{"mm": ([n, k], [k, m]), "bmm": ([b, n, k], [b, k, m]), "mv": ([n, k], [k]), "dot": ([k], [k])},
        "matmul": random.choice(
            (([n, k], [k, m]), ([k], [b, k, m]), ([b, n, k], [k]), ([b, 1, n, k], [2, k, m]))
        ),
        "linear": ([*shape(random, 0, 2), k], [n, k]),
        **{"addmm": ([m], [n, k], [k, m]), "baddbmm": ([b, n, m], [b, n, k], [b, k, m])},
    }[schema.name.split(".")[1]]
    names = [item.name for item in schema.parameters]
    found: Case = {
        name: tensor(random, extents, dtype, -2, 2) for name, extents in zip(names, shapes, strict=False)
    }
    if schema.find("bias") and random.random() < 0.6:
        found["bias"] = tensor(random, [n], dtype)
    if schema.find("beta") and random.random() < 0.6:
        found |= {"beta": random.choice((2, 0.5)), "alpha": random.choice((2, 0.5))}
    return found


def softened(random: Random, schema: AtenSchema) -> Case:
    whole = shape(random, 0, 3)
    found: Case = {"self": tensor(random, whole, random.choice(USUAL)), "dim": axis(random, len(whole))}
    if schema.find("half_to_float"):
        return found | {"half_to_float": False}
    return found | ({"dtype": random.choice(REALS)} if random.random() < 0.4 else {})


def attended(random: Random, schema: AtenSchema) -> Case:
    dtype = random.choice((torch.float32, torch.float64))
    n, m, e = (random.randint(1, 4) for _ in range(3))
    found: Case = {
        "query": tensor(random, [2, 4, n, e], dtype, -2, 2),
        "key": tensor(random, [2, 4, m, e], dtype, -2, 2),
        "value": tensor(random, [2, 4, m, e], dtype, -2, 2),
    }
    mask = "attn_bias" if schema.find("attn_bias") else "attn_mask"
    if random.random() < 0.5:
        found[mask] = tensor(random, [2, 4, n, m], dtype)
    elif mask == "attn_bias":
        found[mask] = None
    elif random.random() < 0.5:
        found["is_causal"] = True
    if schema.find("compute_log_sumexp"):
        found["compute_log_sumexp"] = False
    return found | ({"scale": 0.5} if random.random() < 0.5 else {})


def normalised(random: Random, schema: AtenSchema) -> Case:
    dtype = random.choice((torch.float32, torch.float64))
    whole = [2, 4, *[random.randint(2, 4) for _ in range(random.randint(1, 2))]]
    found: Case = {"input": tensor(random, whole, dtype)}
    channels = [4]
    for item in schema.parameters[1:]:
        if item.name == "normalized_shape":
            channels = whole[random.randint(1, len(whole) - 1) :]
            found[item.name] = channels
        elif item.name in ("weight", "bias") and random.random() < 0.7:
            found[item.name] = tensor(random, channels, dtype)
        elif item.name in ("running_mean", "running_var") and "instance" not in schema.name:
            found[item.name] = tensor(random, [4], dtype, 1, 3)
        elif item.name == "eps":
            found[item.name] = 1e-5 if "rms" not in schema.name else random.choice((1e-3, None))
        elif item.name in ("training", "cudnn_enabled", "use_input_stats"):
            found[item.name] = "no_stats" in schema.name or "instance" in schema.name
        elif item.name == "momentum":
            found[item.name] = 0.1
        elif item.name in ("num_groups", "group"):
            found[item.name] = random.choice((1, 2, 4))
        elif item.default is None and item.type.endswith("?"):
            found[item.name] = None
    if schema.name == "aten.batch_norm.default" and random.random() < 0.3:
        found |= {"running_mean": None, "running_var": None, "training": True}
    if schema.find("HxW"):
        count = 1
        for extent in whole[2:]:
            count *= extent
        found |= {"N": 2, "C": 4, "HxW": count}
    return found


def convolved(random: Random, schema: AtenSchema) -> Case:
    dtype = random.choice((torch.float32, torch.float64))
    rank = int(next((item for item in schema.name if item.isdigit()), "0")) or random.randint(1, 3)
    transposed = "transpose" in schema.name
    if schema.find("transposed"):
        transposed = random.random() < 0.4 and rank < 3
    groups = random.choice((1, 2))
    image = [random.randint(4, 7) for _ in range(rank)]
    kernel = [random.randint(1, 3) for _ in range(rank)]
    weight = [4, 4 // groups if not transposed else 3, *kernel]
    batch = [] if random.random() < 0.15 and not schema.find("transposed") else [2]
    found: Case = {
        "input": tensor(random, [*batch, 4, *image], dtype, -2, 2),
        "weight": tensor(random, weight, dtype, -2, 2),
        "groups": groups,
    }
    one = schema.find("transposed") is None
    count = 1 if one and random.random() < 0.3 else rank
    for item in schema.parameters:
        if item.name in ("stride", "dilation"):
            found[item.name] = [random.randint(1, 2) for _ in range(count)]
        elif item.name == "padding" and item.type == "str":
            found["padding"] = random.choice(("same", "valid"))
        elif item.name == "padding":
            found["padding"] = [random.randint(0, 1) for _ in range(count)]
        elif item.name in ("benchmark", "deterministic", "cudnn_enabled", "allow_tf32"):
            found[item.name] = False
        elif item.name == "output_padding":
            found[item.name] = [0] * rank
    if found.get("padding") == "same":
        found["stride"] = [1] * rank
    found["bias"] = (
        tensor(random, [3 * groups if transposed else 4], dtype) if random.random() < 0.6 else None
    )
    return found | ({"transposed": transposed} if schema.find("transposed") else {})


def pooled(random: Random, schema: AtenSchema) -> Case:
    dtype = random.choice((torch.float32, torch.float64))
    rank = int(next(item for item in schema.name if item.isdigit()))
    whole = [*random.choice(([2, 3], [3])), *[random.randint(5, 7) for _ in range(rank)]]
    found: Case = {"self": tensor(random, whole, dtype)}
    for item in schema.parameters[1:]:
        if item.name == "kernel_size":
            found["kernel_size"] = random.choice(([2], [2] * rank, [3] * rank, [8] * rank))
        elif item.name == "stride" and random.random() < 0.6:
            found["stride"] = [random.randint(1, 3) for _ in range(rank)]
        elif item.name == "padding" and random.random() < 0.6:
            found["padding"] = [random.randint(0, 1)] * rank
        elif item.name == "dilation" and random.random() < 0.3:
            found["dilation"] = [2] * rank
        elif item.name in ("ceil_mode", "count_include_pad"):
            found[item.name] = random.random() < 0.5
        elif item.name == "divisor_override" and random.random() < 0.3:
            found[item.name] = 3
        elif item.name == "output_size":
            found["output_size"] = [random.randint(1, 5) for _ in range(rank)]
    return found


def resized(random: Random, schema: AtenSchema) -> Case:
    rank = int(next(item for item in schema.name if item.isdigit()))
    extents = [2, 3, *[3, 4, 2][:rank]]
    image = tensor(random, extents, random.choice((torch.float32, torch.float64)))
    found: Case = {"input" if schema.find("input") else "self": image}
    if schema.find("align_corners"):
        found["align_corners"] = random.random() < 0.5
    if schema.find("scale_factors"):
        by_size = random.random() < 0.5
        found["output_size"] = [6, random.randint(3, 9), 5][:rank] if by_size else None
        factors = [2.0, random.choice((1.5, 2.0, 3.0)), 2.0][:rank]
        return found | {"scale_factors": None if by_size else factors}
    found["output_size"] = [2 * extent for extent in extents[2:]]
    scales = [item.name for item in schema.parameters if item.name.startswith("scales")]
    return found | (dict.fromkeys(scales, 2.0) if random.random() < 0.5 else {})


def shuffled(random: Random, schema: AtenSchema) -> Case:
    return {"self": tensor(random, [2, 8, 2, 3], random.choice(ANY)), "upscale_factor": 2}


def padded(random: Random, schema: AtenSchema) -> Case:
    rank = int(next((item for item in schema.name if item.isdigit()), "0"))
    whole = [random.randint(3, 5) for _ in range(rank + 2 if rank else 3)]
    found: Case = {"self": tensor(random, whole, random.choice(USUAL if rank else ANY))}
    if schema.find("padding"):
        return found | {"padding": [random.randint(0, 2) for _ in range(2 * rank)]}
    mode = random.choice(("constant", "reflect", "replicate")) if schema.find("mode") else "constant"
    low = -1 if mode == "constant" else 0
    found["pad"] = [random.randint(low, 2) for _ in range(2 * random.randint(1, 2))]
    if mode != "constant":
        found |= {"mode": mode, "self": tensor(random, whole, random.choice(USUAL)), "pad": found["pad"][:2]}
    elif random.random() < 0.6:
        found["value"] = random.choice((1.0, 2.0)) if schema.find("mode") else random.choice((1, 2))
    return found


def distant(random: Random, schema: AtenSchema) -> Case:
    power = random.choice((1.0, 2.0, 3.0))
    if schema.find("x1") is None:
        return {"self": tensor(random, [4, 3], torch.float32), "p": power}
    dtype = random.choice((torch.float32, torch.float64))
    pair = {"x1": tensor(random, [2, 3, 4], dtype), "x2": tensor(random, [2, 2, 4], dtype)}
    return pair | {"p": power, "compute_mode": None}


def weighted(random: Random, schema: AtenSchema) -> Case:
    dtype = random.choice((torch.float32, torch.float64))
    return {"v": tensor(random, [3, 4], dtype, 1, 4), "g": tensor(random, [3, 1], dtype), "dim": 0}


def counted(random: Random, schema: AtenSchema) -> Case:
    bins = random.randint(1, 6)
    return {"self": tensor(random, [4, 5], torch.float32), "bins": bins, "min": -2, "max": 2}


def grouped(random: Random, schema: AtenSchema) -> Case:
    ends = torch.tensor([2, 5, 8], dtype=torch.int32)
    dtype = torch.bfloat16
    return {
        "self": tensor(random, [8, 16], dtype, -2, 2),
        "mat2": tensor(random, [3, 16, 8], dtype, -2, 2),
        "offs": ends,
    }


def columned(random: Random, schema: AtenSchema) -> Case:
    sizes: Case = {"kernel_size": [2, 3], "dilation": [1, 1], "padding": [1, 0], "stride": [2, 1]}
    if schema.find("output_size"):
        return sizes | {"self": tensor(random, [2, 12, 9], torch.float32), "output_size": [4, 5]}
    return sizes | {"self": tensor(random, [2, 3, 4, 5], random.choice((torch.float32, torch.float64)))}


def sampled(random: Random, schema: AtenSchema) -> Case:
    axes = 3 if "3d" in schema.name else 2
    grid = tensor(random, [*[2, 3, 2, 1][: axes + 1], axes], torch.float32, -1, 1) * 0.9
    found: Case = {"input": tensor(random, [2, 3, 4, 5, 2][: axes + 2], torch.float32), "grid": grid}
    found |= {"interpolation_mode": random.choice((0, 1)), "padding_mode": random.choice((0, 1))}
    return found | {"align_corners": random.random() < 0.5}


def unshuffled(random: Random, schema: AtenSchema) -> Case:
    return {"self": tensor(random, [2, 2, 4, 6], random.choice(ANY)), "downscale_factor": 2}


def trebled(random: Random, _: AtenSchema) -> Case:
    """Three tensors as a bilinear layer has them."""
    rows, left, right, width = (random.randint(1, 4) for _ in range(4))
    dtype = random.choice((torch.float32, torch.float64))
    tensors = [tensor(random, item, dtype) for item in ([rows, left], [width, left, right], [rows, right])]
    spread = {"expand1": [1, 3], "expand2": [0], "expand3": [1, 2], "sumdim": [2, 3]}
    return {**{f"i{place + 1}": item for place, item in enumerate(tensors)}, **spread}


def bagged(random: Random, _: AtenSchema) -> Case:
    """Rows of a table in bags."""
    offsets = sorted([0, random.randint(0, 6), random.randint(0, 6)])
    return {
        "weight": tensor(random, [5, 3], torch.float32),
        "indices": tensor(random, [6], torch.int64, 0, 4),
        "offsets": torch.tensor(offsets),
        "mode": random.choice((0, 1, 2)),
        "padding_idx": random.choice((-1, 1)),
    }
