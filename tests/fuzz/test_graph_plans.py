"""Random graphs, quantised and lowered for random devices.

Plans are legal, give the numbers of their graphs, and take no fewer cycles than any plan must. `make test` walks 20
graphs on 3 devices each, `make fuzz` 3 000 new ones, in groups that workers share.

A failure names its network: `LAMELLA_CASE=… pytest tests/fuzz/test_graph_plans.py -k WAY` walks that one alone.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.graph.model import Model
from lamella.pipeline.given import options_of
from lamella.pipeline.nem.lowering import LoweredPlan, from_graph, simulated, tolerance_of
from lamella.pipeline.nem.stages import executable
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.api import quantize_graph
from tests.support.bridge.layers import (
    RandomNetwork,
    random_attention,
    random_image_network,
    random_row_network,
)
from tests.support.plan.drawn import device

MUTATIONS = int(os.environ.get("LAMELLA_FUZZ", "0"))
IS_LONG = MUTATIONS > 0
SEED = int(os.environ.get("LAMELLA_SEED", time.time_ns() if IS_LONG else 0))
CASE = os.environ.get("LAMELLA_CASE", "")
SHARE = 33
"""Mutations that one network stands for: it is quantised, and lowered and run on three devices."""
TOGETHER = 5
"""Networks of a group."""
LEAST_L1 = (16384, 16384, 512)
"""Bytes of L1 that the devices have at least: on the last one, tasks are cut into slices."""
DECODE = "quant.dequantize"
WAYS: dict[str, Callable[[int], tuple[Model, RandomNetwork]]] = {
    "images": lambda seed: random_image_network(seed, 1 + seed % 4),
    "rows": lambda seed: random_row_network(seed, 1 + seed % 4),
    "attention": random_attention,
    "products": lambda seed: random_row_network(seed, 6),
}
SCHEMES = ("int8", "int8", "w4a8")
GROUPS = MUTATIONS // SHARE // len(WAYS) // TOGETHER if IS_LONG and not CASE else 1
FOUND = {
    "a part of a known factor that several parts of a product share": ("rows", 12323762530),
    "a transposition in L2 of what engines left channel by channel": ("products", 469275832781),
    "an addend of a convolution that stands for a product with a number": ("images", 686276953378),
    "parts of a buffer of which not the first is shared by channels": ("images", 345322422990),
}
"""Networks of `make fuzz` that had no plan, or a wrong one."""


def quantised(way: str, seed: int) -> tuple[Model, Mapping[str, Array]]:
    """A random network on codes and what it is fed; islands are f16, as plans have them."""
    model, net = WAYS[way](seed)
    words = {"scheme": SCHEMES[seed % 3], "islands": "f16", "rank": False, "seed": seed % 1000, "samples": 1}
    options = replace(options_of(words, by_command=True), random=True, backend="reference")
    found = quantize_graph(replace(model, data=net.weights), options).model
    # What is drawn without regard to the network hides whole rows of attention.
    return found, net.fed if seed % 2 else compile_model(found, seed=0).draw_inputs()


def judge(model: Model, inputs: Mapping[str, Array], path: Path) -> bool:
    """Whether a model has a plan for a device; a plan that is wrong is an AssertionError."""
    options = Options(device=str(path), seed=0)
    try:
        lowered = from_graph(model, path, options)
    except LamellaError as problem:
        # What cannot be lowered is refused with the rule that says so, and names what is missing.
        if {item.code for item in problem.findings} <= {"NEM200", "NEM201"}:
            return False
        raise
    wanted = compile_model(model, seed=0)(**inputs)
    step = max(
        (
            float(str(dict(item.attributes)["scale"]))
            for item in model.graph.operations()
            if item.operator == DECODE
        ),
        default=0.0,
    )
    for stage in lowered.stages:
        found = executable(stage.program, stage.numbers, model.graph, options)(**inputs)
        compare(wanted, found, tolerance_of(lowered), step)
    judge_cycles(lowered)
    return True


def compare(wanted: Mapping[str, Array], found: Mapping[str, Array], tolerance: float, step: float) -> None:
    """The numbers of a plan are those of its graph: all of them, but for roundings of float islands and what they do.

    A number of an island that lies between two codes may become either: `step` is how far those are apart.
    """
    for name, array in wanted.items():
        assert found[name].shape == array.shape, name
        if tolerance:
            scale = max(float(np.abs(array[np.isfinite(array)]).max(initial=0.0)), 1e-2)
            limit = max(2 * tolerance * scale, 2.01 * step)
            np.testing.assert_allclose(found[name], array, rtol=0, atol=limit, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], array, err_msg=name)


def judge_cycles(lowered: LoweredPlan) -> None:
    """No plan is faster than the bounds of its network."""
    report = simulated(lowered)
    assert report is not None
    assert report.network is not None
    assert report.cycles >= report.network.largest.cycles


def judge_all(way: str, seed: int, folder: Path) -> int:
    """How many of its devices a network has a plan for."""
    plans = 0
    model, fed = quantised(way, seed)
    for number in range(len(LEAST_L1)):
        plans += judge(model, fed, drawn_device(seed, number, folder))
    return plans


def drawn_device(seed: int, number: int, folder: Path) -> Path:
    """The file of one of the devices of a network."""
    path = folder / f"drawn{number}.nem"
    text = device(np.random.default_rng(seed + number), LEAST_L1[number]).rpartition("\n")[0]
    text = text.replace("WDM = 0", f"WDM = {(seed + number) % 3}")
    path.write_text(text + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("way", WAYS)
def test_graphs_have_plans(way: str, group: int, tmp_path: Path) -> None:
    chance = random.Random(f"{way} {SEED} {group}")
    seeds = [int(CASE)] if CASE else [chance.randrange(1 << 40) for _ in range(TOGETHER)]
    plans = 0
    for seed in seeds:
        try:
            plans += judge_all(way, seed, tmp_path)
        except Exception as problem:
            raise AssertionError(f"{way} network {seed}") from problem
    assert plans >= len(seeds)


@pytest.mark.parametrize(("way", "seed"), FOUND.values(), ids=FOUND)
def test_networks_that_had_wrong_plans(way: str, seed: int, tmp_path: Path) -> None:
    assert judge(*quantised(way, seed), drawn_device(seed, len(LEAST_L1) - 1, tmp_path))


def test_nothing_computes_on_ddr(tmp_path: Path) -> None:
    """A kernel that is not divided needs its operands in L2; written to DDR for nothing, its plan beat the bounds."""
    model, _ = quantised("images", 415368880499)
    path = drawn_device(415368880499, len(LEAST_L1) - 1, tmp_path)
    with pytest.raises(
        LamellaError, match=r"needs \d+ bytes of L2 at once; the device has 3456: \S+ needs \S+ \(\d+ bytes\)"
    ):
        from_graph(model, path, Options(device=str(path), seed=0))
