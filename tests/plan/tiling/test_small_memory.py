"""Tilings for little L1 and L2: halving fails only where what one element of an output needs does not fit."""

from __future__ import annotations

import re
from math import ceil, prod

import numpy as np
import pytest

from lamella.base.errors import Unsupported
from lamella.lang.nem.resolved import Buffer, Task
from lamella.plan.tiling.choice import TACTICS
from lamella.plan.timing import simulate
from lamella.plan.timing.network_bounds import find_network_bounds
from tests.plan.tiling.test_tiling import NPU_2048
from tests.support.plan.drawn import device, images, rows
from tests.support.plan.selected import Selected, read_text, same_bytes, tiled_plan

ALIGN = 64


def smallest(task: Task) -> int:
    """Bytes of L1 without which a task cannot run: one element of its output, and all that is summed up for it."""
    types = [region.type for region in (*task.inputs, *task.outputs)]
    sizes = {"i4": 0.5, "i8": 1.0, "f16": 2.0, "i32": 4.0, "f32": 4.0}
    counts = [1 for _ in types]
    if task.opcode == "conv2d":
        assert types[1] is not None
        # Channels of four bits come in pairs.
        counts[:2] = [prod(types[1].shape[:3]), prod(types[1].shape[:3]) * (1 + (types[1].elem == "i4"))]
    elif "kernel_shape" in task.attributes:
        shape = task.attributes["kernel_shape"]
        assert isinstance(shape, tuple)
        counts[0] = prod(shape)
    elif task.opcode in ("gemm", "matmul"):
        assert types[1] is not None
        counts[:2] = [types[1].shape[-2]] * 2
    elif task.opcode in ("softmax", "layernorm"):
        assert types[0] is not None
        counts = [types[0].shape[-1]] * 2
    elif task.opcode == "transpose":
        return 0
    needed = 0
    for index, (count, type) in enumerate(zip(counts, types, strict=True)):
        assert type is not None
        # Vectors beside a product are read from L2.
        if not (index == 2 and len(types) == 4):
            needed += -(-ceil(count * sizes[type.elem]) // ALIGN) * ALIGN
    return needed


@pytest.mark.parametrize("seed", range(8))
def test_halving_l1_fails_only_where_the_smallest_operands_do_not_fit(seed: int) -> None:
    for l1 in (4096 >> step for step in range(6)):
        random = np.random.default_rng(300 + seed)
        target = re.sub(r"l1_size_bytes = \d+", f"l1_size_bytes = {l1}", device(random))
        net = (images if seed % 2 else rows)(random, target, seed)
        plan = net.plan()
        needed = max(smallest(task) for task in plan.tasks())
        try:
            tiled, result, _ = tiled_plan(plan, 1, TACTICS[:1])
        except Unsupported:
            break
        if l1 <= 1024:
            same_bytes(plan, tiled, result, seed)
    else:
        return
    assert needed > l1


@pytest.mark.parametrize(("size", "kernel"), [(1, 1), (4, 3)], ids=["a vector", "an image"])
def test_channels_of_a_depthwise_convolution_are_cut(size: int, kernel: int) -> None:
    """Not even one row of 1 088 channels fits: weights are cut before the run, images by slices."""
    net = Selected(device=NPU_2048.replace("L2", "262144").replace("393216", "2048"))
    net.conv(net.tensor("i8", (1, size, size, 1088), name="x"), 1088, kernel, 1, kernel // 2, weights="each")
    plan = net.plan()
    tiled, result, _ = tiled_plan(plan, 1, TACTICS[:1])
    assert max(item.l1_bytes for item in tiled.stages) <= 2048
    same_bytes(plan, tiled, result)


def test_a_view_that_stays_in_ddr_is_carried_by_what_carries_bytes_there() -> None:
    """Where neither L1 nor L2 holds a transposition it moves from DDR to DDR, in no fewer cycles than it must."""
    text = NPU_2048.replace("L2", "1536").replace("393216", "768")
    text += """
buffer x_ddr : DDR (size=2976)
buffer y_ddr : DDR (size=2976)
let x = region(x_ddr, 0, 2976) elem=f16, shape=[3, 31, 16], layout=BMK
let y = region(y_ddr, 0, 2976) elem=f16, shape=[16, 31, 3], layout=BMK
transpose.async in x out y perm=[2, 1, 0]
"""
    plan = read_text(text)
    _, result, _ = tiled_plan(plan, 1, TACTICS[:1])
    assert simulate(result).cycles >= find_network_bounds(plan).largest.cycles


def test_l2_may_be_smaller_than_the_l1s_together() -> None:
    """Tiles are as large as the rings through L2 allow."""
    target = (
        NPU_2048.replace("L2", "16384")
        .replace("393216", "32768")
        .replace("num_engines = 1", "num_engines = 2")
    )
    net = Selected(device=target)
    net.conv(net.conv(net.tensor("i8", (1, 24, 24, 32), name="x"), 64, 3, 1, 1), 32, 3, 1, 1)
    plan = net.plan()
    tiled, result, _ = tiled_plan(plan, 0, TACTICS[:1])
    same_bytes(plan, tiled, result)


def test_what_cannot_be_divided_works_where_it_lies() -> None:
    """A cast by strides has no tiles: it works on L2, and its result goes to DDR from there."""
    text = NPU_2048.replace("L2", "65536").replace("393216", "1024")
    text += """
buffer x_ddr : DDR (size=4096)
buffer y_ddr : DDR (size=8192)
let x = region(x_ddr, 0, 4096) elem=f16, shape=[4, 32, 16], strides=[16, 64, 1]
let y = region(y_ddr, 0, 8192) elem=f32, shape=[4, 32, 16], layout=ROWS
cast.async in x out y
"""
    plan = read_text(text)
    tiled, result, _ = tiled_plan(plan)
    same_bytes(plan, tiled, result)
    report = simulate(result)
    assert report.moved("DDR") == 4096 + 8192
    assert report.cycles >= find_network_bounds(plan).largest.cycles


@pytest.mark.parametrize(
    ("shape", "strides"),
    [([64, 16], [48, 1]), ([4, 32, 16], [16, 64, 1])],
    ids=["a third of each row", "both in another order than their shapes"],
)
def test_casts_by_strides_are_divided(shape: list[int], strides: list[int]) -> None:
    """Rows of the axis that lies outermost in both; gaps of the input are loaded, those of an output would be lost."""
    count, reach = prod(shape), 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    whole = 3 * count if len(shape) == 2 else count
    order = "layout=ROWS" if len(shape) == 2 else f"strides={strides}"
    text = NPU_2048.replace("L2", "65536").replace("393216", "2048")
    text += f"""
buffer x_ddr : DDR (size={2 * whole})
buffer t_ddr : DDR (size={2 * whole})
buffer y_ddr : DDR (size={4 * count})
let x = region(x_ddr, 0, {2 * whole}) elem=f16, shape=[64, {whole // 64}], layout=ROWS
let t = region(t_ddr, 0, {2 * whole}) elem=f16, shape=[64, {whole // 64}], layout=ROWS
let part = region(t_ddr, 0, {2 * reach}) elem=f16, shape={shape}, strides={strides}
let y = region(y_ddr, 0, {4 * count}) elem=f32, shape={shape}, {order}
made = relu.async in x out t
cast.async in part out y deps=[made]
"""
    plan = read_text(text)
    tiled, result, _ = tiled_plan(plan)
    assert all(buffer.memory == "L1" for task in result.tasks() for buffer in computing(task))
    same_bytes(plan, tiled, result)


def computing(task: Task) -> list[Buffer]:
    """The memories that a task works on, where it is no move."""
    return [region.buffer for region in (*task.inputs, *task.outputs)] if task.opcode == "cast" else []


def test_nothing_is_loaded_to_where_a_store_still_reads() -> None:
    """One tile a stage: the next weights come before its stores only where both lie in L1 side by side."""
    # Weights are nine parts of L1, tiles one each; in 13 parts the weights of the next stage meet the tile.
    l1 = 13 * 512
    net = Selected(device=NPU_2048.replace("L2", "1048576").replace("393216", str(l1)))
    y = net.tensor("i8", (1, 1, 1, 512), name="x")
    for _ in range(3):
        y = net.conv(y, 512, 3, 1, 1, weights="each")
    plan = net.plan()
    tiled, result, _ = tiled_plan(plan, tactics=TACTICS[:1])
    assert max(item.l1_bytes for item in tiled.stages) <= l1
    for order in ("program", "random:3", "random:4"):
        same_bytes(plan, tiled, result, order=order)
