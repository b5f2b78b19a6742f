"""Loop peeling at borders, windows as bounds of loops, precomputed tables, and what is packed once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

import lamella
from lamella.base.dtype import F32
from lamella.bridge.graph_to_kernels.affine import find_range
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.peel_borders import Shapes, find_windows, guards_of, peel_borders
from lamella.bridge.graph_to_kernels.tables import tabulate
from lamella.kernels.launches import Buffer, BufferView, Launch, LaunchList
from lamella.kernels.schedule import hoist
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Loop
from lamella.ops.formula import Scalar as Term

OUTER, INNER = Index("i"), Index("j")
SHAPES: Shapes = {("x", None): (200,), ("y", None): (100,)}


def _pool(count: int, stride: int, padding: int, window: int) -> Contraction:
    """`y[i] >= x[|stride * i + j - padding|]`."""
    place: Term = Apply("+", (Apply("*", (OUTER, stride), "int"), INNER), "int")
    read = Element("x", (Guard(Apply("+", (place, -padding), "int")),), "real")
    loops = (Loop("i", count), Loop("j", window))
    return Contraction((Element("y", (OUTER,), "real"),), ">=", (read,), loops)


def test_only_borders_are_tested() -> None:
    parts = peel_borders(_pool(100, 2, 3, 7), "i", SHAPES)
    assert [part.loops[0].extent for part in parts] == [2, 97, 1]
    assert [len(list(guards_of(part, SHAPES))) for part in parts] == [1, 0, 1]
    assert peel_borders(_pool(20, 2, 3, 7), "i", SHAPES) == [_pool(20, 2, 3, 7)]


def test_a_window_is_counted_by_its_index_unless_lanes_count_it() -> None:
    formula = _pool(100, 2, 3, 7)
    found = find_windows(formula, ("j",), None, SHAPES)["j"]
    assert (found.size, found.base.constant, dict(found.base.terms)) == (200, -3, {"i": 2})
    assert not find_windows(formula, ("j",), "i", SHAPES)


def test_a_costly_index_is_a_table_of_its_range() -> None:
    place = Apply("/", (Apply("*", (OUTER, 7), "int"), 16), "int")
    close = Apply(">>", (Apply("<<", (place, 40), "int"), 0), "int")
    read = Element("x", (Apply("%", (close, 41), "int"), INNER), "real")
    loops = (Loop("i", 96), Loop("j", 64))
    formula = Contraction((Element("y", (OUTER, INNER), "real"),), "=", (read,), loops)
    tensors = {"x": GroupTensor("x", F32, (41, 64)), "y": GroupTensor("y", F32, (96, 64))}
    found = tabulate(formula, ("i", "j"), tensors, wide=False)
    (table,) = found.tables
    assert [loop.index for loop in table.loops] == ["i"]
    (value,) = found.formula.values
    assert isinstance(value, Element)
    index = value.indices[0]
    assert not isinstance(index, Guard)
    assert find_range(index, {"i": 96}) == (0, 40)


GRAPH = """
import nn, image, layout;
graph Windows {{
    @input {{ x: real[1, 3, {0}, {1}]; }}
    @output {{ most: real[~..(4)]; mean: real[~..(4)]; large: real[~..(4)]; near: real[~..(4)]; wide: real[~..(4)]; }}
    @compose {{
        most = nn.max_pool{{size=[{2}, {3}], stride=[{4}, {5}], dilation=[{7}, 1], padding=[{6}, {6}, {6}, {6}]}}(x);
        mean = nn.avg_pool{{size=[{2}, {3}], stride=[{4}, {5}], padding=[{6}, {6}, {6}, {6}]}}(x);
        large = image.linear_resize{{axes=[2, 3], size=[31, 90], antialias=false}}(x);
        near = image.nearest_resize{{axes=[2, 3], size=[31, 90]}}(x);
        wide = layout.pad{{axes=[2, 3], padding=[1, 2, 3, 4], method="REPLICATE"}}(x);
    }}
}}
"""


@pytest.mark.parametrize("seed", range(2))
def test_windows_agree_with_the_reference(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    numbers = [random.randint(9, 20), random.randint(40, 180), *(random.randint(2, 5) for _ in range(2))]
    numbers += [*(random.randint(1, 3) for _ in range(2)), random.randint(0, 1), random.randint(1, 2)]
    file = tmp_path / "windows.sknd"
    file.write_text(GRAPH.format(*numbers), encoding="utf-8")
    x = np.random.default_rng(seed).normal(size=(1, 3, *numbers[:2])).astype(np.float32)
    ours, theirs = (lamella.compile(file, backend=name)(x=x) for name in ("cpu", "reference"))
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6)


def test_what_many_launches_compute_once_is_computed_once() -> None:
    """Two readers pack the same weight: one packed buffer is left, which both read."""
    view = {name: BufferView(name, "f32", (4,), (1,)) for name in ("w", "p", "q", "x", "a", "b")}
    packs = [Launch("pack", (view[name], view["w"]), (0,)) for name in ("p", "q")]
    uses = [Launch("use", (view[out], view[pack], view["x"]), (0,)) for out, pack in (("a", "p"), ("b", "q"))]
    whole = LaunchList(
        {name: Buffer(16) for name in view},
        (packs[0], uses[0], packs[1], uses[1]),
        {name: view[name] for name in ("w", "x")},
        {name: view[name] for name in ("a", "b")},
    )
    once, each = hoist(whole, {"w"})
    assert [launch.arguments[0].buffer for launch in once.launches] == ["p"]
    assert [launch.arguments[1].buffer for launch in each.launches] == ["p", "p"]
    assert set(each.buffers) == {"a", "b", "p", "x"}
