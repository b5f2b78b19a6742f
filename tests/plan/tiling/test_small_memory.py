"""Tilings for little L1: halving it fails only where the smallest operands of some task do not fit."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest

from lamella.base.errors import Unsupported
from lamella.lang.nem.resolved import Buffer, Task
from lamella.plan.tiling.choice import TACTICS
from lamella.plan.tiling.split import Whole, split_of
from lamella.plan.timing import simulate
from lamella.plan.timing.network_bounds import find_network_bounds
from tests.plan.tiling.test_tiling import NPU_2048
from tests.support.plan.drawn import device, images, rows
from tests.support.plan.selected import Selected, read_text, same_bytes, tiled_plan

ALIGN = 64
PRODUCTS = ("conv2d", "gemm", "matmul")


def smallest(task: Task) -> int:
    """Bytes of L1 without which a task cannot run: a row of its output, what lies under it, one channel of weights."""
    split = split_of(task, 16)
    found = 0
    for index, item in enumerate(split.inputs):
        type = item.region.type
        assert type is not None
        if not isinstance(item, Whole):
            found += max(item.part(row, 1).extent for row in (0, split.period // 2, split.period - 1))
        elif split.chunks is not None and index == 1:
            found += split.chunks.weight(type, 0, 1).extent
        elif not (
            item.region.buffer.imported
            and prod(type.shape) == type.shape[-1]
            and index > (task.opcode in PRODUCTS)
        ):
            found += item.region.extent
    found += sum(item.part(0, 1).extent for item in split.outputs)
    return found + ALIGN * (len(task.inputs) + len(task.outputs))


@pytest.mark.parametrize("seed", range(8))
def test_halving_l1_fails_only_where_the_smallest_operands_do_not_fit(seed: int) -> None:
    for l1 in (4096 >> step for step in range(7)):
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
