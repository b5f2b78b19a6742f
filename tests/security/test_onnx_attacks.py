"""ONNX models that ask for endless work or memory, or for numbers that do not exist: one clean finding each."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import Limits
from lamella.bridge.onnx.read import decode_model
from lamella.bridge.onnx_to_graph import onnx_to_graph, walk
from tests.support.bridge.onnx_models import BOOL, FLOAT, INT64, model_of, port

helper = pytest.importorskip("onnx.helper")
node = helper.make_node

ENDLESS = np.array(1 << 62)
TRUE = np.array(True)
BACKENDS = ("reference", "cpu")


def _run(
    model: Any, backend: str = "reference", limits: Limits | None = None, **inputs: Array
) -> dict[str, Array]:
    graph = onnx_to_graph(decode_model(model.SerializeToString()), limits=limits or Limits())
    return lamella.compile(graph, backend=backend, limits=limits or Limits())(**inputs)


def _body(scans: bool) -> Any:
    nodes = [node("Identity", ["on"], ["go"]), node("Relu", ["s"], ["t"]), node("Neg", ["s"], ["z"])]
    results = [port("go", [], BOOL), port("t", [2]), port("z", [2])]
    inputs = [port("i", [], INT64), port("on", [], BOOL), port("s", [2])]
    return helper.make_graph(nodes, "body", inputs, results if scans else results[:2])


def _loop(scans: bool) -> Any:
    made = node("Loop", ["M", "go_in", "x"], ["y", "z"] if scans else ["y"], body=_body(scans))
    return model_of([made], [port("x", [2])], [port("y", [2])], {"M": ENDLESS, "go_in": TRUE})


def test_a_loop_of_endless_steps_does_not_begin() -> None:
    with pytest.raises(LamellaError, match=r"SKR335.*takes 4611686018427387904 steps"):
        _run(_loop(scans=False), x=np.ones(2, np.float32))


def test_a_loop_that_collects_endless_tensors_is_refused() -> None:
    with pytest.raises(LamellaError, match=r"ONX040.*collects tensors of 4611686018427387904 steps"):
        _run(_loop(scans=True))


def test_loops_in_loops_are_not_tried_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried as a loop, then written out: two bodies a level, two to the thirtieth in all."""
    depth = 30

    def inner(level: int) -> Any:
        nodes = [node("Identity", [f"on{level}"], [f"go{level}"])]
        if level == depth:
            sums = [f"i{number}" for number in range(depth + 1)]
            nodes += [node("Sum", sums, ["n"]), node("Unsqueeze", ["n", "zero"], ["r"])]
            nodes += [
                node("Tile", ["x", "r"], ["tiled"]),
                node("ReduceSum", ["tiled"], ["total"], keepdims=0),
            ]
            nodes += [node("Add", [f"s{level}", "total"], [f"t{level}"])]
        else:
            given = ["M", f"on{level}", f"s{level}"]
            nodes += [node("Loop", given, [f"t{level}"], body=inner(level + 1))]
        inputs = [port(f"i{level}", [], INT64), port(f"on{level}", [], BOOL), port(f"s{level}", [2])]
        return helper.make_graph(
            nodes, f"b{level}", inputs, [port(f"go{level}", [], BOOL), port(f"t{level}", [2])]
        )

    weights = {"M": np.array(1), "go_in": TRUE, "zero": np.array([0])}
    outer = node("Loop", ["M", "go_in", "x"], ["y"], body=inner(0))
    monkeypatch.setattr(walk, "MOST_INLINED", 2000)
    with pytest.raises(LamellaError, match=r"ONX045.*unfold to more than 2000 nodes"):
        _run(model_of([outer], [port("x", [2])], [port("y", [2])], weights))


def _doubling(count: int) -> Any:
    names = ["x", *(f"t{number}" for number in range(count))]
    nodes = [node("Concat", [a, a], [b], axis=0) for a, b in pairwise(names)]
    return model_of([*nodes, node("ReduceSum", [names[-1]], ["y"])], [port("x", [2])], [port("y", [1])])


def test_memory_is_refused_before_it_is_taken() -> None:
    limits = Limits(max_total_bytes=1 << 23)
    tracemalloc.start()
    try:
        with pytest.raises(LamellaError, match="SKR325"):
            _run(_doubling(30), limits=limits, x=np.ones(2, np.float32))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 << 20  # the libraries included: the next tensor alone would be as large


@pytest.mark.parametrize("backend", BACKENDS)
def test_temporaries_of_a_fused_group_count(backend: str) -> None:
    """The last concatenation, inside of a sum, has 4 MiB beside its input of 2: in a limit of 5 is no room."""
    limits = Limits(max_total_bytes=5 << 20)
    with pytest.raises(LamellaError, match="SKR325"):
        _run(_doubling(19), backend, limits, x=np.ones(2, np.float32))
    assert _run(_doubling(17), backend, limits, x=np.ones(2, np.float32))["y"] == 1 << 18


def _divided(operator: str, **attributes: int) -> Any:
    nodes = [
        node("Add", ["a", "a"], ["p"]),
        node(operator, ["p", "b"], ["q"], **attributes),
        node("Add", ["q", "a"], ["y"]),
    ]
    ports = [port("a", [3], INT64), port("b", [3], INT64)]
    return model_of(nodes, ports, [port("y", [3], INT64)])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("attributes", [("Mod", 0), ("Mod", 1), ("Div", 0)], ids=str)
def test_an_integer_divided_by_zero_is_blamed_on_its_node(attributes: tuple[str, int], backend: str) -> None:
    """Also where machine code has fused it with its neighbours."""
    operator, fmod = attributes
    model = _divided(operator, **({"fmod": fmod} if fmod else {}))
    with pytest.raises(LamellaError) as problem:
        _run(model, backend, a=np.array([1, 2, 3]), b=np.array([1, 0, 2]))
    (found,) = problem.value.findings
    assert found.code == "SKR322"
    assert found.origins[-1] == f"q: {operator}"
    assert not found.span.source.name.startswith("ops/")


def test_a_known_integer_divided_by_zero_is_no_zero() -> None:
    made = [node("Mod", ["one", "none"], ["m"]), node("Add", ["m", "a"], ["y"])]
    weights = {"one": np.ones(3, np.int64), "none": np.zeros(3, np.int64)}
    model = model_of(made, [port("a", [3], INT64)], [port("y", [3], INT64)], weights)
    with pytest.raises(LamellaError, match="SKR322"):
        _run(model, a=np.ones(3, np.int64))


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("group", [0, -1])
def test_groups_of_nothing_are_refused(operator: str, group: int) -> None:
    weights = {"w": np.ones((4, 1, 3, 3), np.float32)}
    made = node(operator, ["x", "w"], ["y"], group=group)
    model = model_of([made], [port("x", [1, 4, 8, 8])], [port("y", None, FLOAT)], weights)
    with pytest.raises(LamellaError, match=f"ONX040.*divides channels into {group} groups"):
        _run(model)


@pytest.mark.parametrize("element", [INT64, FLOAT])
def test_a_condition_that_is_no_truth_is_refused(element: int) -> None:
    parts = [
        helper.make_graph([node(operator, ["x", "x"], [name])], name, [], [port(name, [2])])
        for operator, name in (("Add", "a"), ("Mul", "b"))
    ]
    made = node("If", ["c"], ["y"], then_branch=parts[0], else_branch=parts[1])
    with pytest.raises(LamellaError, match=r"ONX040.*has a condition of type"):
        _run(model_of([made], [port("c", [], element), port("x", [2])], [port("y", [2])]))
