"""Extents that only the run tells: symbols of inputs, of dynamic operators, of branches and loops."""

from __future__ import annotations

from lamella.base.dim import Dim, bounds
from lamella.graph.nodes import Tensor
from tests.support.graph.compose.composing import build, codes, flow, lines, only_branch, only_loop, shapes


def test_symbols_flow_from_inputs_to_outputs() -> None:
    graph = build(
        flow("y = layout.concat{axis=0}([x, z]);", "x: real[n|10, 3]; z: real[m|20, 3];", "y: real[~, 3];")
    )
    (output,) = graph.outputs
    assert isinstance(output, Tensor)
    extent = output.shape[0]
    assert str(extent) == "m + n"
    assert bounds(extent) == (0, 30)


def test_anonymous_extents_are_named_after_their_place() -> None:
    graph = build(flow("y = math.exp(x);", "x: real[~|10, ~|20];", "y: real;"))
    assert shapes(graph.outputs[0]) == [["x.shape[0]", "x.shape[1]"]]


def test_shared_symbols_agree() -> None:
    graph = build(flow("y = math.add(x, z);", "x: real[n|10]; z: real[n];", "y: real[n];"))
    assert shapes(graph.outputs[0]) == [["n"]]


def test_dynamic_operators_give_symbols_named_after_their_results() -> None:
    components = "i = layout.nonzero(x); j = layout.nonzero(i); y = math.exp(x);"
    graph = build(flow(components, "x: real[4];"))
    assert [shapes(node.outputs[0]) for node in graph.nodes[:2]] == [
        [["1", "i.shape[1]"]],
        [["2", "j.shape[1]"]],
    ]


def test_dynamic_results_without_names_have_symbols_of_their_own() -> None:
    find = """
    operator find {
        @input { x: real[s..(d)]; }
        @output { i: int[d, ~|s * ..]; }
        @compose { i = layout.nonzero(x); }
    }
    """
    graph = build(find + flow("a = find(x); b = find(z);", "x: real[4]; z: real[6];", "a: int; b: int;"))
    assert [shapes(item) for item in graph.outputs] == [[["1", "a.shape[1]"]], [["1", "b.shape[1]"]]]
    first, second = (item.shape[1] for item in graph.outputs if isinstance(item, Tensor))
    assert (bounds(first)[1], bounds(second)[1]) == (4, 6)


def test_an_output_cannot_be_longer_than_its_bound() -> None:
    find = """
    operator find {
        @input { x: real[n]; }
        @output { y: real[~|n]; }
        @compose { y = layout.concat{axis=0}([x, x]); }
    }
    """
    assert codes(find + flow("y = find(x);", "x: real[4];", "y: real;")) == ["SKR304"]


def test_symbols_of_a_branch_do_not_leave_it() -> None:
    components = """
        c = math.lt(s, 1.0);
        y = if c then layout.nonzero(x) else { i = layout.nonzero(x); j = layout.concat{axis=1}([i, i]); yield j; };
    """
    graph = build(flow(components, "x: real[4]; s: real[];", "y: int;"))
    branch = only_branch(graph)
    assert shapes(branch.outputs[0]) == [["1", "y.shape[1]"]]
    extent = branch.outputs[0].shape[1]
    assert isinstance(extent, Dim)
    assert bounds(extent) == (0, 8)


def test_symbols_of_a_loop_body_do_not_leave_it() -> None:
    graph = build(
        flow(
            "ys..(2) = for i : [x, z] do layout.nonzero(i);",
            "x: real[4]; z: real[4];",
            "ys: int[1, ~|4]..(2);",
        )
    )
    assert shapes(only_loop(graph).outputs[0]) == [["1", "ys:1.shape[1]"], ["1", "ys:2.shape[1]"]]


def test_a_static_condition_on_a_bound_is_decided() -> None:
    graph = build(flow("y = if n <= 10 then math.exp(x) else math.sin(x);", "x: real[n|10];", "y: real[n];"))
    assert len(graph.nodes) == 1


def test_an_extent_as_an_argument_is_computed_by_the_run() -> None:
    graph = build(flow("y = math.add(i, n);", "x: real[n|10]; i: int[];", "y: int[];"))
    assert lines(graph) == ["value = layout.constant()", "y = math.add(i, value)"]
    assert graph.constants == ()


def test_a_real_of_an_extent_is_computed_by_the_run() -> None:
    graph = build(flow("y = math.mul(x, 1.0 / real(n));", "x: real[n|10];", "y: real[n];"))
    assert [line.split(" = ")[1].split("(")[0] for line in lines(graph)] == [
        "layout.constant",
        "layout.cast",
        "math.div",
        "math.mul",
    ]


def test_a_scalar_that_fills_a_dynamic_shape() -> None:
    fold = """
    operator fold {
        @input { xs: real[n]..(k); }
        @output { y: real[n]; }
        @compose { y = with s: real[n] = 0.5 for x : xs do math.add(s, x); }
    }
    """
    graph = build(fold + flow("y = fold(xs);", "xs: real[n|5]..(2);", "y: real[n];"))
    assert lines(graph) == ["s = layout.uniform(constant)", "y = do"]


def test_undecided_assertions_of_composed_operators_are_left_to_the_run() -> None:
    even = """
    operator even {
        @input { x: real[n]; }
        @output { y: real[n]; }
        @assert { n % 2 == 0: "the length must be even", n; }
        @compose { t = math.exp(x); y = math.sin(t); }
    }
    """
    graph = build(even + flow("y = even(x);", "x: real[n|10];", "y: real[n];"))
    assert [str(item.condition) for item in graph.checks] == ["(n % 2) == 0"]
    assert "the length must be even" in graph.checks[0].message
    assert build(even + flow("y = even(x);")).checks == ()
    assert len(codes(even + flow("y = even(x);", "x: real[5];", "y: real[5];"))) == 1
