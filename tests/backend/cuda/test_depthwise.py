"""Depthwise convolutions as they are planned for a GPU: the interpreter runs them, the reference judges."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.run.proof import LaunchFacts, prove
from lamella.backend.cuda.compile import with_sizes
from lamella.backend.executor.kernels import compile_graph
from lamella.kernels.nodes import KernelCall, KernelGraph
from lamella.kernels.rewrite import walk
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Builtin, For, Function, Load, Scalar
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options
from tests.backend.cuda.test_tensor_core_gemm import draw_inputs, write_graph


def window_counts(spans: Iterable[tuple[int, int, int, int]], padding: tuple[int, ...]) -> tuple[int, ...]:
    """How many windows there are along each dimension of an extent, with a size, a stride and a dilation."""
    half = len(padding) // 2
    return tuple(
        (extent + low + high - (size - 1) * apart - 1) // step + 1
        for (extent, size, step, apart), low, high in zip(spans, padding[:half], padding[half:], strict=True)
    )


@dataclass(frozen=True, slots=True)
class Windows:
    """A convolution of each channel by itself, between two of single places: all of them together lie closest."""

    batch: int = 1
    channels: int = 40
    multiplier: int = 1
    extents: tuple[int, ...] = (9, 11)
    window: tuple[int, ...] = (3, 3)
    stride: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (1, 1, 1, 1)
    ends: str = "e = nn.relu(s);"

    @property
    def room(self) -> tuple[int, ...]:
        """The extents of the output."""
        spans = zip(self.extents, self.window, self.stride, self.dilation, strict=True)
        return window_counts(spans, self.padding)

    @property
    def graph(self) -> tuple[str, str]:
        """Its tensors and its lines."""
        out, ones = self.channels * self.multiplier, [1] * len(self.extents)
        shapes = {
            "x": [self.batch, 3, *self.extents],
            "r": [self.batch, out, *self.room],
            "u": [self.channels, 3, *ones],
            "w": [out, 1, *self.window],
            "b": [1, out, *ones],
            "v": [4, out, *ones],
            "y": [self.batch, 4, *self.room],
        }
        told = {name: f"{name}: real{shape}; " for name, shape in shapes.items()}
        head = f"@input {{ {told['x']}{told['r']} }} @variable {{ {told['u']}{told['w']}{told['b']}{told['v']} }}"
        words = ", ".join(f"{name}={list(getattr(self, name))}" for name in ("stride", "dilation", "padding"))
        lines = f"a = nn.conv(x, u); t = nn.silu(a); c = nn.conv{{groups={self.channels}, {words}}}(t, w);"
        return (
            f"{head} @output {{ {told['y']} }}",
            f"{lines} s = math.add(c, b); {self.ends} y = nn.conv(e, v);",
        )


Precision = Literal["f32", "bf16"]


def plan(path: Path, multiprocessors: int, precision: Precision = "f32") -> KernelGraph:
    """The kernels of a graph for a Hopper of so many multiprocessors."""
    model: Any = lamella.load(path)
    options, target = (
        Options(precision=precision),
        replace(find_target("sm_90a"), multiprocessors=multiprocessors),
    )
    made = to_kernels(prepare(model, options, True), options, {}, True, target)
    return replace(made, program=with_sizes(made.program))


def tiles_of(made: KernelGraph) -> Iterator[tuple[Function, KernelCall]]:
    """The kernels whose work-items have tiles."""
    for call in (item for calls in made.calls.values() for item in calls):
        kernel = next(item for item in made.program.functions if item.name == call.kernel)
        names = [item.instruction.name for item in walk(kernel.body) if isinstance(item.instruction, Builtin)]
        if "subgroup_local_id" in names and any("packed" in item.value.name for item in kernel.parameters):
            yield kernel, call


def drawn(seed: int, count: int) -> list[Windows]:
    """Random convolutions."""
    chance = random.Random(seed)
    found: list[Windows] = []
    while len(found) < count:
        rank = chance.choice((1, 2, 2, 2))

        def sizes(low: int, high: int, length: int = rank) -> tuple[int, ...]:
            return tuple(chance.randint(low, high) for _ in range(length))

        case = Windows(
            chance.randint(1, 3),
            chance.choice((9, 16, 33, 40)),
            chance.choice((1, 1, 1, 8)),
            sizes(3, 9),
            sizes(1, 5),
            sizes(1, 3),
            sizes(1, 2),
            sizes(0, 2, 2 * rank),
            chance.choice(
                ("e = nn.relu(s);", "e = math.add(s, r);", "m = math.mul(c, r); e = math.add(m, s);")
            ),
        )
        if min(case.room) > 0:
            found.append(case)
    return found


CASES = {
    "windows": Windows(),
    "large windows": Windows(channels=32, extents=(7, 9), window=(7, 7), padding=(3, 3, 3, 3)),
    "windows that are not written out": Windows(
        channels=16, extents=(13, 14), window=(12, 13), padding=(2, 0, 0, 4), ends="e = math.mul(s, r);"
    ),
    "a sequence": Windows(2, 24, 1, (19,), (4,), (1,), (1,), (3, 0), "e = nn.silu(s);"),
}


def verify(
    case: Windows, multiprocessors: int, folder: Path, precision: Precision = "f32"
) -> list[tuple[Function, KernelCall]]:
    """Run the kernels of a convolution; gives those whose work-items have tiles."""
    path = write_graph(folder, *case.graph)
    made = plan(path, multiprocessors, precision)
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = draw_inputs(made, np.random.default_rng(5))
    want = lamella.compile(path, backend="reference")(**given)["y"]
    close = 1e-5 if precision == "f32" else 2**-7
    np.testing.assert_allclose(run(**given)["y"], want, rtol=1e-4, atol=close * np.abs(want).max())
    found = list(tiles_of(made))
    for kernel, call in found:
        proof = prove(kernel, LaunchFacts({}, {}), None, call.groups, default_sizes(kernel))
        assert proof.is_complete
    return found


@pytest.mark.parametrize("multiprocessors", [1, 132])
@pytest.mark.parametrize("name", CASES)
def test_tiles_are_those_of_the_reference(name: str, multiprocessors: int, tmp_path: Path) -> None:
    assert len(verify(CASES[name], multiprocessors, tmp_path)) == 1


def test_random_windows_are_those_of_the_reference(tmp_path: Path) -> None:
    found = [verify(case, 1 + number % 2, tmp_path) for number, case in enumerate(drawn(4, 12))]
    assert sum(map(len, found)) > 5


@pytest.mark.parametrize("multiprocessors", [1, 132])
def test_factors_may_be_halves(multiprocessors: int, tmp_path: Path) -> None:
    case = Windows(2, 40, 1, (15, 17), (7, 7), padding=(3, 3, 3, 3), ends="e = math.add(s, r);")
    ((kernel, _),) = verify(case, multiprocessors, tmp_path, "bf16")
    loads = [item.instruction for item in walk(kernel.body) if isinstance(item.instruction, Load)]
    assert sum(item.type == Scalar("bf16") for item in loads) > 48


LAYERS = {
    "few channels of a large image": Windows(1, 32, 1, (112, 112)),
    "windows two apart": Windows(1, 96, 1, (112, 112), stride=(2, 2)),
    "many channels of a small image": Windows(1, 960, 1, (7, 7)),
    "large windows": Windows(1, 96, 1, (56, 56), (7, 7), padding=(3, 3, 3, 3)),
    "many images": Windows(32, 144, 1, (56, 56)),
    "a sequence": Windows(8, 1536, 1, (64,), (4,), (1,), (1,), (3, 0)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_work_for_all_multiprocessors(name: str, tmp_path: Path) -> None:
    """Two warps for each at least, none of which goes through a loop, and registers hold what several sums need."""
    case = LAYERS[name]
    ((kernel, call),) = tiles_of(plan(write_graph(tmp_path, *case.graph), 132))
    assert kernel.attributes is not None
    assert kernel.attributes.find("work_group_size") == (32, 1)
    assert call.groups >= 2 * 132
    statements = [item.instruction for item in walk(kernel.body)]
    assert not any(isinstance(item, For) for item in statements)
    sums = case.batch * case.channels * prod(case.room)
    loads = 32 * call.groups * sum(isinstance(item, Load) for item in statements)
    # A small image has so few sums that each is a work-item's own.
    assert loads < sums * prod(case.window) * (1.2 if sums > 1 << 17 else 2.2)


def test_code_of_tiles_is_made(tmp_path: Path) -> None:
    made = plan(write_graph(tmp_path, *CASES["large windows"].graph), 2)
    assert emit(made.program, find_target("sm_90a")).text.count("fmul") > 100


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*CASES, *LAYERS])
def test_a_device_computes_the_same(name: str, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *{**CASES, **LAYERS}[name].graph)
    given = draw_inputs(plan(path, 132), np.random.default_rng(6))
    found, want = (lamella.compile(path, backend=item)(**given)["y"] for item in ("cuda", "reference"))
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-3)
