"""The verifier: what is wrong with a graph is found, whoever made it so."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from docs.generate import expected, repaired
from lamella.base import dtype
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.graph.nodes import Branch, Constant, Graph, Loop, Node, Operation, Region, Tensor, Update
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.graph.rewrite import members
from lamella.graph.verify import verify
from tests.support.graph.texts import model_of, small
from tests.support.strategies.graph import library

BAD = Path(__file__).parents[1] / "lang" / "skriptnd" / "bad"
TEXT = (
    "t = math.exp(x); r = if c then { u = math.neg(t); yield u; } else { yield t; };"
    " y = with s = r while d do { v = math.add(s, x); yield v; };"
)
BLOCKS = (
    "@constant { k: real[2] = [1.0, 2.0]; d: bool[] = true; } @variable { w: real[2]; } @update { w = t; }"
)


def right() -> Graph:
    """A graph with everything in it."""
    return small("x: real[2]; c: bool[];", TEXT, blocks=BLOCKS).graph


def with_node(graph: Graph, index: int, node: Node) -> Graph:
    nodes = list(graph.nodes)
    nodes[index] = node
    return replace(graph, nodes=tuple(nodes))


def tensor(graph: Graph, name: str) -> Tensor:
    found = next(item for node in graph.nodes for item in members(node.outputs) if item.name == name)
    assert isinstance(found, Tensor)
    return found


def first(graph: Graph) -> Operation:
    assert isinstance(graph.nodes[0], Operation)
    return graph.nodes[0]


def branch(graph: Graph) -> Branch:
    assert isinstance(graph.nodes[1], Branch)
    return graph.nodes[1]


def loop(graph: Graph) -> Loop:
    assert isinstance(graph.nodes[2], Loop)
    return graph.nodes[2]


def unordered(graph: Graph) -> Graph:
    return replace(graph, nodes=tuple(reversed(graph.nodes)))


def twice(graph: Graph) -> Graph:
    return replace(graph, nodes=(graph.nodes[0], *graph.nodes))


def wrong_type(graph: Graph) -> Graph:
    wrong = replace(tensor(graph, "t"), element=dtype.F16)
    return with_node(graph, 0, replace(first(graph), outputs=(wrong,)))


def wrong_shape(graph: Graph) -> Graph:
    wrong = replace(tensor(graph, "t"), shape=(3,))
    return with_node(graph, 0, replace(first(graph), outputs=(wrong,)))


def wrong_attribute(graph: Graph) -> Graph:
    return with_node(graph, 0, replace(first(graph), attributes=(("axis", 1),)))


def unknown_operator(graph: Graph) -> Graph:
    return with_node(graph, 0, replace(first(graph), operator="math.nothing"))


def inner_tensor(graph: Graph) -> Graph:
    inner = branch(graph).branches[0].outputs
    return replace(graph, outputs=inner)


def wrong_branches(graph: Graph) -> Graph:
    return with_node(graph, 1, replace(branch(graph), branches=branch(graph).branches[:1]))


def wrong_condition(graph: Graph) -> Graph:
    condition = Region((), (), (tensor(graph, "t"),))
    return with_node(graph, 1, replace(branch(graph), conditions=(condition,)))


def wrong_carried(graph: Graph) -> Graph:
    body = loop(graph).body
    return with_node(graph, 2, replace(loop(graph), body=replace(body, outputs=(graph.constants[1].tensor,))))


def wrong_constant(graph: Graph) -> Graph:
    return replace(graph, constants=(Constant(graph.constants[0].tensor, (1.0,)), *graph.constants[1:]))


def updated_twice(graph: Graph) -> Graph:
    return replace(graph, updates=graph.updates * 2)


def update_of_no_variable(graph: Graph) -> Graph:
    return replace(graph, updates=(Update(tensor(graph, "r"), tensor(graph, "t")),))


WRONG: dict[Callable[[Graph], Graph], str] = {
    unordered: "is not made before",
    twice: "'t' is made twice",
    wrong_type: "math.exp gives f32[2]; recorded are f16[2]",
    wrong_shape: "math.exp gives f32[2]; recorded are f32[3]",
    wrong_attribute: "axis",
    unknown_operator: "math.nothing",
    inner_tensor: "is not made before",
    wrong_branches: "1 conditions choose among 1 branches",
    wrong_condition: "a condition is one bool, not f32[2]",
    wrong_carried: "a step gives bool[] where f32[2] is wanted",
    wrong_constant: "constant 'k' has 1 values for f32[2]",
    updated_twice: "variable 'w' is updated twice",
    update_of_no_variable: "'r' is updated and is no variable",
}


def test_a_right_graph_has_nothing_wrong() -> None:
    assert not verify(right(), library())


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_wrong_graphs_are_found(change: Callable[[Graph], Graph]) -> None:
    found = verify(change(right()), library())
    assert found
    assert {item.code for item in found} == {"SKR369"}
    assert any(WRONG[change] in item.message for item in found), "\n".join(map(str, found))


def test_findings_tell_where_a_node_came_from() -> None:
    (finding, *_) = verify(wrong_shape(right()), library())
    assert any("math.exp" in line for line in finding.origins)


# --- the wrong programs -------------------------------------------------------------------------------------

LINE = re.compile(r"(\w+): (\w+)\[(\d+)\] = ([\w.]+)\((\w+)\)")


def described(text: str) -> Graph:
    """A graph of tensors of rank 1, line by line."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    tensors: dict[str, Tensor] = {}
    nodes: list[Node] = []
    for line in lines:
        if found := re.fullmatch(r"input (\w+): (\w+)\[(\d+)\]", line):
            tensors[found[1]] = _tensor(found[1], found[2], found[3])
        elif made := LINE.fullmatch(line):
            name, element, size, operator, source = made.groups()
            tensors[name] = _tensor(name, element, size)
            read = tensors.get(source, _tensor(source, element, size))
            nodes.append(Operation(operator, (read,), (tensors[name],), types=(("T", read.element),)))
    names = [line.removeprefix("output ") for line in lines if line.startswith("output ")]
    inputs = tuple(tensors[line.split()[1].rstrip(":")] for line in lines if line.startswith("input "))
    return Graph("G", inputs, tuple(tensors[name] for name in names), tuple(nodes))


def _tensor(name: str, element: str, size: str) -> Tensor:
    found = dtype.find(element)
    assert found is not None
    return Tensor(name, found, (int(size),))


def judged(text: str) -> list[Diagnostic]:
    """What is wrong with a described graph, or with the extents that it is wanted for."""
    if "set " not in text:
        return verify(described(text), library())
    wanted = re.search(r"^set (\w+) = (\d+)", text, re.MULTILINE)
    assert wanted is not None
    model = model_of("\n".join(line for line in text.splitlines() if not line.startswith("set ")))
    try:
        specialise_shapes(model, {wanted[1]: int(wanted[2])})
    except Found as problem:
        return list(problem.findings)
    return []


@pytest.mark.parametrize("name", ["skr358_extent_out_of_bound", "skr359_no_such_extent", "skr369_bad_graph"])
def test_wrong_programs_are_found_and_right_ones_are_not(name: str) -> None:
    text = (BAD / f"{name}.txt").read_text(encoding="utf-8")
    assert [item.code for item in judged(text)] == expected(text)
    assert not judged(repaired(text))
