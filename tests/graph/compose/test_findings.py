"""What is found: several findings in one run, nothing about what depends on them, the calls that led there."""

from __future__ import annotations

from lamella.graph.nodes import tensors
from tests.support.graph.compose.composing import attempt, build, codes, findings, flow


def test_a_failed_component_spoils_only_what_depends_on_it() -> None:
    components = """
        a = layout.transpose{perm=[3]}(x);
        b = math.exp(a);
        [c, d] = layout.split{axis=0, count=2}(b);
        e = math.add(c, d);
        f = layout.flatten{axis=9}(x);
        g = with s = a do..(3) math.add(s, x);
        h = if ?a then a else a;
        y = math.add(e, x);
        z = math.exp(x);
    """
    found = findings(flow(components, outputs="y: real[4]; z: real[4];"))
    assert [item.span.line for item in found] == [7, 11]


def test_the_other_outputs_of_an_operator_stay_usable() -> None:
    pair = """
    operator pair {
        @input { x: real[n]; }
        @output { a: real[n]; b: real[n]; }
        @compose { a = layout.transpose{perm=[5]}(x); b = math.exp(x); }
    }
    """
    components = "a, b = pair(x); c = math.exp(a); d = layout.flatten{axis=9}(b); y = math.exp(b);"
    found = findings(pair + flow(components))
    assert len(found) == 2
    assert found[0].origins[0].endswith("main.pair")


def test_the_other_results_of_a_block_stay_usable() -> None:
    components = """
        a, b = { u = layout.transpose{perm=[5]}(x); v = math.exp(x); yield u, v; };
        y = layout.flatten{axis=9}(b);
        z = math.exp(a);
    """
    assert len(findings(flow(components, outputs="y: real[4]; z: real[4];"))) == 2


def test_a_finding_deep_inside_names_the_calls() -> None:
    text = """
    operator inner {
        @input { x: real[n]; }
        @output { y: real[n]; }
        @compose { t = math.exp(x); y = layout.transpose{perm=[5]}(t); }
    }
    operator outer {
        @input { x: real[n]; }
        @output { y: real[n]; }
        @compose { t = deep: inner(x); y = math.exp(t); }
    }
    """
    (finding,) = findings(
        text + flow("y = top: outer(x); z = math.exp(y);", outputs="y: real[4]; z: real[4];")
    )
    assert finding.origins == ("main.sknd:11 top.deep: main.inner", "main.sknd:17 top: main.outer")
    assert finding.span.line == 6


def test_every_node_knows_where_it_comes_from() -> None:
    text = """
    operator inner {
        @input { x: real[n]; }
        @output { y: real[n]; }
        @compose { t = math.exp(x); y = math.sin(t); }
    }
    """
    graph = build(text + flow("a = inner(x); y = lab: inner(a);"))
    assert [node.origin.words() for node in graph.nodes if node.origin] == [
        ("main.sknd:6 a.t: math.exp", "main.sknd:12 a: main.inner"),
        ("main.sknd:6 a.y: math.sin", "main.sknd:12 a: main.inner"),
        ("main.sknd:6 lab.t: math.exp", "main.sknd:12 lab: main.inner"),
        ("main.sknd:6 lab.y: math.sin", "main.sknd:12 lab: main.inner"),
    ]
    assert all(tensor.origin for node in graph.nodes for item in node.outputs for tensor in tensors(item))


def test_a_name_that_is_unknown_here_is_a_finding() -> None:
    assert len(codes(flow("y = nothing.at_all(x);"))) == 1
    assert len(codes(flow("y = math.nothing(x);"))) == 1
    assert len(codes(flow("y = math.exp(q);"))) == 1


def test_the_same_finding_of_many_calls_is_told_for_each() -> None:
    text = """
    operator wrong {
        @input { x: real[n]; }
        @output { y: real[n]; }
        @compose { t = math.exp(x); y = layout.transpose{perm=[5]}(t); }
    }
    """
    assert len(findings(text + flow("a = wrong(x); y = wrong(x);"))) == 2


def test_warnings_and_notes_do_not_hide_the_graph() -> None:
    found = attempt(flow("y = math.exp(x);"))
    assert found.graph is not None
    assert found.findings == ()
