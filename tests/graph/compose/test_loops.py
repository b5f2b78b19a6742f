"""Loops of the run: scans, folds, counts, conditions, and what they pack up."""

from __future__ import annotations

import pytest

from lamella.base.dim import bounds
from lamella.graph.nodes import Pack, Tensor
from tests.support.graph.compose.composing import build, codes, findings, flow, line, name, only_loop, shapes

PACK = "x: real[4]; xs: real[4]..(3);"
COUNT = "x: real[4]; k: int[];"


def test_a_scan_gives_one_tensor_for_each_item() -> None:
    loop = only_loop(build(flow("ys..(3) = for i : xs do math.add(i, x);", PACK, "ys: real[4]..(3);")))
    assert loop.carried == ()
    assert [name(item) for item in loop.scans] == [["xs:1", "xs:2", "xs:3"]]
    assert [item.name for item in loop.body.inputs] == ["i"]
    assert [line(node) for node in loop.body.nodes] == ["z = math.add(i, x)"]
    assert [name(item) for item in loop.outputs] == [["ys:1", "ys:2", "ys:3"]]
    assert (loop.count, loop.condition, loop.index) == (None, None, False)


def test_several_packs_are_scanned_together() -> None:
    components = "ys..(3) = for a : xs, b : [x, x, x] do math.add(a, b);"
    loop = only_loop(build(flow(components, PACK, "ys: real[4]..(3);")))
    assert [item.name for item in loop.body.inputs] == ["a", "b"]


def test_a_fold_carries_a_filled_tensor() -> None:
    graph = build(flow("y = with sum: real[4] = 0.0 for i : xs do math.add(sum, i);", PACK))
    loop = only_loop(graph)
    assert [(item.name, item.shape) for item in loop.carried] == [("constant", (4,))]
    assert [item.name for item in loop.body.inputs] == ["sum", "i"]
    assert [name(item) for item in loop.outputs] == ["y"]
    assert graph.constants[0].value == 0.0


def test_carried_values_come_before_what_is_packed_up() -> None:
    components = """
        y, ys..(3) = with a = x for i : xs do { s = math.add(a, i); p = math.mul(a, i); yield s, p; };
    """
    loop = only_loop(build(flow(components, PACK, "y: real[4]; ys: real[4]..(3);")))
    assert [name(item) for item in loop.outputs] == ["y", ["ys:1", "ys:2", "ys:3"]]
    assert [item.name for item in loop.body.outputs] == ["s", "p"]


@pytest.mark.parametrize(("count", "found"), [("3", 3), ("1 + 1", 2), ("0", 0)])
def test_a_known_count(count: str, found: int) -> None:
    graph = build(flow(f"y = with a = x do..({count}) math.exp(a);"))
    assert only_loop(graph).count == found


def test_a_tensor_counts() -> None:
    loop = only_loop(build(flow("y = with a = x do..(k) math.exp(a);", COUNT)))
    assert isinstance(loop.count, Tensor)
    assert loop.count.name == "k"


def test_an_extent_counts() -> None:
    loop = only_loop(build(flow("y = with a = x do..(n) math.exp(a);", "x: real[4]; z: real[n|9];")))
    assert str(loop.count) == "n"


@pytest.mark.parametrize("given", [None, 2])
def test_an_optional_count(given: int | None) -> None:
    text = """
    graph G {
        @attrib { n: optional int; }
        @input { xs: real[4]..(3); }
        @output { y: real[4]; }
        @compose { y = with a: real[4] = 0.0 for i : xs do..(n) math.add(a, i); }
    }
    """
    assert only_loop(build(text, attributes={} if given is None else {"n": given})).count == given


def test_the_index_is_the_last_input_of_body_and_condition() -> None:
    components = "s = with t = 0 while math.lt(i, k) do..(i -> 10) math.add(t, i);"
    loop = only_loop(build(flow(components, COUNT, "s: int[];")))
    assert loop.index
    assert loop.pretest
    assert loop.condition is not None
    assert [item.name for item in loop.body.inputs] == ["t", "i"]
    assert [item.name for item in loop.condition.inputs] == ["t~2", "i~2"]
    assert [line(node) for node in loop.condition.nodes] == ["z~2 = math.lt(i~2, k)"]


def test_an_index_without_a_count() -> None:
    components = "y = with a = 0 for x : xs do..(i ->) math.add(a, i);"
    loop = only_loop(build(flow(components, PACK, "y: int[];")))
    assert loop.index
    assert [item.name for item in loop.body.inputs] == ["a", "x~2", "i"]


@pytest.mark.parametrize(
    ("loop", "pretest"),
    [("while math.lt(a, 100) do math.mul(a, 2)", True), ("do math.mul(a, 2) while math.lt(a, 100)", False)],
)
def test_conditions_before_and_behind_the_body(loop: str, pretest: bool) -> None:
    found = only_loop(build(flow(f"y = with a = 1 {loop};", outputs="y: int[];")))
    assert found.pretest is pretest
    assert found.condition is not None
    assert [line(node).split(" = ")[1].split("(")[0] for node in found.condition.nodes] == ["math.lt"]


def test_a_carried_bool_is_the_condition() -> None:
    components = """
        y, ~ = with a = x, go = true while go do {
            b = math.mul(a, 2.0);
            m = math.max_reduce{axes=[0], squeeze=true}(b);
            more = math.lt(m, 100.0);
            yield b, more;
        };
    """
    loop = only_loop(build(flow(components)))
    assert loop.condition is not None
    assert loop.condition.outputs == (loop.condition.inputs[1],)
    assert loop.condition.nodes == ()


def test_results_of_a_loop_whose_end_the_run_tells_are_a_pack() -> None:
    components = "ys = for i : xs do..(k) math.exp(i); y = layout.stack{axis=0}(ys);"
    graph = build(flow(components, "xs: real[4]..(3); k: int[];", "y: real;"))
    (pack,) = only_loop(graph).outputs
    assert isinstance(pack, Pack)
    assert (str(pack.size), bounds(pack.size)) == ("ys.size", (0, 3))
    assert shapes(graph.outputs[0]) == [["ys.size", "4"]]


def test_a_dynamic_number_of_scanned_tensors() -> None:
    components = "ys = for i : xs do math.exp(i); y = layout.stack{axis=0}(ys);"
    graph = build(flow(components, "xs: real[4]..(n|5);", "y: real[~, 4];"))
    (pack,) = only_loop(graph).outputs
    assert isinstance(pack, Pack)
    assert str(pack.size) == "n"


def test_scanned_tensors_of_different_extents() -> None:
    components = "ys..(2) = for i : [x, z] do math.exp(i); y = layout.concat{axis=0}(ys);"
    graph = build(flow(components, "x: real[4]; z: real[6];", "y: real;"))
    loop = only_loop(graph)
    assert [str(extent) for extent in loop.body.inputs[0].shape] == ["i.shape[0]"]
    assert shapes(loop.outputs[0]) == [["ys:1.shape[0]"], ["ys:2.shape[0]"]]


def test_an_empty_pack_is_not_scanned_at_all() -> None:
    text = flow(
        "y, ys = with a = x for i : xs do { b = math.add(a, i); yield b, b; };",
        "x: real[4]; xs: real[4]..(0);",
    )
    assert [line(node) for node in build(text).nodes] == ["y = math.iden(x)"]


def test_a_loop_inside_a_loop() -> None:
    components = """
        y = with a = x for i : xs do {
            b = with c = a do..(2) math.add(c, i);
            yield b;
        };
    """
    outer = only_loop(build(flow(components, PACK)))
    (inner,) = outer.body.nodes
    assert line(inner) == "b = do"
    assert outer.body.outputs == inner.outputs


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ("y = with a = x do math.exp(a);", "SKR310"),
        ("y = with a = x do..(-1) math.exp(a);", "SKR309"),
        ("y = with a = x do..(1.5) math.exp(a);", "SKR309"),
        ("y = with a = x do..(x) math.exp(a);", "SKR309"),
        ("y = with a = x for i : xs do..(4) math.add(a, i);", "SKR309"),
        ("y = with a = x for i : xs, j : [x, x] do math.add(a, i);", "SKR308"),
        ("y = with a = x for i : x do math.add(a, i);", "SKR313"),
        ("y = with a = x for i : [x, s] do math.add(a, i);", "SKR313"),
        ("y = with a = 0.0 for i : xs do math.add(a, i);", "SKR307"),
        ("y = with a = x, b = x for i : xs do math.add(a, i);", "SKR307"),
        ("y = with a: int[4] = 0.0 for i : xs do math.add(a, i);", "SKR303"),
        ("y = with a: real[4] = s for i : xs do math.add(a, i);", "SKR303"),
        ("y = with a = x do..(2) { yield a, a; };", "SKR302"),
        ("y, ys = with a = x while math.lt(s, 1.0) do { yield a, a; };", "SKR312"),
        ("y, ys = with a = x do..(3) { yield a, [a, a]; };", "SKR312"),
        ("y = with a = x while s do math.exp(a);", "SKR306"),
    ],
)
def test_wrong_loops(components: str, code: str) -> None:
    assert codes(flow(components, f"{PACK} s: real[];")) == [code]


def test_the_message_names_both_types_of_a_carried_value() -> None:
    (finding,) = findings(flow("y = with a = 0.0 for i : xs do math.add(a, i);", PACK))
    assert "'a' is carried as real[] but the loop's body gives real[4]" in finding.message
