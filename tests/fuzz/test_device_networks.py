"""Random networks as they are planned for a GPU, run without one: thousands of them in `make fuzz`.

Launches that were joined give the bits of those that were not, whatever has no order may run in any, a GPU that is
emulated runs their PTX, and the numbers are those of the reference in 64 bits. The assembler of NVIDIA takes the code,
where it is installed.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from lamella.backend.cpu.compile import emit
from lamella.backend.executor import GraphExecutable
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.graph.model import Model
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import Target, find_target
from lamella.lang.skriptnd.rules.graphs import TOO_MUCH_MEMORY
from lamella.lang.tensor.rules.running import MATRIX_CODE, MATRIX_LIMIT
from lamella.pipeline.backends.kernels import compile_open
from lamella.pipeline.options import Options
from tests.backend.cuda.test_cuda_text import assemble_on
from tests.bridge.test_graph_to_kernels_operators import calls
from tests.support.bridge.device_lists import (
    HOPPER,
    fused_program,
    plan_for_device,
    run_native,
    run_shuffled,
    with_fewer,
)
from tests.support.bridge.layers import (
    RUNS,
    TOLERANCE,
    RandomNetwork,
    compare,
    load_weights,
    random_attention,
    random_image_network,
    random_large_network,
    random_long_network,
    random_row_network,
    random_wide_network,
    reference,
)
from tests.support.bridge.operators.calls import agree, build, by_reference
from tests.support.bridge.transformer_layers import (
    random_prompt_network,
    random_token_network,
    random_way_back,
)
from tests.support.gpu.driver import MAJOR, MINOR, MULTIPROCESSORS, emulated_device

SHARE = 20
"""Mutations that one network stands for: it is compiled twice and interpreted twice."""
IS_LONG = "LAMELLA_FUZZ" in os.environ
SEED = int(os.environ.get("LAMELLA_SEED", time.time_ns() if IS_LONG else 0))
SMALL: dict[str, Callable[[int, int], tuple[Model, RandomNetwork]]] = {
    "images": random_image_network,
    "rows": random_row_network,
    "attention": lambda seed, _: random_attention(seed),
}
QUICK = SMALL | {"wide": random_wide_network, "long": random_long_network, "large": random_large_network}
WAYS = QUICK | {
    "tokens": random_token_network,
    "prompt": random_prompt_network,
    "back": random_way_back,
}
SLOW = {"prompt"}
"""What the interpreter takes minutes for."""
WITH_CODES = ("rows", "tokens", "prompt")
CODES = ("w8", "w4", "fp8")
HALVES = 4e-2
"""How far factors that are rounded to bf16 may take a network of some steps."""
SHUFFLED = 1e-4
"""The interpreter's functions are those of NumPy in 32 bits."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network, and the GPU that it is planned for."""

    model: Model
    net: RandomNetwork
    options: Options
    target: Target
    extents: Mapping[str, int]
    name: str

    def plan(self) -> KernelGraph:
        """Its kernels."""
        return plan_for_device(self.model, self.options, self.target, self.extents)


def network(way: str, chance: random.Random) -> Case:
    """A network of some way."""
    seed, steps = chance.randrange(1 << 40), chance.randint(1, 6)
    precision = chance.choice(("f32", "f32", "bf16", *(CODES if way in WITH_CODES else ())))
    target, options = (
        with_fewer(find_target(HOPPER), chance.choice((1, 4, 132, 132))),
        Options(precision=precision),
    )
    model, net = WAYS[way](seed, steps)
    extents = {"T": 1} if net.remembers and chance.random() < 0.8 else {}
    name = f"{way} network {seed} of {steps} steps, {precision}, {target.multiprocessors}, {extents}"
    return Case(model, net, options, target, extents, name)


def start(made: KernelGraph, fuses: bool) -> GraphExecutable:
    """Machine code of this processor, or the interpreter where tiles are larger than its registers."""
    try:
        return run_native(made, fuses)
    except LamellaError as problem:
        if problem.findings[0].code not in (MATRIX_LIMIT.code, MATRIX_CODE.code):
            raise
    return run_shuffled(made, 1, fuses)


def call(run: GraphExecutable, net: RandomNetwork, runs: int) -> dict[str, Array]:
    """What the last of some runs gives; all give the same but where one remembers the other."""
    load_weights(run, net)
    found = {name: array.copy() for name, array in run(**net.fed).items()}
    for _ in range(runs - 1):
        before, found = found, {name: array.copy() for name, array in run(**net.fed).items()}
        if not net.remembers:
            same(before, found)
    return found


def judge(found: Mapping[str, Array], case: Case, runs: int, allowed: float) -> None:
    """Compare numbers with those of the reference, unless its products, taken apart, are more than memory holds."""
    model, net, options = case.model, case.net, case.options
    if options.precision in CODES:
        expected: Mapping[str, Array] = call(compile_open(model, "cpu", options), net, runs)
    else:
        try:
            expected = reference(model, net, runs if net.remembers else 1)
        except LamellaError as problem:
            if problem.findings[0].code != TOO_MUCH_MEMORY.code:
                raise
            return
    if options.precision == "f32" or not net.jumps:
        compare(found, expected, allowed if options.precision == "f32" else HALVES)


def same(found: Mapping[str, Array], other: Mapping[str, Array]) -> None:
    """Two runs give the same bits."""
    for name, array in found.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("way", WAYS if IS_LONG else QUICK)
def test_fewer_launches_give_the_numbers_of_the_reference(way: str, mutations: int) -> None:
    chance = random.Random(f"{way} {SEED}")
    for _ in range(mutations // SHARE if IS_LONG else 2 if way in SMALL else 1):
        case = network(way, chance)
        try:
            made = case.plan()
            found = [call(start(made, fuses), case.net, RUNS) for fuses in (False, True)]
            same(*found)
            judge(found[0], case, RUNS, TOLERANCE)
        except Exception as problem:
            raise AssertionError(case.name) from problem


@pytest.mark.parametrize("way", [way for way in WAYS if way not in SLOW] if IS_LONG else SMALL)
def test_what_has_no_order_may_have_any(way: str, mutations: int, tmp_path: Path) -> None:
    chance = random.Random(f"{SEED} {way}")
    for _ in range(mutations // SHARE // 4 if IS_LONG else 1):
        case = network(way, chance)
        try:
            made = case.plan()
            found = [call(run_shuffled(made, seed), case.net, 1) for seed in (1, 2)]
            same(*found)
            judge(found[0], case, 1, SHUFFLED)
            if IS_LONG:
                assemble_on(HOPPER, emit(fused_program(made), find_target(HOPPER)).text, tmp_path)
        except Exception as problem:
            raise AssertionError(case.name) from problem


@pytest.mark.parametrize("way", WAYS if IS_LONG else ("rows", "attention"))
def test_a_gpu_gives_the_numbers_of_the_reference(way: str, mutations: int) -> None:
    """PTX, the driver's calls and the ways of memory too; the second run is a graph of launches."""
    chance = random.Random(f"{SEED} {way} emulated")
    for _ in range(mutations // SHARE // 4 if IS_LONG else 1):
        case = network(way, chance)
        try:
            with emulated_device(chance.randrange(100)) as device:
                major, minor = chance.choice(((9, 0), (9, 0), (9, 0), (8, 0), (7, 5), (12, 0)))
                device.attributes |= {
                    MULTIPROCESSORS: case.target.multiprocessors,
                    MAJOR: major,
                    MINOR: minor,
                }
                found = call(compile_open(case.model, "cuda", case.options), case.net, RUNS)
            judge(found, case, RUNS, TOLERANCE)
        except Exception as problem:
            raise AssertionError(case.name) from problem


@pytest.mark.parametrize("operator", sorted(calls())[5 :: 1 if IS_LONG else 48])
def test_every_operator_runs_on_a_gpu(operator: str) -> None:
    model, fed = build(calls()[operator])
    expected = by_reference(model)(**fed)
    with emulated_device():
        run = compile_open(model, "cuda", Options())
        for _ in range(2):
            agree({name: array.copy() for name, array in run(**fed).items()}, expected)


@pytest.mark.parametrize("operator", sorted(calls())[:: 1 if IS_LONG else 24])
def test_every_operator_runs_in_any_order(operator: str, tmp_path: Path) -> None:
    model, fed = build(calls()[operator])
    made = plan_for_device(model, Options())
    agree(run_shuffled(made, 1)(**fed), by_reference(model)(**fed))
    assemble_on(HOPPER, emit(made.program, find_target(HOPPER)).text, tmp_path)
