"""`@quantize`: names that are full, relative, scoped by labels; what is hidden; attributes with their defaults."""

from __future__ import annotations

import pytest

from lamella.graph.nodes import Tensor, tensors, walk
from tests.support.graph.compose.composing import build, codes, findings

OPERATOR = """
{public} operator block {{
    @input {{ x: real[b, c]; }}
    @output {{ out: real[b, c]; }}
    @variable {{ w: real[c, c]; }}
    @compose {{ z = nn.linear(x, w); out = nn.relu(z); }}
}}
"""
QUANT = "quant.min_max_linear_quantize{{min=0.0, max=1.0, bits=8}}".format()


def text(*names: str, public: str = "public", components: str = "a = blk: block(x); y = math.exp(a);") -> str:
    """A graph that quantises these tensors."""
    lines = "\n".join(f"{name}: {QUANT};" for name in names)
    graph = f"""
    graph G {{
        @input {{ x: real[2, 3]; }}
        @output {{ y: real[2, 3]; }}
        @compose {{ {components} }}
        @quantize {{ {lines} }}
    }}
    """
    return OPERATOR.format(public=public) + graph


def quantized(
    *names: str, public: str = "public", components: str = "a = blk: block(x); y = math.exp(a);"
) -> list[str]:
    """The names of the tensors that are quantised."""
    graph = build(text(*names, public=public, components=components))
    made = [item for node in walk(graph.nodes) for output in node.outputs for item in tensors(output)]
    given = [item for argument in graph.inputs for item in tensors(argument)]
    return [item.name for item in (*given, *graph.variables, *made) if item.quantization is not None]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("x", "x"),
        ("a", "a"),
        ("y", "y"),
        ("main.G.a", "a"),
        ("blk.w", "blk.w"),
        ("main.G.blk.w", "blk.w"),
        ("blk.z", "blk.z"),
        ("blk.out", "a"),
    ],
)
def test_a_tensor_is_found_by_its_name(name: str, found: str) -> None:
    assert quantized(name) == [found]


def test_all_uses_of_a_tensor_are_quantised() -> None:
    graph = build(text("a"))
    uses = [item for node in graph.operations() for argument in node.inputs for item in tensors(argument)]
    assert [item.quantization is not None for item in uses if item.name == "a"] == [True]


def test_every_attribute_is_bound() -> None:
    graph = build(text("a"))
    (tensor,) = [
        item
        for node in graph.nodes
        for item in node.outputs
        if isinstance(item, Tensor) and item.quantization
    ]
    assert tensor.quantization is not None
    assert tensor.quantization.operator == "quant.min_max_linear_quantize"
    attributes = dict(tensor.quantization.attributes)
    assert (attributes["bits"], attributes["signed"], attributes["channel_axis"]) == (8, True, 1)
    assert attributes["min"] == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("name", ["blk.z", "blk.out"])
def test_what_is_inside_an_operator_is_hidden_unless_it_is_public(name: str) -> None:
    (finding,) = findings(text(name, public=""))
    assert finding.code == "SKR319"
    assert quantized("blk.w", public="") == ["blk.w"]


def test_another_name_for_a_tensor_becomes_a_tensor_of_its_own() -> None:
    assert quantized("b", components="a = blk: block(x); b = a; y = math.exp(b);") == ["b"]


def test_the_items_of_a_pack() -> None:
    components = "as..(2) = layout.unstack{axis=0}(x); y = layout.stack{axis=0}(as);".replace("as", "items")
    quantizer = "quant.min_max_linear_quantize{min=0.0, max=1.0, bits=8, channel_axis=0}"
    graph = build(text("items", components=components).replace(QUANT, quantizer))
    assert [item.quantization is not None for item in tensors(graph.nodes[0].outputs[0])] == [True, True]


@pytest.mark.parametrize("name", ["q", "blk.q", "other.w", "main.H.a", "blk"])
def test_a_name_that_nothing_has(name: str) -> None:
    assert codes(text(name)) == ["SKR319"]


def test_the_input_of_a_public_operator_is_quantised_where_it_goes_in() -> None:
    assert quantized("blk.x") == ["blk.x"]


def test_an_operator_that_does_not_take_the_tensor() -> None:
    wrong = text("a").replace("bits=8", "bits=8, channel_axis=7")
    (finding,) = findings(wrong)
    assert finding.code.startswith("SKR2")
