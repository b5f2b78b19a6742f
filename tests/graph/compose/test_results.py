"""Results: their types, their number, and outputs held against their declarations."""

from __future__ import annotations

import pytest

from lamella.base import dtype
from tests.support.graph.compose.composing import (
    attempt,
    build,
    codes,
    elements,
    findings,
    flow,
    lines,
    operation,
    shapes,
)


@pytest.mark.parametrize(
    "component",
    [
        "a: real[4] = math.exp(x);",
        "a: real[~] = math.exp(x);",
        "a: real = math.exp(x);",
        "a: f32[4] = math.exp(x);",
        "as: real[]..(4) = layout.unstack{axis=0}(x); a = as[0];",
        "[b: real[], c..] = layout.unstack{axis=0}(x); a = c[1];",
    ],
)
def test_types_that_hold(component: str) -> None:
    assert build(flow(component.replace("as", "pack") + "y = math.exp(a);", outputs="y: real;")).nodes


@pytest.mark.parametrize(
    ("component", "code"),
    [
        ("a: real[5] = math.exp(x);", "SKR303"),
        ("a: int[4] = math.exp(x);", "SKR303"),
        ("a: f16[4] = math.exp(x);", "SKR303"),
        ("a: real[4, 1] = math.exp(x);", "SKR303"),
        ("a..(3) = layout.unstack{axis=0}(x);", "SKR303"),
        ("a: real[2]..(4) = layout.unstack{axis=0}(x);", "SKR303"),
        ("[a, b] = layout.unstack{axis=0}(x);", "SKR301"),
        ("[a, b..(4)] = layout.unstack{axis=0}(x);", "SKR301"),
        ("[(a, b, c)..] = layout.unstack{axis=0}(x);", "SKR301"),
        ("[a, b] = math.exp(x);", "SKR313"),
        ("a, b = math.exp(x);", "SKR302"),
        ("a = math.moments(x);", "SKR302"),
    ],
)
def test_types_and_numbers_that_do_not(component: str, code: str) -> None:
    assert codes(flow(component + "y = math.exp(a);", outputs="y: real;")) == [code]


def test_a_type_that_does_not_hold_is_told_with_both_types() -> None:
    (finding,) = findings(flow("a: real[5] = math.exp(x); y = math.exp(a);"))
    assert finding.message == "'a' is said to be real[5] but is real[4]"


SHRINK = """
operator shrink {
    @input { x: real[n]; }
    @output { y: real[n]; }
    @compose { y = layout.concat{axis=0}([x, x]); }
}
"""


def test_an_output_of_another_shape_than_declared() -> None:
    (finding,) = findings(SHRINK + flow("y = shrink(x);"))
    assert finding.code == "SKR304"
    assert finding.message == "output 'y' of 'main.shrink' is declared as real[4] but composed as real[8]"
    assert finding.span.text == "y: real[n];"
    assert [item.split(" ", 1)[1] for item in finding.origins] == ["main.shrink"]


@pytest.mark.parametrize(
    ("components", "outputs"),
    [
        ("y = math.exp(x);", "y: real[5];"),
        ("y = math.exp(x);", "y: int[4];"),
        ("y = math.exp(x);", "y: f64[4];"),
        ("y = math.exp(x);", "y: real[4]..(1);"),
        ("y = [x, x];", "y: real[4];"),
        ("y = [x, x];", "y: real[4]..(3);"),
        ("y = 1;", "y: real[];"),
        ("y = 1.0;", "y: real[4];"),
        ("z = math.exp(x);", "y: real[4];"),
    ],
)
def test_outputs_that_differ_from_their_declarations(components: str, outputs: str) -> None:
    assert codes(flow(components, outputs=outputs)) == ["SKR304"]


def test_scalars_and_packs_as_outputs() -> None:
    graph = build(flow("y = 1.5; z = [x, x];", outputs="y: real[]; z: real[4]..(2);"))
    assert lines(graph) == ["y = math.iden(constant)", "z:1 = math.iden(x)", "z:2 = math.iden(x)"]


def test_omitted_output_shapes_are_found() -> None:
    graph = build(flow("y = layout.unsqueeze{axes=[0]}(x); z = x;", outputs="y: real[~, ~]; z: real;"))
    assert [shapes(item) for item in graph.outputs] == [[["1", "4"]], [["4"]]]


def test_scalar_arguments_are_constants_once_in_a_scope() -> None:
    components = "a = math.mul(x, 2.0); b = math.add(a, 2.0); y = math.pow(b, 3.0);"
    graph = build(flow(components))
    assert [(item.tensor.name, item.value, item.tensor.shape) for item in graph.constants] == [
        ("constant", 2.0, ()),
        ("constant~2", 3.0, ()),
    ]


def test_equal_scalars_of_different_types_are_different_constants() -> None:
    components = """
        a = math.add(i, 1); b = math.add(x, 1.0); c = math.and(t, true);
        y = math.add(b, -0.0); z = math.add(b, 0.0);
    """
    graph = build(flow(components, "x: real[4]; i: int[4]; t: bool[4];", "y: real[4]; z: real[4];"))
    assert [str(item.value) for item in graph.constants] == ["1", "1.0", "True", "-0.0", "0.0"]


def test_a_scalar_takes_the_width_of_the_call() -> None:
    graph = build(flow("y = math.mul(x, 2.0);", "x: f16[4];", "y: f16[4];"))
    assert graph.constants[0].tensor.element == dtype.F16


def test_an_operator_that_is_composed_for_a_narrow_type_fills_in_that_type() -> None:
    total = """
    operator total {
        @input { xs: real[n]..(k); }
        @output { y: real[n]; }
        @compose { y = with s: real[n] = 0.0 for x : xs do math.add(s, x); }
    }
    """
    graph = build(total + flow("y = total(xs);", "xs: bf16[4]..(3);", "y: bf16[4];"))
    assert graph.constants[0].tensor.element == dtype.BF16


def test_generic_types_are_given_or_deduced() -> None:
    text = """
    operator twice {
        @dtype { T: num; }
        @input { x: T[s..]; }
        @output { y: T[s..]; }
        @compose { y = math.add(x, x); }
    }
    graph G {
        @dtype { T: num = real; }
        @input { x: T[4]; }
        @output { y: T[4]; z: int[4]; }
        @compose { y = twice(x); c = layout.cast<int>(x); z = twice<int>(c); }
    }
    """
    assert elements(build(text).outputs) == [dtype.F32, dtype.I64]
    graph = build(text, types={"T": dtype.I32})
    assert elements(graph.outputs) == [dtype.I32, dtype.I64]
    assert operation(graph).types == (("T", dtype.I32),)


def test_omitted_arguments_are_null() -> None:
    graph = build(flow("y = nn.batch_norm{channel_axis=0}(x, m, m, ~, m);", "x: real[4]; m: real[4];"))
    assert lines(graph) == ["y = nn.batch_norm(x, m, m, None, m)"]


def test_every_attribute_is_recorded_with_its_value() -> None:
    graph = build(
        flow("y = nn.conv{padding=0}(x, w);", "x: real[1, 2, 8, 8]; w: real[3, 2, 3, 3];", "y: real;")
    )
    attributes = dict(operation(graph).attributes)
    assert (attributes["stride"], attributes["padding"], attributes["groups"]) == ((1, 1), (0, 0, 0, 0), 1)


def test_the_graph_is_chosen_by_name() -> None:
    text = flow("y = math.exp(x);") + flow("y = math.sin(x);").replace("graph G", "graph H")
    assert lines(build(text)) == ["y = math.exp(x)"]
    assert lines(build(text, "H")) == ["y = math.sin(x)"]
    (finding,) = attempt(text, "K").findings
    assert finding.message == "there is no graph 'K' here; the graphs are 'G', 'H'"


def test_attributes_of_the_graph_are_set_from_outside() -> None:
    text = """
    graph G {
        @attrib { n: int; axes: int.. = [0]; }
        @input { x: real[n]; }
        @output { y: real; }
        @compose { y = math.sum_reduce{axes=axes}(x); }
    }
    """
    assert shapes(build(text, attributes={"n": 7}).inputs[0]) == [["7"]]
    assert attempt(text).findings[0].code.startswith("SKR2")
