"""Every rule of ONNX files: a model that breaks it, beside one that keeps it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lamella.base.diagnostic import LamellaError
from lamella.bridge.onnx import rules
from lamella.bridge.onnx.arrays import ExternalData
from lamella.bridge.onnx.check import MOST_FINDINGS, check_model
from lamella.bridge.onnx.nodes import (
    Attribute,
    AttributeKind,
    DataType,
    Function,
    Graph,
    Model,
    Node,
    OpsetImport,
    OtherType,
    SparseTensor,
    TensorProto,
    TensorType,
    ValueInfo,
)
from lamella.bridge.onnx_to_graph import ContentsNeeded, onnx_to_graph, walk

F32 = DataType.FLOAT
VECTOR = TensorType(F32, (2,))
RIGHT = Model(
    Graph(
        "g",
        (Node("Relu", ("x",), ("y",)),),
        (ValueInfo("x", VECTOR),),
        (ValueInfo("y", VECTOR),),
    ),
    9,
    (OpsetImport("", 20),),
)


def _nodes(*nodes: Node, outputs: tuple[str, ...] = ("y",)) -> Model:
    ports = tuple(ValueInfo(name, VECTOR) for name in outputs)
    return replace(RIGHT, graph=replace(RIGHT.graph, nodes=nodes, outputs=ports))


def _graph(**changes: object) -> Model:
    return replace(RIGHT, graph=replace(RIGHT.graph, **changes))  # type: ignore[arg-type]


def _relu(
    *attributes: Attribute, inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ("y",)
) -> Node:
    return Node("Relu", inputs, outputs, attributes)


def _leaky(*attributes: Attribute) -> Model:
    return _nodes(Node("LeakyRelu", ("x",), ("y",), attributes))


ALPHA = Attribute("alpha", AttributeKind.FLOAT, 0.5)
ONES = TensorProto("w", F32, (2,), b"\0\0\x80?" * 2)
LOOP = Function("F", "own", ("a",), ("b",), nodes=(Node("F", ("a",), ("b",), domain="own"),))
FINE = Function("F", "own", ("a",), ("b",), nodes=(Node("Relu", ("a",), ("b",)),))
OWN = (OpsetImport("", 20), OpsetImport("own", 1))
PLACES = TensorProto("", DataType.INT64, (1,), b"\x09" + b"\0" * 7)

EXPORTED = "ONX060"
"""What cannot leave as ONNX: tests/bridge/test_graph_to_onnx_files.py breaks it."""
WRONG: dict[str, Model] = {
    "ONX001": replace(RIGHT, ir_version=99),
    "ONX002": _nodes(Node("Relu", ("x",), ("y",), domain="elsewhere")),
    "ONX003": replace(RIGHT, opsets=(OpsetImport("", 20), OpsetImport("ai.onnx", 19))),
    "ONX004": replace(RIGHT, opsets=(OpsetImport("", 99),)),
    "ONX005": replace(RIGHT, functions=(FINE, FINE), opsets=OWN),
    "ONX006": replace(RIGHT, functions=(LOOP,), opsets=OWN),
    "ONX007": replace(RIGHT, has_training=True),
    "ONX010": _graph(name=""),
    "ONX011": _nodes(_relu(), _relu()),
    "ONX012": _nodes(_relu(inputs=("later",))),
    "ONX013": _nodes(_relu(outputs=("z",))),
    "ONX014": _graph(inputs=(ValueInfo("x"),)),
    "ONX015": _nodes(Node("Relo", ("x",), ("y",))),
    "ONX016": _nodes(_relu(inputs=("x", "x"))),
    "ONX017": _nodes(_relu(outputs=("y", "z"))),
    "ONX018": _nodes(Node("Add", ("x", ""), ("y",))),
    "ONX019": _nodes(_relu(ALPHA)),
    "ONX020": _leaky(Attribute("alpha", AttributeKind.INT, 1)),
    "ONX021": _nodes(Node("Cast", ("x",), ("y",))),
    "ONX022": _leaky(ALPHA, ALPHA),
    "ONX023": _leaky(Attribute("alpha", AttributeKind.FLOAT, None, "slope")),
    "ONX024": replace(_nodes(Node("Upsample", ("x", "x"), ("y",))), opsets=(OpsetImport("", 10),)),
    "ONX030": _graph(initializers=(replace(ONES, raw=b"123"),)),
    "ONX031": _graph(
        sparse_initializers=(SparseTensor(replace(ONES, dims=(1,), raw=b"1234"), PLACES, (4,)),)
    ),
    "ONX032": _graph(initializers=(replace(ONES, data_type=77),)),
}


def _codes(model: Model) -> set[str]:
    return {item.code for item in check_model(model, ExternalData(None))}


def test_a_right_model_keeps_every_rule() -> None:
    fine = replace(RIGHT, functions=(FINE,), opsets=OWN)
    kept = replace(fine, graph=replace(fine.graph, initializers=(ONES,)))
    assert not _codes(kept)
    assert not _codes(_leaky(ALPHA))


@pytest.mark.parametrize("code", WRONG)
def test_a_wrong_model_breaks_its_rule(code: str) -> None:
    assert code in _codes(WRONG[code])


def _reshape(inputs: tuple[ValueInfo, ...]) -> Model:
    return _graph(nodes=(Node("Reshape", ("x", "s"), ("y",)),), inputs=inputs)


SHAPE = ValueInfo("s", TensorType(DataType.INT64, (1,)))
UNTRANSLATED: dict[str, Model] = {
    "ONX040": replace(_nodes(Node("Odd", ("x",), ("y",), domain="own")), opsets=OWN),
    "ONX041": _reshape((ValueInfo("x", VECTOR), SHAPE)),
    "ONX042": _graph(inputs=(ValueInfo("x", OtherType("sequence", VECTOR)),)),
    "ONX043": _graph(inputs=(ValueInfo("x", TensorType(DataType.STRING, (2,))),)),
    "ONX044": _graph(inputs=(ValueInfo("x", TensorType(F32)),)),
}


@pytest.mark.parametrize("code", UNTRANSLATED)
def test_what_cannot_become_a_graph_is_said(code: str) -> None:
    with pytest.raises(LamellaError) as problem:
        onnx_to_graph(UNTRANSLATED[code])
    assert code in {item.code for item in problem.value.findings}


def test_functions_that_unfold_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each calls the one before it ten times: a kilobyte of file, ten to the eighth nodes."""
    functions = [FINE]
    for number in range(8):
        calls = tuple(Node(functions[-1].name, ("a",), (f"b{n}",), domain="own") for n in range(9))
        last = Node(functions[-1].name, ("a",), ("b",), domain="own")
        functions.append(Function(f"G{number}", "own", ("a",), ("b",), nodes=(*calls, last)))
    model = replace(_nodes(Node("G7", ("x",), ("y",), domain="own")), functions=tuple(functions), opsets=OWN)
    assert not _codes(model)
    monkeypatch.setattr(walk, "MOST_INLINED", 1000)
    with pytest.raises(LamellaError, match="ONX045"):
        onnx_to_graph(model)


def test_an_input_whose_content_is_needed_is_named() -> None:
    with pytest.raises(ContentsNeeded) as problem:
        onnx_to_graph(UNTRANSLATED["ONX041"])
    assert problem.value.inputs == ("s",)


def test_every_rule_is_broken_here() -> None:
    assert {item.code for item in rules.RULES} == {*WRONG, *UNTRANSLATED, "ONX045", EXPORTED}


def test_findings_end_somewhere() -> None:
    many = [_relu(inputs=(f"missing{number}",), outputs=(f"y{number}",)) for number in range(5000)]
    assert len(check_model(_nodes(*many), ExternalData(None))) == MOST_FINDINGS
