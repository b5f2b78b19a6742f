"""Operands and attribute values of one task: counts, ranks, layouts, places of findings, moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lamella.lang.nem.check.operands import named_inputs, named_outputs
from lamella.lang.nem.registry import load_registry
from lamella.lang.nem.resolved import AttributeValue
from tests.support.lang.nem.written_tasks import (
    QUANT,
    codes,
    codes_for,
    judge_task,
    shape_findings,
    tensor,
    write_task,
)

Shape = tuple[int, ...]
Attributes = Mapping[str, AttributeValue]
# --- what else is said --------------------------------------------------------------------------------------

POOL: Attributes = {"kernel_shape": (2, 2), "pads": (0, 0, 0, 0), "strides": (1, 1)}
WRONG_VALUES: list[tuple[str, list[Shape], Attributes, str]] = [
    ("maxpool", [(1, 4, 4, 1)], {**POOL, "strides": (1,)}, "it needs 2 values"),
    ("maxpool", [(1, 4, 4, 1)], {**POOL, "strides": (0, 1)}, "at least 1"),
    ("maxpool", [(1, 4, 4, 1)], {**POOL, "pads": (0, 0, -1, 0)}, "at least 0"),
    ("pad", [(4,)], {"pads": (1, 1), "mode": "wrap"}, "constant, edge or reflect"),
    ("layernorm", [(4,)], {"axis": 0, "epsilon": -0.5}, "must not be negative"),
    ("clamp", [(4,)], {"min_val": 2.0, "max_val": 1.0}, "must not exceed max_val 1.0"),
    ("reduce_sum", [(4,)], {"axes": (), "keepdims": True}, "at least one axis"),
    ("slice", [(4,)], {"starts": (0, 1), "ends": (2,), "axes": (0,), "steps": (1,)}, "it needs 1 value"),
]


@pytest.mark.parametrize(("opcode", "inputs", "attributes", "wanted"), WRONG_VALUES)
def test_attribute_values_are_named(
    opcode: str, inputs: list[Shape], attributes: Attributes, wanted: str
) -> None:
    ins = [tensor("f16", shape, None) for shape in inputs]
    task = write_task(opcode, ins, ins[:1], attributes)
    (finding,) = shape_findings(task)
    assert finding.code == "NEM091"
    assert wanted in finding.message
    assert finding.span.text.partition("=")[0] in attributes


@pytest.mark.parametrize(("value", "legal"), [(7.0, True), (0.5, False), (128.0, False), (-129.0, False)])
def test_what_fills_plain_integers_is_one_of_them(value: float, legal: bool) -> None:
    attributes: Attributes = {"pads": (1, 1), "mode": "constant", "constant_value": value}
    plain = write_task("pad", [tensor("i8", (4,))], [tensor("i8", (6,))], attributes)
    assert [item.code for item in shape_findings(plain)] == ([] if legal else ["NEM091"])
    scaled = tensor("i8", (4,), quant=QUANT)
    assert not shape_findings(write_task("pad", [scaled], [tensor("i8", (6,), quant=QUANT)], attributes))


@pytest.mark.parametrize("missing", ["pads", "strides", "kernel_shape"])
def test_a_missing_attribute_keeps_shapes_silent(missing: str) -> None:
    attributes = {name: value for name, value in POOL.items() if name != missing}
    assert codes_for("maxpool", [(1, 4, 4, 1)], [(9, 9, 9, 9)], attributes) == []


def test_sizes_beyond_the_integers_are_a_finding() -> None:
    attributes: Attributes = {"pads": (2**63 - 1, 0), "mode": "constant", "constant_value": 0.0}
    assert codes_for("pad", [(4,)], [(4,)], attributes) == ["NEM090"]
    huge: Attributes = {"pads": (2**63 - 1,) * 2, "strides": (1,), "dilations": (2**62,), "groups": 1}
    assert codes_for("conv1d", [(1, 4, 1), (3, 1, 1)], [(1, 4, 1)], huge) == ["NEM090"]


def test_places_of_findings() -> None:
    x, w = tensor("f16", (1, 4, 4, 2), "NCHW"), tensor("f16", (1, 1, 2), "HWIO")
    attributes: Attributes = {"pads": (0,) * 4, "strides": (1, 1), "dilations": (1, 1), "groups": 1}
    found = shape_findings(write_task("conv2d", [x, w], [x], attributes))
    assert [(item.code, item.span.text) for item in found] == [
        ("NEM087", "in1"),
        ("NEM088", "in0"),
        ("NEM088", "out0"),
    ]


@pytest.mark.parametrize(("shapes", "places"), [([(4,), (4, 4)], ["in0"]), ([(4,), (4,)], ["in0", "in1"])])
def test_a_product_has_rows_and_columns(shapes: list[Shape], places: list[str]) -> None:
    ins = [tensor("f16", shape) for shape in shapes]
    found = shape_findings(write_task("matmul", ins, [tensor("f16", (9, 9))], {"accum_type": "f32"}))
    assert [(item.code, item.span.text) for item in found] == [("NEM087", place) for place in places]


@pytest.mark.parametrize(("layout", "legal"), [("NHWC", True), (None, True), ("NCHW", False), ("MK", False)])
def test_layouts_of_images(layout: str | None, legal: bool) -> None:
    x = tensor("f16", (1, 4, 4, 2), layout)
    task = write_task("avgpool", [x], [tensor("f16", (1, 3, 3, 2), "NHWC")], POOL)
    assert [item.code for item in shape_findings(task)] == ([] if legal else ["NEM088"])


def test_operands_are_named_by_position() -> None:
    registry, x = load_registry(), tensor("f16", (4,))
    norm = write_task("layernorm", [x, x, x], [x])
    assert list(named_inputs(norm, registry["layernorm"])) == ["X", "scale", "bias"]
    assert list(named_inputs(write_task("gemm", [x, x], [x]), registry["gemm"])) == ["A", "B"]
    concat = write_task("concat", [x, x], [x])
    assert list(named_inputs(concat, registry["concat"])) == ["X[0]", "X[1]"]
    split = write_task("split", [x], [x, x, x])
    assert list(named_outputs(split, registry["split"])) == ["Y[0]", "Y[1]", "Y[2]"]


@pytest.mark.parametrize("opcode", [name for name in load_registry() if name not in ("transfer", "store")])
def test_counts_and_missing_types_silence_the_rest(opcode: str) -> None:
    signature = load_registry()[opcode]
    some = tensor("f16", (2, 2))
    none, many = write_task(opcode, [], [some]), [some] * (len(signature.inputs) + 1)
    assert [item.code for item in judge_task(none)[0] if item.severity == "error"] == ["NEM080"]
    if not signature.inputs[-1].variadic:
        found = judge_task(write_task(opcode, many, [some]))[0]
        assert [item.code for item in found if item.severity == "error"] == ["NEM080"]
    needed = [some] * sum(not item.optional for item in signature.inputs)
    assert "NEM081" in [item.code for item in judge_task(write_task(opcode, needed, []))[0]]
    untyped, _ = judge_task(write_task(opcode, [None] * len(needed), [some]))
    errors = [(item.code, item.span.text) for item in untyped if item.severity == "error"]
    assert errors == [("NEM082", f"in{index}") for index in range(len(needed))]


# --- moves --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", ["transfer", "store"])
def test_moves(opcode: str) -> None:
    x = tensor("i8", (4, 4))
    assert judge_task(write_task(opcode, [None], [x])) == ([], "")
    assert judge_task(write_task(opcode, [x], [tensor("i8", (16,))])) == ([], "")
    for other in (tensor("u8", (16,)), tensor("i8", (15,))):
        found, _ = judge_task(write_task(opcode, [x], [other]))
        assert [(item.code, item.span.text) for item in found] == [("NEM094", "out0")]
    task = write_task(opcode, [x], [x])
    small = replace(task, outputs=(replace(task.outputs[0], extent=63),))
    assert codes(judge_task(small)) == ["NEM093"]
    assert codes(judge_task(write_task(opcode, [], [x]))) == ["NEM080"]
