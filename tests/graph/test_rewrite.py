"""The one walk: order, regions, names, stand-ins; and what nodes make and read."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from lamella.base import dtype
from lamella.base.dim import symbol
from lamella.base.origin import Origin
from lamella.graph.model import Model
from lamella.graph.nodes import Branch, Graph, Loop, Node, Operation, Tensor, regions, walk
from lamella.graph.rewrite import (
    Replacement,
    RewriteWalk,
    defined,
    members,
    operands_of,
    producers,
    rename,
    results_of,
    rewrite,
    uses,
)
from lamella.graph.verify import verify
from tests.support.graph.texts import small
from tests.support.strategies.graph import models

FLOW = (
    "a = math.exp(x); y = if c then { b = math.neg(a); yield b; } else {"
    " d = with s = a do..(2) { e = math.add(s, a); yield e; }; yield d; };"
)


def keep(node: Node, walk: RewriteWalk) -> Replacement | None:
    return None


def flow() -> Model:
    return small("x: real[2]; c: bool[];", FLOW)


@given(models())
def test_a_walk_that_changes_nothing_changes_nothing(model: Model) -> None:
    assert rewrite(model.graph, keep) == model.graph


@given(models())
def test_every_node_is_seen_once_and_after_what_it_reads(model: Model) -> None:
    seen: list[str] = [item.name for item in defined(replace(model.graph, nodes=()))]
    nodes = 0

    def visit(node: Node, walk: RewriteWalk) -> Replacement | None:
        nonlocal nodes
        nodes += 1
        outer = {item.name for region in regions(node) for item in region.inputs}
        inner = {item.name for region in regions(node) for one in region.nodes for item in results_of(one)}
        assert {item.name for item in operands_of(node)} <= {*seen, *outer, *inner, *walk_inputs}
        seen.extend(item.name for item in results_of(node))
        return None

    walk_inputs = {
        item.name for node in walk(model.graph.nodes) for region in regions(node) for item in region.inputs
    }
    rewrite(model.graph, visit)
    assert nodes == sum(1 for _ in walk(model.graph.nodes))


def test_a_stand_in_reaches_into_regions() -> None:
    model = flow()

    def visit(node: Node, walk: RewriteWalk) -> Replacement | None:
        if isinstance(node, Operation) and node.operator == "math.exp":
            (source,), (output,) = members(node.inputs), members(node.outputs)
            assert isinstance(source, Tensor)
            return Replacement(results={output.name: source})
        return None

    found = rewrite(model.graph, visit)
    assert "a" not in {item.name for node in walk(found.nodes) for item in operands_of(node)}
    assert not verify(found, model.library)


def test_stand_ins_of_another_shape_are_refused() -> None:
    model = small("x: real[2]; z: real[3];", "y = math.exp(x);")

    def visit(node: Node, walk: RewriteWalk) -> Replacement | None:
        other = model.graph.inputs[1]
        assert isinstance(other, Tensor)
        return Replacement(results={"y": other})

    assert rewrite(model.graph, visit) == model.graph


def test_outputs_keep_their_names_whatever_stands_in() -> None:
    """An input is copied, a result takes the name, and of two outputs of one result the second is a copy."""
    model = small(
        "x: real[2];",
        "t = math.exp(x); y = math.iden(t); z = math.iden(t); w = math.iden(x);",
        "y: real; z: real; w: real",
    )

    def visit(node: Node, walk: RewriteWalk) -> Replacement | None:
        if isinstance(node, Operation) and node.operator == "math.iden":
            (source,), (output,) = members(node.inputs), members(node.outputs)
            assert isinstance(source, Tensor)
            return Replacement(results={output.name: source})
        return None

    found = rewrite(model.graph, visit)
    assert [item.name for item in members(found.outputs)] == ["y", "z", "w"]
    assert [item.operator for item in found.operations()] == ["math.exp", "math.iden", "math.iden"]
    assert not verify(found, model.library)


def test_names_are_fresh() -> None:
    walk_of = RewriteWalk(flow().graph)
    assert [walk_of.fresh("a"), walk_of.fresh("a"), walk_of.fresh("new")] == ["a_1", "a_2", "new"]


def test_makers_and_constants_are_known_on_the_way() -> None:
    found: list[str] = []

    def visit(node: Node, walk: RewriteWalk) -> Replacement | None:
        if isinstance(node, Operation):
            maker = walk.maker(node.inputs[0])
            found.append(maker.operator if maker else "")
            assert walk.constant(node.inputs[0]) is None
        return None

    rewrite(flow().graph, visit)
    assert found == ["", "math.exp", ""]


def test_uses_count_outputs_and_regions() -> None:
    counted = uses(flow().graph)
    assert counted == {
        "x": 1,
        "a": 3,
        "c": 1,
        "y": 1,
        **{name: counted[name] for name in set(counted) - set("xacy")},
    }


@given(models())
def test_everything_is_made_once(model: Model) -> None:
    names = [item.name for item in defined(model.graph)]
    assert len(names) == len(set(names))
    makers = producers(model.graph)
    assert all(name in {item.name for item in results_of(node)} for name, node in makers.items())


def test_extents_are_renamed_with_the_tensor_that_tells_them() -> None:
    model = small("x: real[3];", "a = layout.nonzero(x); y = math.neg(a);", "y: int")
    found = rename(model.graph, {"a": "b"})
    (output,) = members(found.outputs)
    assert str(output.shape[1]) == "b.shape[1]"
    assert not verify(found, model.library)
    assert rename(found, {"b": "a"}) == model.graph


def test_origins_stay() -> None:
    origin = Origin("here")
    x = Tensor("x", dtype.F32, (symbol("n", 3),), origin=origin)
    node = Operation("math.exp", (x,), (replace(x, name="y"),), types=(), origin=origin)
    found = rename(Graph("G", (x,), node.outputs, (node,)), {"x": "z", "y": "w"})
    assert {item.origin for item in (*members(found.inputs), *members(found.outputs), *found.nodes)} == {
        origin
    }


def test_conditions_and_bodies_are_parts_of_nodes() -> None:
    kinds = {type(node) for node in walk(flow().graph.nodes)}
    assert kinds == {Operation, Branch, Loop}


def test_nodes_that_read_nothing_new_stay_as_they_are() -> None:
    model = small("x: real[2];", "t = math.iden(x); a = math.exp(x); b = math.neg(t); y = math.add(a, b);")

    def visit(node: Node, walk: RewriteWalk) -> Replacement | None:
        if isinstance(node, Operation) and node.operator == "math.iden":
            (source,), (output,) = members(node.inputs), members(node.outputs)
            assert isinstance(source, Tensor)
            return Replacement(results={output.name: source})
        return None

    made, found = (producers(graph) for graph in (model.graph, rewrite(model.graph, visit)))
    assert found["a"] is made["a"]
    assert found["y"] is made["y"]
    assert [item.name for item in operands_of(found["b"])] == ["x"]
