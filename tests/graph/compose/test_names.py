"""Names of tensors: labels, automatic labels, scopes that pass through, packs, steps of unrolled loops."""

from __future__ import annotations

from lamella.graph.nodes import tensors, walk
from tests.support.graph.compose.composing import build, codes, flow, lines

DENSE = """
operator dense {
    @input { x: real[b, c]; }
    @output { y: real[b, c]; }
    @variable { w: real[c, c]; }
    @compose { z = nn.linear(x, w); y = nn.relu(z); }
}
"""


def variables(text: str) -> list[str]:
    """The names of the variables of a graph."""
    return [item.name for item in build(text).variables]


def dense(components: str, more: str = "") -> str:
    """A graph that calls an operator with a variable."""
    return DENSE + more + flow(components, "x: real[2, 3];", "y: real[2, 3];")


def test_a_label_scopes_the_variables_inside() -> None:
    assert variables(dense("a = first: dense(x); y = second: dense(a);")) == ["first.w", "second.w"]


def test_the_single_result_is_the_label_where_there_is_none() -> None:
    assert variables(dense("a = dense(x); y = dense(a);")) == ["a.w", "y.w"]


def test_labels_nest() -> None:
    outer = """
    operator outer {
        @input { x: real[b, c]; }
        @output { y: real[b, c]; }
        @compose { t = inner: dense(x); y = dense(t); }
    }
    """
    found = variables(dense("a = lab: outer(x); y = outer(a);", outer))
    assert found == ["lab.inner.w", "lab.y.w", "y.inner.w", "y.y.w"]


def test_an_operator_of_one_component_adds_no_scope() -> None:
    wrapper = """
    operator wrapper {
        @input { x: real[b, c]; }
        @output { y: real[b, c]; }
        @compose { y = dense(x); }
    }
    """
    assert variables(dense("a = wrapper(x); y = lab: wrapper(a);", wrapper)) == ["a.w", "lab.w"]


def test_an_operator_of_one_component_with_a_constant_of_its_own_does() -> None:
    wrapper = """
    operator wrapper {
        @input { x: real[b, c]; }
        @output { y: real[b, c]; }
        @constant { k: real[c] = 2.0; }
        @compose { y = dense(x); }
    }
    """
    graph = build(dense("a = wrapper(x); y = lab: wrapper(a);", wrapper))
    assert [item.name for item in graph.variables] == ["a.y.w", "lab.y.w"]
    assert [item.tensor.name for item in graph.constants] == ["a.k", "lab.k"]


def test_an_explicit_label_counts_in_an_operator_of_one_component() -> None:
    wrapper = """
    operator wrapper {
        @input { x: real[b, c]; }
        @output { y: real[b, c]; }
        @compose { y = in: dense(x); }
    }
    """
    assert variables(dense("a = wrapper(x); y = wrapper(a);", wrapper.replace("in:", "own:"))) == [
        "a.own.w",
        "y.own.w",
    ]


def test_a_static_branch_reduces_to_one_call_with_an_automatic_label() -> None:
    assert variables(dense("a = if 1 < 2 then dense(x) else x; y = nn.relu(a);")) == ["a.w"]


def test_a_block_takes_the_automatic_label_and_its_calls_nest_in_it() -> None:
    assert variables(dense("a = { t = dense(x); u = dense(t); yield u; }; y = nn.relu(a);")) == [
        "a.t.w",
        "a.u.w",
    ]


def test_the_steps_of_an_unrolled_loop_are_numbered() -> None:
    found = variables(dense("a = with t = x unroll..(3) dense(t); y = nn.relu(a);"))
    assert found == ["a:1.w", "a:2.w", "a:3.w"]


def test_a_variable_that_is_there_twice_is_refused() -> None:
    two = """
    operator two {
        @input { x: real[b, c]; }
        @output { y: real[b, c]; z: real[b, c]; }
        @variable { w: real[c, c]; }
        @compose { y = nn.linear(x, w); z = nn.relu(y); }
    }
    """
    text = dense("a, b = two(x); c, d = two(b); y = math.add(a, d);", two)
    assert codes(text) == ["SKR316"]


def test_packed_variables_have_numbered_names() -> None:
    text = """
    graph G {
        @input { x: real[2]; }
        @output { y: real[2]; }
        @variable { ws: real[2]..(3); }
        @compose { y = with s = x for w : ws unroll math.add(s, w); }
    }
    """
    assert variables(text) == ["ws:1", "ws:2", "ws:3"]


def test_results_of_the_graph_keep_their_names_and_inner_ones_are_scoped() -> None:
    graph = build(dense("a = dense(x); y = lab: dense(a);"))
    assert lines(graph) == [
        "a.z = nn.linear(x, a.w, None)",
        "a = nn.relu(a.z)",
        "lab.z = nn.linear(a, lab.w, None)",
        "y = nn.relu(lab.z)",
    ]


def test_a_list_names_the_items_of_a_pack() -> None:
    graph = build(
        flow("[a, bs..(2), c] = layout.unstack{axis=0}(x); y = math.add(a, c);", outputs="y: real[];")
    )
    assert lines(graph)[0] == "['a', 'bs:1', 'bs:2', 'c'] = layout.unstack(x)"


def test_a_zipped_list_takes_a_pack_apart_in_turn() -> None:
    components = "[(a, b)..(2)] = layout.unstack{axis=0}(x); u = math.sum_n(a); y = math.sum_n(b);"
    graph = build(flow(components, outputs="y: real[];"))
    assert lines(graph) == [
        "['a:1', 'b:1', 'a:2', 'b:2'] = layout.unstack(x)",
        "u = math.sum_n(['a:1', 'a:2'])",
        "y = math.sum_n(['b:1', 'b:2'])",
    ]


def test_a_plain_output_becomes_a_tensor_of_its_own() -> None:
    graph = build(flow("t = math.exp(x); y = t; z = x;", outputs="y: real[4]; z: real[4];"))
    assert lines(graph) == ["t = math.exp(x)", "y = math.iden(t)", "z = math.iden(x)"]


def test_names_are_unique_in_the_whole_graph() -> None:
    components = """
        c = math.lt(s, 1.0);
        a = if c then { t = math.exp(x); z = math.sin(t); yield z; } else { t = math.cos(x); yield t; };
        z = with t = a for q : [x, a] do { u = math.add(t, q); z = math.exp(u); yield z; };
        t = math.exp(z);
        y = math.add(t, z);
    """
    graph = build(flow(components, "x: real[4]; s: real[];"))
    made = [item.name for node in walk(graph.nodes) for output in node.outputs for item in tensors(output)]
    assert len(made) == len(set(made))
    assert [line.split(" = ")[0] for line in lines(graph)] == ["c", "a", "z", "t", "y"]


def test_a_graph_as_a_sub_graph_is_the_root_of_its_names() -> None:
    inner = """
    graph H {
        @input { x: real[~, ~]; }
        @output { y: real[~, ~]; }
        @variable { w: real[3, 3]; }
        @compose { y = nn.linear(x, w); }
    }
    """
    text = flow(
        "c = math.lt(s, 1.0); y = if c then H(x) else lab: H(x);",
        "x: real[2, 3]; s: real[];",
        "y: real[2, 3];",
    )
    assert variables(text + inner) == ["main.H.w", "lab.w"]


def test_a_graph_that_is_called_twice_has_its_variables_once() -> None:
    inner = """
    graph H {
        @input { x: real[2, 3]; }
        @output { y: real[2, 3]; }
        @variable { w: real[3, 3]; }
        @compose { y = nn.linear(x, w); }
    }
    """
    components = "c = math.lt(s, 1.0); a = if c then H(x) else x; y = if c then H(a) else a;"
    text = flow(components, "x: real[2, 3]; s: real[];", "y: real[2, 3];")
    assert variables(text + inner) == ["main.H.w"]
