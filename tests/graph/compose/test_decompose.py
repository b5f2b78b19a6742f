"""Which operators stay whole, and how those that did are decomposed later."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lamella.graph.compose import compose, compose_call, decompose
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Operation, tensors, walk
from lamella.ops.library import Library
from tests.support.graph.compose.composing import build, flow, lines, load

GOOD = Path(__file__).parents[2] / "lang" / "skriptnd" / "good"


def names(graph: Graph) -> Counter[str]:
    """How often each operator is called."""
    return Counter(item.operator for item in graph.operations())


def alexnet() -> Model:
    """The network of the specification's first page."""
    module = Library().load(GOOD / "2_01_alexnet.sknd")
    found = compose(module)
    assert found.graph is not None
    return Model(found.graph, module.library)


def test_alexnet_keeps_softmax_whole() -> None:
    model = alexnet()
    found = names(model.graph)
    assert sum(found.values()) == 20
    assert (found["nn.softmax"], found["nn.conv"], found["nn.relu"]) == (1, 6, 7)
    assert len(model.graph.variables) == 16
    assert model.graph.variables[0].name == "kernel1"


def test_alexnet_decomposed_has_the_five_operations_of_softmax() -> None:
    model = alexnet()
    found = decompose(model, lambda name: False)
    counted = names(found.graph) - names(model.graph)
    assert counted == Counter(["math.max_reduce", "math.sub", "math.exp", "math.sum_reduce", "math.div"])
    assert sum(names(found.graph).values()) == 24
    assert found.graph.outputs == model.graph.outputs


def test_decomposing_later_is_composing_at_once() -> None:
    text = flow(
        "a = nn.softmax(x); b = nn.l2_norm{axes=[1], bias=0.5}(a); y = layout.reshape{shape=[6]}(b);",
        "x: real[2, 3];",
        "y: real[6];",
    )
    module = load(text)
    whole, parts = compose(module).graph, compose(module, keep=lambda name: False).graph
    assert whole is not None
    assert parts is not None
    later = decompose(Model(whole, module.library), lambda name: False).graph
    assert names(later) == names(parts)
    assert later.outputs == parts.outputs == whole.outputs


def test_a_choice_by_name() -> None:
    module = load(flow("a = nn.softmax(x); y = nn.l1_norm{axes=[1]}(a);", "x: real[2, 3];", "y: real[2, 3];"))
    found = compose(module, keep=lambda name: name == "nn.softmax").graph
    assert found is not None
    assert "nn.softmax" in names(found)
    assert "nn.l1_norm" not in names(found)


def test_a_users_operator_is_composed_unless_chosen_and_can_be_decomposed_then() -> None:
    text = """
    operator twice {
        @input { x: real[n]; }
        @output { y: real[n]; z: real[n]; }
        @compose { y = math.add(x, 1.0); z = x; }
    }
    """
    text += flow("a, b = twice(x); y = math.add(a, b);")
    assert lines(build(text)) == ["a = math.add(x, constant)", "y = math.add(a, x)"]
    whole = build(text, keep=lambda name: True)
    assert lines(whole) == ["a, b = main.twice(x)", "y = math.add(a, b)"]
    module = load(text)
    later = decompose(Model(whole, module.library), lambda name: False).graph
    assert lines(later) == ["a = math.add(x, a.constant)", "b = math.iden(x)", "y = math.add(a, b)"]
    assert [item.value for item in later.constants] == [1.0]


def test_operators_with_variables_are_always_composed() -> None:
    text = flow("y = layer.linear{channels=4}(x);", "x: real[2, 3];", "y: real[2, 4];")
    assert names(build(text, keep=lambda name: True)) == Counter(["nn.linear"])


def test_operators_with_open_results_are_always_composed() -> None:
    text = flow(
        "Y, h, c = nn.lstm(X, W, R, B);",
        "X: real[5, 2, 3]; W: real[16, 3]; R: real[16, 4]; B: real[16];",
        "Y: real; h: real; c: real;",
    )
    found = names(build(text, keep=lambda name: True))
    assert "nn.lstm" not in found
    assert found["nn.linear"] == 2


def test_regions_are_decomposed_and_names_stay_unique() -> None:
    components = """
        c = math.lt(s, 1.0);
        a = if c then nn.softmax(x) else nn.softmax(z);
        y = with t = a for q : [x, z] do { u = nn.softmax(t); v = math.add(u, q); yield v; };
    """
    text = flow(components, "x: real[2, 3]; z: real[2, 3]; s: real[];", "y: real[2, 3];")
    module = load(text)
    whole = compose(module).graph
    assert whole is not None
    later = decompose(Model(whole, module.library), lambda name: False).graph
    assert names(later)["nn.softmax"] == 0
    assert names(later)["math.exp"] == 3
    made = [item.name for node in walk(later.nodes) for output in node.outputs for item in tensors(output)]
    assert len(made) == len(set(made))


def test_one_call_is_composed_on_demand() -> None:
    module = load(flow("y = nn.softmax(x);", "x: real[2, 3];", "y: real[2, 3];"))
    graph = compose(module).graph
    assert graph is not None
    (node,) = graph.nodes
    assert isinstance(node, Operation)
    body = compose_call(module.library, node)
    assert [item.operator for item in body.nodes if isinstance(item, Operation)] == [
        "math.max_reduce",
        "math.sub",
        "math.exp",
        "math.sum_reduce",
        "math.div",
    ]
    assert body.nodes[-1].outputs == node.outputs
