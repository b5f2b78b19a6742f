"""Variables that are updated after the run: of the graph, of operators, of packs."""

from __future__ import annotations

import pytest

from tests.support.graph.compose.composing import build, codes, flow, lines

COUNTER = """
operator counter {
    @input { x: real[n]; }
    @output { y: real[n]; }
    @variable { total: real[n]; }
    @compose { y = math.add(total, x); }
    @update { total = y; }
}
"""


def updates(text: str) -> list[tuple[str, str]]:
    """The variables that are updated, each with what it takes."""
    return [(item.variable.name, item.value.name) for item in build(text).updates]


def graph(update: str, variables: str = "w: real[4]; v: real[4];") -> str:
    """A graph with variables and updates."""
    return f"""
    graph G {{
        @input {{ x: real[4]; }}
        @output {{ y: real[4]; }}
        @variable {{ {variables} }}
        @compose {{ a = math.add(x, w); y = math.exp(a); }}
        @update {{ {update} }}
    }}
    """


def test_a_variable_takes_the_value_of_an_intermediate() -> None:
    assert updates(graph("w = a;")) == [("w", "a")]


def test_updates_may_compute() -> None:
    text = graph("d = math.sub(a, w); w = math.axpby(0.9, w, 0.1, d);")
    assert updates(text) == [("w", "w~2")]
    assert lines(build(text))[-1] == "w~2 = math.axpby(constant, w, constant~2, d)"


def test_an_update_sees_the_updates_above_it() -> None:
    text = graph("w = math.exp(w); v = math.sin(w);")
    assert lines(build(text))[-2:] == ["w~2 = math.exp(w)", "v~2 = math.sin(w~2)"]


def test_operators_bring_their_updates() -> None:
    text = COUNTER + flow("a = counter(x); y = lab: counter(a);")
    assert updates(text) == [("a.total", "a"), ("lab.total", "y")]


def test_the_running_statistics_of_a_layer() -> None:
    text = flow("y = bn: layer.batch_norm{momentum=0.1}(x);", "x: real[2, 3, 5];", "y: real[2, 3, 5];")
    assert [name for name, _ in updates(text)] == ["bn.running_mean", "bn.running_variance"]


def test_packs_are_updated_item_by_item() -> None:
    text = """
    graph G {
        @input { x: real[4]; }
        @output { y: real[4]; }
        @variable { ws: real[4]..(2); }
        @compose { y = with s = x for w : ws unroll math.add(s, w); }
        @update { ws = [ws[1], x]; }
    }
    """
    assert updates(text) == [("ws:1", "ws:2"), ("ws:2", "x")]


@pytest.mark.parametrize(
    "update", ["w = 0.0;", "w = [x, x];", "w = layout.unsqueeze{axes=[0]}(x);", "w = 1;"]
)
def test_a_new_value_has_the_type_of_the_variable(update: str) -> None:
    assert codes(graph(update)) == ["SKR318"]


def test_an_operator_with_updates_in_a_branch_or_loop_of_the_run() -> None:
    branch = "c = math.lt(s, 1.0); y = if c then lab: counter(x) else x;"
    loop = "y = with a = x do..(3) lab: counter(a);"
    for components in (branch, loop):
        assert codes(COUNTER + flow(components, "x: real[4]; s: real[];")) == ["SKR317"]
    assert updates(COUNTER + flow("y = with a = x unroll..(2) lab: counter(a);")) == [
        ("lab:1.total", "a:1"),
        ("lab:2.total", "y"),
    ]
