"""Building graphs: shapes by the definitions, new names, constants for scalars, control flow."""

from __future__ import annotations

import pytest
from hypothesis import given

from lamella.base import dtype
from lamella.base.dim import symbol
from lamella.base.errors import Found
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Loop, Tensor
from lamella.graph.verify import verify
from lamella.ops.library import Library
from tests.support.strategies.graph import library, models


def builder() -> Builder:
    return Builder(library(), "G")


def test_a_convolution() -> None:
    build = builder()
    x = build.input("x", dtype.F32, (1, 3, 8, 8))
    w = build.variable("w", dtype.F32, (4, 3, 3, 3))
    y = build.call("nn.conv", x, w, stride=2, padding=1)
    assert y.shape == (1, 4, 4, 4)
    (node,) = build.finish(y).operations()
    assert dict(node.attributes)["stride"] == (2, 2)
    assert node.inputs == (x, w, None)


def test_names_are_new() -> None:
    build = builder()
    x = build.input("x", dtype.F32, (2,))
    names = [build.call("math.exp", x).name for _ in range(3)]
    assert len({x.name, *names}) == 4
    assert build.call("math.exp", x, results=["out"]).name == "out"


def test_scalars_are_constants_and_equal_ones_are_one() -> None:
    build = builder()
    x = build.input("x", dtype.F16, (2,))
    y = build.call("math.add", build.call("math.mul", x, 2.0), 2.0)
    graph = build.finish(y)
    assert [(item.value, item.tensor.element) for item in graph.constants] == [(2.0, dtype.F16)]
    assert not verify(graph, library())


def test_several_results_and_packs() -> None:
    build = builder()
    x = build.input("x", dtype.F32, (6, 2))
    (parts,) = build.call_all("layout.split", x, axis=0, count=3)
    assert isinstance(parts, tuple)
    assert [item.name for item in parts] == ["outputs:1", "outputs:2", "outputs:3"]
    mean, variance = build.call_all("math.moments", build.call("layout.concat", parts, axis=0), axes=[0])
    assert isinstance(mean, Tensor)
    assert isinstance(variance, Tensor)
    assert mean.shape == variance.shape == (1, 2)


def test_open_extents_flow() -> None:
    build = builder()
    x = build.input("x", dtype.F32, (symbol("n", 9), 3))
    y = build.call("layout.concat", (x, x), axis=0)
    assert str(y.shape[0]) == "2 * n"


def test_generic_types_are_given() -> None:
    build = builder()
    x = build.input("x", dtype.F32, (2,))
    assert build.call("layout.cast", x, types={"R": dtype.BF16}).element == dtype.BF16


def test_branches_and_loops() -> None:
    build = builder()
    x, c = build.input("x", dtype.F32, (2,)), build.input("c", dtype.BOOL, ())
    (r,) = build.branch(c, lambda: [build.call("math.exp", x)], lambda: [x])
    (s,) = build.fold([r], lambda item: [build.call("math.add", item, x)], 3)
    assert isinstance(s, Tensor)
    below = build.constant(9.0)
    t, ts = build.fold(
        [s],
        lambda item, one: [build.call("math.add", item, one), item],
        scans=[(x, x)],
        condition=lambda item: build.call(
            "math.lt", build.call("math.max_reduce", item, squeeze=True), below
        ),
    )
    assert isinstance(t, Tensor)
    assert isinstance(ts, tuple)
    assert len(ts) == 2
    graph = build.finish(t)
    assert not verify(graph, library())
    assert [isinstance(node, Loop) and node.pretest for node in graph.nodes] == [False, False, True]


def test_outputs_that_nothing_computes_are_copied() -> None:
    build = builder()
    x = build.input("x", dtype.F32, (2,))
    y = build.call("math.exp", x)
    graph = build.finish(x, y, y)
    assert [item.operator for item in graph.operations()] == ["math.exp", "math.iden", "math.iden"]
    assert len({item.name for item in graph.outputs if isinstance(item, Tensor)}) == 3
    assert not verify(graph, library())


def test_wrong_calls_say_what_is_wrong() -> None:
    build = Builder(Library(), "G")
    x = build.input("x", dtype.F32, (2, 3))
    with pytest.raises(Found) as problem:
        build.call("linalg.matmul", x, x)
    assert "matmul" in problem.value.findings[0].message or problem.value.findings[0].labels
    with pytest.raises(Found):
        build.call("math.nothing", x)
    with pytest.raises(ValueError, match="moments"):
        build.call("math.moments", x)


@given(models())
def test_what_is_built_is_whole(model: Model) -> None:
    assert not verify(model.graph, model.library)
