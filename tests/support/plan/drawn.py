"""Random selected plans and random devices: small enough to run, odd enough to find what tiling forgets."""

from __future__ import annotations

import numpy as np

from tests.support.plan.selected import Selected, Tensor


def device(random: np.random.Generator, least_l1: int = 4096) -> str:
    """A device with few units and little memory."""
    l1 = int(least_l1 * 2 ** random.uniform(0, 3)) // 64 * 64
    l2 = int(l1 * random.choice([2, 4, 16, 64]))
    counts = {unit: int(random.integers(1, 4)) for unit in ("NMU", "CSTL", "DMA")}
    units = " ".join(f"{unit} = {count}" for unit, count in counts.items())
    return f"""include "nem_baseline_1.0.nem"
device drawn extends nem_baseline_1_0 {{
    topology {{
        num_engines = {int(random.integers(1, 4))}
        l2_size_bytes = {l2}
        device_units {{ sDMA = {int(random.integers(1, 4))} WDM = 0 }}
        per_engine {{ {units} VPU = 1 SEQ = 1 l1_size_bytes = {l1} }}
    }}
    unit_characteristics {{
        NMU {{ int8_macs = {int(random.choice([64, 512, 4096]))} }}
        DMA {{ bytes_per_cycle = {int(random.choice([8, 32]))} }}
        SEQ {{ max_active_tokens = {int(random.choice([8, 16, 32]))} }}
    }}
    opcode.extended {{ conv2d.int4.with_bias }}
}}
device drawn"""


def images(random: np.random.Generator, target: str, seed: int) -> Selected:
    """Convolutions, pools and sums on int8."""
    net = Selected(device=target, seed=seed)
    size, width = (int(item) for item in random.integers(6, 30, 2))
    batch = int(random.choice([1, 1, 1, 2, 3]))
    x = net.tensor("i8", (batch, size, width, int(random.choice([3, 8, 16]))), name="x")
    for _ in range(int(random.integers(1, 6))):
        x = _layer(net, random, x)
    return net


def _layer(net: Selected, random: np.random.Generator, x: Tensor) -> Tensor:
    kind = random.choice(["conv", "residual", "depthwise", "pool", "relu", "point"])
    channels = int(random.choice([4, 8, 24, 40]))
    room = min(x.shape[1:3])
    if kind == "residual":
        y = net.conv(x, x.shape[-1], 3, 1, 1)
        return net.add(net.unary("relu", y), x)
    if kind == "depthwise" and room > 2:
        return net.conv(x, x.shape[-1], 3, int(random.integers(1, 3)), 1, weights="each")
    if kind == "pool" and room > 3:
        return net.pool(x, str(random.choice(["maxpool", "avgpool"])), 3, 2, 1)
    if kind == "relu":
        return net.unary("relu", x)
    if kind == "conv" and room > 4:
        kernel = int(random.choice([3, 5]))
        bits = str(random.choice(["i8", "i8", "i4"]))
        return net.conv(
            x,
            channels,
            kernel,
            int(random.integers(1, 3)),
            int(random.integers(0, kernel // 2 + 1)),
            weights=bits,
        )
    return net.conv(x, channels, 1, 1, 0)


def rows(random: np.random.Generator, target: str, seed: int) -> Selected:
    """Products, norms, softmax and views on f16 and int8."""
    net = Selected(device=target, seed=seed)
    integers = bool(random.integers(0, 2))
    count, width = int(random.integers(1, 40)), int(random.choice([8, 16, 32]))
    x = net.tensor("i8" if integers else "f16", (count, width), name="x")
    for _ in range(int(random.integers(1, 5))):
        kind = random.choice(["linear", "softmax", "norm", "act", "sum", "transpose", "attention"])
        if kind == "linear":
            x = net.linear(x, int(random.choice([8, 16, 48])))
        elif kind == "sum":
            x = net.add(net.unary("relu", x), x)
        elif kind == "transpose":
            y = net.tensor(x.elem, x.shape[::-1], quant=net.quants.get(x.name, ""))
            x = net.task("transpose", [x], y, "perm=[1, 0]")
        elif kind == "attention" and not integers:
            turned = net.task("transpose", [x], net.tensor(x.elem, x.shape[::-1]), "perm=[1, 0]")
            scores = net.task("matmul", [x, turned], net.tensor("f16", (x.shape[0],) * 2), "accum_type=f32")
            weights = net.unary("softmax", scores, attributes="axis=-1")
            x = net.task("matmul", [weights, x], net.tensor("f16", x.shape), "accum_type=f32")
        elif kind in ("softmax", "norm") and not integers:
            attributes = "axis=-1" if kind == "softmax" else "axis=-1 epsilon=0.001"
            x = net.unary("softmax" if kind == "softmax" else "layernorm", x, attributes=attributes)
        else:
            x = net.unary("relu", x)
    return net
