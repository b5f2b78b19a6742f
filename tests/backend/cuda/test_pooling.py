"""Pooling as it is planned for a GPU: the interpreter runs it, the reference judges; enough work-items."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.run.proof import LaunchFacts, prove
from lamella.backend.executor.kernels import compile_graph
from lamella.kernels.nodes import KernelCall, KernelGraph
from lamella.kernels.rewrite import walk
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Builtin, For, Function, Load, Store
from tests.backend.cuda.test_depthwise import Precision, plan, window_counts
from tests.backend.cuda.test_tensor_core_gemm import draw_inputs, write_graph

ENDS = {
    "alone": "y = math.mul(p, 1.0); z = math.mul(r, 1.0);",
    "a function of it": "y = nn.relu(p); z = math.mul(r, 1.0);",
    "what is added": "y = math.add(p, r); z = math.mul(r, 1.0);",
    "two outputs": "y = math.mul(p, r); z = nn.relu(p);",
}


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of images whose channels lie closest."""

    operator: str = "nn.max_pool"
    batch: int = 1
    channels: int = 40
    extents: tuple[int, ...] = (9, 11)
    window: tuple[int, ...] = (3, 3)
    stride: tuple[int, ...] = (2, 2)
    dilation: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (1, 1, 1, 1)
    ends: str = "alone"

    @property
    def room(self) -> tuple[int, ...]:
        """The extents of the output."""
        spans = zip(self.extents, self.window, self.stride, self.dilation, strict=True)
        return window_counts(spans, self.padding)

    @property
    def graph(self) -> tuple[str, str]:
        """Its tensors and its lines."""
        image = [self.batch, *self.extents, self.channels]
        out = [self.batch, *self.room, self.channels]
        told = {
            "size": self.window,
            "stride": self.stride,
            "dilation": self.dilation,
            "padding": self.padding,
        }
        axes = ", ".join(map(str, range(1, 1 + len(self.extents))))
        words = ", ".join(f"{name}={list(value)}" for name, value in told.items())
        head = f"@input {{ x: real{image}; r: real{out}; }} @output {{ y: real{out}; z: real{out}; }}"
        return head, f"p = {self.operator}{{axes=[{axes}], {words}}}(x); {ENDS[self.ends]}"


def pools_of(made: KernelGraph) -> Iterator[tuple[Function, KernelCall]]:
    """The kernels whose work-items have tiles of windows: nothing in them is a loop, and several loads are joined."""
    for call in (item for calls in made.calls.values() for item in calls):
        kernel = next(item for item in made.program.functions if item.name == call.kernel)
        nodes = [item.instruction for item in walk(kernel.body)]
        counts = any(isinstance(item, Builtin) and item.name == "subgroup_local_id" for item in nodes)
        if "pool" in kernel.name and counts and not any(isinstance(item, For) for item in nodes):
            yield kernel, call


def verify(case: Pool, multiprocessors: int, folder: Path) -> list[tuple[Function, KernelCall]]:
    """Run the kernels of a pool; gives those whose work-items have tiles."""
    path = write_graph(folder, *case.graph)
    made = plan(path, multiprocessors)
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = draw_inputs(made, np.random.default_rng(5))
    given["x"].flat[::97] = np.nan
    found, want = run(**given), lamella.compile(path, backend="reference")(**given)
    for name in "yz":
        np.testing.assert_allclose(found[name], want[name], rtol=1e-5, atol=1e-5)
    pools = list(pools_of(made))
    for kernel, call in pools:
        assert prove(kernel, LaunchFacts({}, {}), None, call.groups, default_sizes(kernel)).is_complete
    return pools


CASES = {
    "the largest": Pool(),
    "what is added to the largest": Pool(batch=2, channels=24, ends="what is added"),
    "sums": Pool("nn.sum_pool", 1, 33, ends="two outputs"),
    "a function of them": Pool(extents=(12, 8), window=(2, 3), padding=(0, 0, 0, 0), ends="a function of it"),
    "wide windows": Pool(extents=(6, 7), window=(5, 3), dilation=(1, 3), padding=(2, 3, 2, 4), stride=(1, 1)),
    "a sequence": Pool("nn.sum_pool", 3, 16, (23,), (4,), (3,), (2,), (5, 0), "what is added"),
}


@pytest.mark.parametrize("multiprocessors", [1, 132])
@pytest.mark.parametrize("name", CASES)
def test_pools_are_those_of_the_reference(name: str, multiprocessors: int, tmp_path: Path) -> None:
    assert len(verify(CASES[name], multiprocessors, tmp_path)) == 1


def drawn(seed: int, count: int) -> list[Pool]:
    """Random pools."""
    chance = random.Random(seed)
    found: list[Pool] = []
    while len(found) < count:
        rank = chance.choice((1, 2, 2))

        def sizes(low: int, high: int, length: int = rank) -> tuple[int, ...]:
            return tuple(chance.randint(low, high) for _ in range(length))

        case = Pool(
            chance.choice(("nn.max_pool", "nn.sum_pool")),
            chance.randint(1, 3),
            chance.choice((9, 16, 33, 40)),
            sizes(3, 9),
            sizes(1, 4),
            sizes(1, 3),
            sizes(1, 2),
            sizes(0, 4, 2 * rank),
            chance.choice(tuple(ENDS)),
        )
        if min(case.room) > 0:
            found.append(case)
    return found


def test_random_pools_are_those_of_the_reference(tmp_path: Path) -> None:
    found = [verify(case, 1 + number % 2, tmp_path) for number, case in enumerate(drawn(3, 14))]
    assert sum(map(len, found)) > 5


def test_windows_apart_are_shared_as_any_reduction(tmp_path: Path) -> None:
    assert not verify(Pool(extents=(12, 8), window=(2, 2), padding=(0, 0, 0, 0)), 1, tmp_path)


LAYERS = {
    "a large image": Pool(extents=(112, 112), channels=64),
    "many images": Pool(batch=32, extents=(112, 112), channels=64),
    "sums": Pool("nn.sum_pool", extents=(28, 28), channels=256, stride=(1, 1)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_pools_have_work_for_all_multiprocessors(name: str, tmp_path: Path) -> None:
    """Two warps for each at least, none of which goes through a loop or loads more than its windows have."""
    case = LAYERS[name]
    ((kernel, call),) = pools_of(plan(write_graph(tmp_path, *case.graph), 132))
    assert call.groups >= 2 * 132
    statements = [item.instruction for item in walk(kernel.body)]
    loads = sum(isinstance(item, Load) for item in statements)
    outputs = case.batch * case.channels * prod(case.room)
    assert 32 * call.groups * loads <= 1.1 * outputs * prod(case.window)


BEFORE_A_PRODUCT = (
    "@input { x: real[2,3,14,14]; } @variable { u: real[64,3,3,3]; w: real[64,64,3,3]; b: real[64]; }"
    " @output { y: real[2,64,7,7]; }",
    "a = nn.conv{padding=[1,1,1,1]}(x, u); t = nn.relu(a);"
    " p = nn.max_pool{size=[3,3], stride=[2,2], padding=[1,1,1,1]}(t);"
    " y = nn.conv{padding=[1,1,1,1]}(p, w, b);",
)


def test_what_a_product_reads_is_rounded_beside_the_windows(tmp_path: Path) -> None:
    precision: Precision = "bf16"
    path = write_graph(tmp_path, *BEFORE_A_PRODUCT)
    made = plan(path, 132, precision)
    ((kernel, _),) = pools_of(made)
    stores = [item.instruction.operand for item in walk(kernel.body) if isinstance(item.instruction, Store)]
    (written,) = (item.type for item in kernel.parameters if item.value in stores)
    assert "bf16" in repr(written)
    assert emit(made.program, find_target("sm_90a")).text
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = draw_inputs(made, np.random.default_rng(7))
    want = lamella.compile(path, backend="reference")(**given)["y"]
    np.testing.assert_allclose(run(**given)["y"], want, atol=2**-6 * np.abs(want).max())


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*CASES, *LAYERS])
def test_a_device_pools_the_same(name: str, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *{**CASES, **LAYERS}[name].graph)
    given = draw_inputs(plan(path, 132), np.random.default_rng(6))
    found, want = (lamella.compile(path, backend=item)(**given) for item in ("cuda", "reference"))
    for key in "yz":
        np.testing.assert_allclose(found[key], want[key], rtol=1e-4, atol=1e-4)
