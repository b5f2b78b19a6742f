"""Branches: eliminated where the condition is known, composed as regions where it is not."""

from __future__ import annotations

import pytest

from lamella.base.dim import Dim, Test, bounds, symbol
from lamella.base.dtype import BOOL
from lamella.graph.nodes import Operation
from tests.support.graph.compose.composing import build, codes, findings, flow, line, lines, only_branch

CONDITION = "x: real[4]; s: real[];"


@pytest.mark.parametrize(
    ("condition", "operator"),
    [
        ("n > 2", "exp"),
        ("n > 3", "sin"),
        ("true", "exp"),
        ("false", "sin"),
        ("?o", "sin"),
        ("?o && n > 2", "sin"),
    ],
)
def test_a_known_condition_leaves_one_branch(condition: str, operator: str) -> None:
    text = f"""
    graph G {{
        @attrib {{ n: int = 3; o: optional int; }}
        @input {{ x: real[4]; }}
        @output {{ y: real[4]; }}
        @compose {{ y = if {condition} then math.exp(x) else math.sin(x); }}
    }}
    """
    assert lines(build(text)) == [f"y = math.{operator}(x)"]


def test_an_attribute_that_is_given_decides() -> None:
    text = """
    graph G {
        @attrib { o: optional real; }
        @input { x: real[4]; }
        @output { y: real[4]; }
        @compose { y = if ?o then math.mul(x, o) else x; }
    }
    """
    assert lines(build(text)) == ["y = math.iden(x)"]
    graph = build(text, attributes={"o": 2.5})
    assert lines(graph) == ["y = math.mul(x, constant)"]
    assert [item.value for item in graph.constants] == [2.5]


def test_a_true_condition_behind_dynamic_ones_is_the_alternative() -> None:
    components = """
        c = math.lt(s, 1.0);
        y = if false then math.tan(x) elif c then math.exp(x) elif true then math.sin(x) else math.cos(x);
    """
    branch = only_branch(build(flow(components, CONDITION)))
    assert [[line(node) for node in region.nodes] for region in branch.branches] == [
        ["y~2 = math.exp(x)"],
        ["y~3 = math.sin(x)"],
    ]
    assert len(branch.conditions) == 1


def test_conditions_are_regions_of_their_own() -> None:
    components = (
        "y = if math.lt(s, 1.0) then x elif { c = math.gt(s, 9.0); yield c; } then math.exp(x) else x;"
    )
    branch = only_branch(build(flow(components, CONDITION)))
    assert [len(region.nodes) for region in branch.conditions] == [1, 1]
    assert [region.outputs[0].element for region in branch.conditions] == [BOOL, BOOL]
    assert [len(region.nodes) for region in branch.branches] == [0, 1, 0]
    assert [region.outputs[0].name for region in branch.branches] == ["x", "y~2", "x"]
    assert [item.name for item in branch.outputs] == ["y"]


def test_extents_that_differ_become_a_new_bounded_extent() -> None:
    components = "c = math.lt(s, 1.0); y = if c then layout.concat{axis=0}([x, x]) else x;"
    branch = only_branch(build(flow(components, CONDITION, "y: real;")))
    (extent,) = branch.outputs[0].shape
    assert isinstance(extent, Dim)
    assert str(extent) == "y.shape[0]"
    assert bounds(extent) == (4, 8)


def test_scalars_and_several_results_are_joined() -> None:
    components = """
        c = math.lt(s, 1.0);
        a, b = if c then { t = math.exp(s); yield t, x; } else { u = math.exp(x); yield 1.0, u; };
        y = math.mul(a, b);
    """
    graph = build(flow(components, CONDITION))
    branch = only_branch(graph)
    assert [item.shape for item in branch.outputs] == [(), (4,)]
    assert [item.name for item in branch.branches[1].outputs] == ["constant", "u"]


def test_packs_are_joined_item_by_item() -> None:
    components = """
        c = math.lt(s, 1.0);
        ys..(2) = if c then layout.split{axis=0, count=2}(x) else { a..(2) = layout.split{axis=0, count=2}(x);
            yield [a[1], a[0]]; };
        y = layout.concat{axis=0}(ys);
    """
    branch = only_branch(build(flow(components, CONDITION)))
    assert [item.name for item in branch.outputs] == ["ys:1", "ys:2"]
    assert [item.name for item in branch.branches[1].outputs] == ["a:2", "a:1"]


def test_a_condition_on_dynamic_extents_is_decided_by_the_run() -> None:
    components = "y = if n > 3 then math.exp(x) else math.sin(x);"
    graph = build(flow(components, "x: real[n|10];", "y: real[n];"))
    branch = only_branch(graph)
    assert [line(node) for node in branch.conditions[0].nodes] == ["value = layout.constant()"]
    (node,) = branch.conditions[0].nodes
    assert isinstance(node, Operation)
    assert str(dict(node.attributes)["value"]) == str((Test("<", 3, symbol("n", 10)),))


@pytest.mark.parametrize(
    ("condition", "told"),
    [("s", "real[]"), ("v", "bool[4]"), ("1", "the value 1"), ("{ yield c, c; }", "2 tensors")],
)
def test_a_condition_is_one_bool(condition: str, told: str) -> None:
    components = f"c = math.lt(s, 1.0); v = math.lt(x, 1.0); y = if {condition} then x else x;"
    (finding,) = findings(flow(components, CONDITION))
    assert finding.code == "SKR306"
    assert told in finding.message


@pytest.mark.parametrize("other", ["1.0", "c", "[x, x]", "{ yield x, x; }"])
def test_branches_that_disagree_are_refused(other: str) -> None:
    components = f"c = math.lt(s, 1.0); y = if c then x else {other};"
    assert codes(flow(components, CONDITION)) == ["SKR305"]


def test_both_branches_are_composed_and_their_findings_told() -> None:
    components = """
        c = math.lt(s, 1.0);
        y = if c then layout.transpose{perm=[0, 0]}(x) else layout.flatten{axis=7}(x);
        z = math.exp(y);
    """
    assert len(codes(flow(components, CONDITION, "y: real[4]; z: real[4];"))) == 2
