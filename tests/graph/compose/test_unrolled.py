"""Unrolled loops: the body once for each step, the index a number."""

from __future__ import annotations

import pytest

from tests.support.graph.compose.composing import build, codes, flow, lines

PACK = "x: real[4]; xs: real[4]..(3);"


def test_a_scan() -> None:
    graph = build(flow("ys..(3) = for i : xs unroll math.add(i, x);", PACK, "ys: real[4]..(3);"))
    assert lines(graph) == [
        "ys:1 = math.add(xs:1, x)",
        "ys:2 = math.add(xs:2, x)",
        "ys:3 = math.add(xs:3, x)",
    ]


def test_a_fold_has_a_new_tensor_for_each_step() -> None:
    graph = build(flow("y = with sum: real[4] = 0.0 for i : xs unroll math.add(sum, i);", PACK))
    assert lines(graph) == [
        "sum:1 = math.add(constant, xs:1)",
        "sum:2 = math.add(sum:1, xs:2)",
        "y = math.add(sum:2, xs:3)",
    ]


def test_the_index_is_known() -> None:
    components = "y = with a = x unroll..(i -> 3) math.mul(a, real(i));"
    graph = build(flow(components))
    assert [item.value for item in graph.constants] == [0.0, 1.0, 2.0]


def test_steps_may_change_shapes_and_take_static_branches() -> None:
    components = """
        y = with a = x unroll..(i -> 3) {
            b = if i % 2 == 0 then layout.concat{axis=0}([a, a]) else a;
            yield b;
        };
    """
    graph = build(flow(components, outputs="y: real[16];"))
    assert len(graph.nodes) == 2


def test_carried_and_packed_results() -> None:
    components = (
        "y, ys..(3) = with a = x for i : xs unroll { s = math.add(a, i); p = math.mul(s, i); yield s, p; };"
    )
    graph = build(flow(components, PACK, "y: real[4]; ys: real[4]..(3);"))
    assert [text.split(" = ")[0] for text in lines(graph)] == ["a:1", "ys:1", "a:2", "ys:2", "y", "ys:3"]


@pytest.mark.parametrize("count", ["0", "n"])
def test_no_steps_at_all(count: str) -> None:
    text = f"""
    graph G {{
        @attrib {{ n: int = 0; }}
        @input {{ x: real[4]; }}
        @output {{ y: real[4]; }}
        @compose {{ y = with a = x unroll..({count}) math.exp(a); }}
    }}
    """
    assert lines(build(text)) == ["y = math.iden(x)"]


def test_nested_loops_number_their_steps_apart() -> None:
    components = "y = with a = x unroll..(2) { b = with c = a unroll..(2) math.exp(c); yield b; };"
    made = [text.split(" = ")[0] for text in lines(build(flow(components)))]
    assert len(made) == len(set(made)) == 4
    assert made[-1] == "y"


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ("y = with a = x unroll..(k) math.exp(a);", "SKR311"),
        ("y = with a = x unroll math.exp(a);", "SKR310"),
        ("y = with a = x unroll..(n) math.exp(a);", "SKR311"),
        ("y = with a = x unroll..(-2) math.exp(a);", "SKR309"),
        ("y = with a = x for i : xs unroll..(4) math.add(a, i);", "SKR309"),
        ("y = with a = x for i : zs unroll math.add(a, i);", "SKR311"),
        ("y, z = with a = x, b = x unroll..(3) math.exp(a);", "SKR307"),
    ],
)
def test_wrong_unrolling(components: str, code: str) -> None:
    inputs = f"{PACK} k: int[]; d: real[n|5]; zs: real[4]..(m|5);"
    assert codes(flow(components, inputs)) == [code]
