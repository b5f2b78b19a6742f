"""Chains of convolutions in strips: where they are taken, and that they give what the convolutions do one by one."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.bridge.graph_to_kernels import flatten, graph_to_kernels, strips
from lamella.graph.passes.fuse import GroupKind, Machine, fuse_model
from lamella.kernels.nodes import KernelGraph
from tests.support.bridge.launch_lists import compile_lists
from tests.support.bridge.operators.calls import by_reference
from tests.support.graph.texts import model_of

SMALL = Machine(cache=1 << 10)
"""A machine that has a use for strips of small images."""
NETWORK = """
import nn, math, layout;
graph G {{
    @input {{ x: real[1, {given}, {height}, {width}]; }}
    @variable {{
        v: real[{given}, {given}, 1, 1]; a: real[{wide}, {given}, {first}, {first}]; b: real[{wide}];
        w: real[{wide}, 1, {taps}]; c: real[{wide}]; p: real[{made}, {wide}, 1, 1];
    }}
    @output {{ y: real[1, {made}, {tall}, {across}]; }}
    @compose {{
        h = nn.conv(x, v);
        e = nn.conv{{padding={border}}}(h, a, b);
        f = math.clamp(e, 0.0, 1.0);
        d = nn.conv{{padding={padding}, stride={stride}, dilation={dilation}, groups={wide}}}(f, w, c);
        g = nn.{activation}(d);
        o = nn.conv(g, p);
        {rest}
    }}
}}
"""
ENDS = {"plain": "y = nn.relu(o);", "residual": "y = math.add(o, h);"}


def draw(seed: int) -> tuple[str, tuple[int, ...]]:
    """A network drawn from a seed, and the shape of its input."""
    source = np.random.default_rng(seed)
    taps = source.integers(2, 6, 2).tolist() if seed % 3 else [3, 3]
    stride, dilation = source.integers(1, 3, 2).tolist(), source.integers(1, 3, 2).tolist()
    end = "residual" if seed % 4 == 0 else "plain"
    if end == "residual":
        taps, stride, dilation = [3, 3], [1, 1], [1, 1]
    reach = [(tap - 1) * step + 1 for tap, step in zip(taps, dilation, strict=True)]
    padding = [int(source.integers(0, (size + 1) // 2)) for size in reach]
    if end == "residual":
        padding = [1, 1]
    height, width = source.integers(12, 24, 2).tolist()
    given, wide = source.choice([5, 16, 24]), source.choice([16, 24, 40, 48])
    made = given if end == "residual" else source.choice([8, 24, 33])
    first = 3 if given == 5 else 1  # longer sums over windows are computed in other ways
    sizes = [height, width]
    tall, across = (
        (size + 2 * low - far) // step + 1
        for size, low, far, step in zip(sizes, padding, reach, stride, strict=True)
    )
    text = NETWORK.format(
        given=given, height=height, width=width, wide=wide, first=first, border=first // 2, made=made, tall=tall,
        taps=", ".join(map(str, taps)), padding=[*padding, *padding], stride=stride, dilation=dilation,
        across=across, activation=source.choice(["relu", "sigmoid"]), rest=ENDS[end],
    )  # fmt: skip
    return text, (1, int(given), height, width)


def kernels_of(text: str) -> tuple[KernelGraph, bool]:
    """The kernels of a network, and whether it has strips."""
    fusion = fuse_model(flatten(model_of(text)), SMALL)
    kernels = graph_to_kernels(fusion.model)
    assert not kernels.native
    called = {item.operator for item in kernels.model.graph.operations()}
    chains = {item.operator for item in fusion.groups if item.kind is GroupKind.STRIP}
    return kernels, bool(called & chains)


def compare(kernels: KernelGraph, shape: tuple[int, ...]) -> None:
    """Two runs, because halos must stay what they are; the reference is the judge."""
    run, reference = compile_lists(kernels), by_reference(kernels.model)
    for seed in (0, 1):
        fed = {"x": np.random.default_rng(seed).normal(size=shape).astype(np.float32)}
        found, wanted = run(**fed), reference(**fed)
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=2e-6 * float(np.abs(value).max()))


@pytest.mark.parametrize("seed", range(8))
def test_strips_give_what_the_convolutions_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "STRIP_BYTES", 40_000)
    monkeypatch.setattr(strips, "MOST_TWICE", 1)
    text, shape = draw(seed)
    kernels, has_strips = kernels_of(text)
    assert has_strips
    compare(kernels, shape)


def test_a_chain_of_two_writes_what_others_read() -> None:
    text, shape = draw(1)
    several = "n = nn.sum_pool{size=[3, 3], padding=1}(g); q = math.add(n, g); o = nn.conv(q, p);"
    kernels, has_strips = kernels_of(text.replace("o = nn.conv(g, p);", several))
    assert has_strips
    compare(kernels, shape)


def test_rows_that_no_cache_holds_are_no_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "STRIP_BYTES", 1)
    text, shape = draw(0)
    kernels, has_strips = kernels_of(text)
    assert not has_strips
    compare(kernels, shape)


def test_what_others_read_is_no_chain() -> None:
    text, _ = draw(0)
    other = text.replace(
        "y = math.add(o, h);",
        "s = math.sum_reduce{axes=[1, 2, 3]}(f); u = math.add(o, h); y = math.mul(u, s);",
    )
    fusion = fuse_model(flatten(model_of(other)), SMALL)
    assert not [item for item in fusion.groups if item.kind is GroupKind.STRIP]
