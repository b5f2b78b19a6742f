"""Convolutions of 3x3 windows by tiles: where they are taken, and that they are as exact as sums are."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.bridge.graph_to_kernels import flatten, graph_to_kernels, winograd
from lamella.graph.passes.fuse import fuse
from lamella.kernels.nodes import KernelGraph
from lamella.lang.tensor.write import write
from tests.support.bridge.launch_lists import compile_lists
from tests.support.bridge.operators.calls import by_reference
from tests.support.graph.texts import model_of

NETWORK = """
import nn, math;
graph G {{
    @input {{ x: real[{batch}, 8, {height}, {width}]; }}
    @variable {{
        u: real[{inner}, 8, 1, 1]; w: real[{outer}, {depth}, {window}, {window}]; b: real[{outer}];
        r: real[{batch}, {outer}, {tall}, {wide}];
    }}
    @output {{ y: real[{batch}, {outer}, {tall}, {wide}]; z: real[{batch}, {outer}, {tall}, {wide}]; }}
    @compose {{
        t = nn.conv{{padding=[0, 0, 0, 0]}}(x, u);
        c = nn.conv{{padding={padding}, stride={stride}, dilation={dilation}, groups={groups}}}(t, w, b);
        s = math.add(c, r);
        y = nn.relu(s);
        z = nn.sigmoid(c);
    }}
}}
"""


def network(
    channels: tuple[int, int],
    size: tuple[int, int, int],
    window: int = 3,
    steps: tuple[int, int, int] = (1, 1, 1),
    border: int = 1,
) -> KernelGraph:
    """A convolution between others; `steps` are stride, dilation and groups."""
    (inner, outer), (batch, height, width), (stride, dilation, groups) = channels, size, steps
    tall, wide = ((side + 2 * border - dilation * (window - 1) - 1) // stride + 1 for side in (height, width))
    text = NETWORK.format(
        batch=batch, height=height, width=width, inner=inner, outer=outer, depth=inner // groups,
        window=window, padding=[border] * 4, stride=[stride] * 2, dilation=[dilation] * 2, groups=groups,
        tall=tall, wide=wide,
    )  # fmt: skip
    return graph_to_kernels(fuse(flatten(model_of(text))))


def is_by_tiles(kernels: KernelGraph) -> bool:
    """Whether a kernel transforms its input."""
    return "%winograd" in write(kernels.program)


def largest_error(kernels: KernelGraph, shape: tuple[int, ...]) -> float:
    """The largest difference from the reference, by the largest output."""
    fed = {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    found, wanted = compile_lists(kernels)(**fed), by_reference(kernels.model)(**fed)
    return max(
        float(np.abs(np.asarray(found[name]) - wanted[name]).max() / np.abs(wanted[name]).max())
        for name in wanted
    )


@pytest.mark.parametrize(
    ("channels", "size", "border"),
    [((64, 48), (1, 12, 14), 1), ((48, 64), (2, 8, 10), 1), ((48, 80), (1, 14, 14), 0)],
)
def test_tiles_give_what_sums_do(channels: tuple[int, int], size: tuple[int, int, int], border: int) -> None:
    kernels = network(channels, size, border=border)
    assert is_by_tiles(kernels)
    assert largest_error(kernels, (size[0], 8, *size[1:])) < 2e-6


def test_strips_are_one_kernel_over_parts_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = network((32, 32), (2, 24, 20))
    monkeypatch.setattr(winograd, "STRIP_BYTES", 1 << 16)
    strips = network((32, 32), (2, 24, 20))
    assert len(strips.program.functions) == len(whole.program.functions)
    assert strips.model == whole.model
    x = np.random.default_rng(2).normal(size=(2, 8, 24, 20)).astype(np.float32)
    one, many = compile_lists(whole), compile_lists(strips)
    found, wanted = many(x=x), one(x=x)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    counts = [len(list(run.profile({"x": x}))) for run in (one, many)]
    assert counts[1] >= counts[0] + 6


def test_threads_change_no_bit() -> None:
    kernels = network((64, 48), (1, 12, 12))
    x = np.random.default_rng(1).normal(size=(1, 8, 12, 12)).astype(np.float32)
    one, two = (compile_lists(kernels, threads=count)(x=x) for count in (1, 2))
    assert all(np.array_equal(one[name], two[name]) for name in one)


OTHERS = {
    "few channels": lambda: network((16, 48), (1, 12, 12)),
    "an odd side": lambda: network((64, 64), (1, 13, 12)),
    "few tiles": lambda: network((64, 64), (1, 8, 8)),
    "other windows": lambda: network((64, 64), (1, 16, 16), window=5, border=2),
    "a stride": lambda: network((64, 64), (1, 24, 24), steps=(2, 1, 1)),
    "a dilation": lambda: network((64, 64), (1, 16, 16), steps=(1, 2, 1), border=2),
    "groups": lambda: network((128, 128), (1, 12, 12), steps=(1, 1, 2)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_no_such_convolution_is_summed_up(case: str) -> None:
    assert not is_by_tiles(OTHERS[case]())
