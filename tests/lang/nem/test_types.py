"""Type families, accumulators, quantisation and device validity, judged by the specification's own tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from lamella.base.dtype import LANGUAGES
from lamella.base.quant import PerChannel, PerGroup, PerTensor, Quant
from lamella.lang.nem.check import families_of, scaled_along_reduction
from lamella.lang.nem.check.kernels import check_kernels
from lamella.lang.nem.documents import baseline
from lamella.lang.nem.registry import load_registry
from lamella.lang.nem.resolved import AttributeValue, Task, TensorType
from tests.support.lang.nem.variant_table import ROWS, Row, device_with, variant_id
from tests.support.lang.nem.written_tasks import QUANT, codes, judge_task, tensor, write_task

ELEMENTS = tuple(LANGUAGES["nem"])
CONV: Mapping[str, AttributeValue] = {
    "pads": (0,) * 4,
    "strides": (1, 1),
    "dilations": (1, 1),
    "groups": 1,
}
VIEW: Mapping[str, Mapping[str, AttributeValue]] = {
    "transpose": {"perm": (0,)},
    "reshape": {"target_shape": (4,)},
    "slice": {"starts": (0,), "ends": (4,), "axes": (0,), "steps": (1,)},
    "pad": {"pads": (0, 0), "mode": "edge"},
    "softmax": {"axis": 0},
    "log_softmax": {"axis": 0},
    "layernorm": {"axis": 0, "epsilon": 0.1},
    "rmsnorm": {"axis": 0, "epsilon": 0.1},
}


def opcodes_of(family: str) -> list[str]:
    """The opcodes whose types a family decides and whose operands are all of its types."""
    chosen = [name for name, item in load_registry().items() if family in item.families]
    return [name for name in chosen if name not in ("concat", "split", "gather")]


def task_of(
    opcode: str,
    inputs: Sequence[str],
    output: str,
    accum: str = "",
    quant: Mapping[int, Quant | None] | None = None,
) -> Task:
    """A task with these element types and fitting shapes; quant where int8 and int4 products need it, or as given."""
    product = load_registry()[opcode].families[0].startswith(("gemm", "conv2d"))
    shape: tuple[int, ...] = (4,)
    attributes = dict(VIEW.get(opcode, {}))
    if opcode == "leaky_relu":
        attributes["alpha"] = 0.5
    if opcode == "clamp":
        attributes |= {"min_val": 0.0, "max_val": 1.0}
    if product:
        shape = (4, 4) if opcode in ("gemm", "matmul") else (1, 1, 1, 1)
        attributes = {**(CONV if opcode == "conv2d" else {}), "accum_type": accum}
    kinds = []
    for index, elem in enumerate((*inputs, output)):
        is_bias = product and index == 2 and len(inputs) == 3
        own = (shape[-1],) if is_bias else shape
        scaled = elem.startswith("i") and (product or opcode not in VIEW) and not is_bias
        kinds.append(tensor(elem, own, None, QUANT if scaled else None))
    for index, given in (quant or {}).items():
        kinds[index] = replace(kinds[index], quant=given)
    return write_task(opcode, kinds[:-1], kinds[-1:], attributes)


def types_of(opcode: str, row: Row) -> tuple[str, ...]:
    """The inputs of a row for an opcode: a family's one `input` stands for each."""
    needed = sum(not item.optional for item in load_registry()[opcode].inputs)
    return row[1] * needed if len(row[1]) == 1 else row[1]


CASES = [
    (row, opcode)
    for row in ROWS
    for opcode in opcodes_of(variant_id(row[0]).family)
    if not (opcode == "matmul" and len(row[1]) == 3)
]


# --- legality -----------------------------------------------------------------------------------------------


def test_the_table_is_whole() -> None:
    assert sum(row[4] for row in ROWS) == 17
    assert sum(not row[4] for row in ROWS) == 26
    assert len({variant_id(row[0]).family for row in ROWS}) == 13


def test_the_baseline_is_the_table() -> None:
    found = {(str(item.id), item.must) for items in baseline().variants.values() for item in items}
    assert found == {(row[0], row[4]) for row in ROWS}


@pytest.mark.parametrize(
    ("row", "opcode"), CASES, ids=lambda item: item if isinstance(item, str) else item[0]
)
def test_every_variant_is_legal_with_its_types(row: Row, opcode: str) -> None:
    name, _, output, accum, _ = row
    inputs = types_of(opcode, row)
    if name == "cast.default":
        for source in ELEMENTS:
            for target in ELEMENTS:
                assert judge_task(task_of(opcode, (source,), target)) == ([], name)
        return
    task = task_of(opcode, inputs, output, accum)
    assert judge_task(task) == ([], name)
    for index in range(len(inputs) + 1):
        for elem in ELEMENTS:
            check_perturbed((row, opcode), index, elem)


def check_perturbed(case: tuple[Row, str], index: int, elem: str) -> None:
    """One operand of another type is refused, unless the table has that combination too."""
    (name, _, output, accum, _), opcode = case
    family = variant_id(name).family.partition(".")[0]
    types = [*types_of(opcode, case[0]), output]
    types[index] = elem
    task = task_of(opcode, types[:-1], types[-1], accum)
    known = [
        row
        for row in ROWS
        if variant_id(row[0]).family.partition(".")[0] == family
        and [*types_of(opcode, row), row[2]] == types
        and row[3] == accum
    ]
    if known:
        assert judge_task(task)[1] == known[0][0]
        return
    findings, matched = judge_task(task)
    assert [item.code for item in findings] == ["NEM100"]
    assert "the nearest is" in findings[0].hint
    assert matched == ""


def test_the_nearest_variant_is_named() -> None:
    findings, _ = judge_task(task_of("gemm", ("bf16", "f16"), "bf16", "f32"))
    assert findings[0].message == "no type variant of gemm takes A bf16, B f16, Y bf16"
    assert findings[0].hint == "the nearest is gemm.float<bf16>.no_bias: A bf16, B bf16, Y bf16, no C"
    assert findings[0].span.text == "gemm"


def test_an_accumulator_of_its_own_code() -> None:
    findings, _ = judge_task(task_of("matmul", ("i8", "i8"), "i8", "f32"))
    assert [(item.code, item.span.text) for item in findings] == [("NEM102", "accum_type='f32'")]
    assert findings[0].message == "accum_type is f32 but gemm.int8 accumulates in i32"


def test_without_families_nothing_matches() -> None:
    findings, _ = judge_task(task_of("relu", ("f16",), "f16"), variants={})
    assert findings[0].code == "NEM100"
    assert "no type family" in findings[0].hint


def test_a_missing_accumulator_was_reported() -> None:
    kind = tensor("f16", (4, 4))
    assert judge_task(write_task("gemm", [kind, kind], [kind]))[0] == []


# --- quantisation -------------------------------------------------------------------------------------------


def test_each_operand_without_quant_is_named() -> None:
    bare = task_of("conv2d", ("i8", "i8"), "i8", "i32", {0: None, 1: None, 2: None})
    findings, _ = judge_task(bare)
    assert [(item.code, item.span.text) for item in findings] == [("NEM103", "in0"), ("NEM103", "in1")]
    half = task_of("gemm", ("i8", "i4", "i32"), "i8", "i32", {1: None})
    assert [(item.code, item.span.text) for item in judge_task(half)[0]] == [("NEM103", "in1")]
    for opcode, types in (("quantize", ("f16", "i8")), ("dequantize", ("i8", "f16"))):
        place = types.index("i8")
        found, _ = judge_task(task_of(opcode, types[:1], types[1], quant={place: None}))
        assert [(item.code, item.span.text) for item in found] == [("NEM103", ("in0", "out0")[place])]


def test_quant_where_none_is_taken() -> None:
    for opcode, accum in (("gemm", "f32"), ("add", "")):
        found, _ = judge_task(task_of(opcode, ("f16", "f16"), "f16", accum, {1: QUANT}))
        assert [(item.code, item.span.text) for item in found] == [("NEM104", "in1")]


def test_an_output_without_quant_is_a_warning() -> None:
    findings, matched = judge_task(task_of("gemm", ("i8", "i8"), "i8", "i32", {2: None}))
    assert [(item.code, item.severity, item.span.text) for item in findings] == [
        ("NEM105", "warning", "out0")
    ]
    assert matched == "gemm.int8<i8>.no_bias"


ROWS_OF_B = PerChannel(0, (0.5,) * 4, (0,) * 4)
GROUPS_OF_B = PerGroup(-2, 2, (0.5,) * 2, (0,) * 2)
COLUMNS_OF_B = PerChannel(-1, (0.5,) * 4, (0,) * 4)


@pytest.mark.parametrize(
    ("weights", "bias", "warned"),
    [
        (ROWS_OF_B, None, True),
        (GROUPS_OF_B, None, True),
        (GROUPS_OF_B, QUANT, False),
        (COLUMNS_OF_B, None, False),
        (QUANT, None, False),
    ],
)
def test_a_bias_beside_weights_scaled_along_the_reduction(
    weights: Quant, bias: PerTensor | None, warned: bool
) -> None:
    task = task_of("gemm", ("i8", "i8", "i32"), "i8", "i32", {1: weights, 2: bias})
    assert codes(judge_task(task)) == (["NEM107"] if warned else [])


def test_what_is_summed_up() -> None:
    def weight(axis: int, rank: int) -> TensorType:
        return tensor("i8", (2,) * rank, quant=PerChannel(axis, (0.5, 0.5), (0, 0)))

    assert [scaled_along_reduction("matmul", weight(axis, 3)) for axis in range(3)] == [False, True, False]
    assert [scaled_along_reduction("conv2d", weight(axis, 4)) for axis in range(4)] == [True] * 3 + [False]


@pytest.mark.parametrize("opcode", ["exp", "log", "sigmoid", "tanh", "gelu", "silu", "sqrt"])
@pytest.mark.parametrize("elem", ["i8", "i16", "i32"])
def test_functions_of_plain_integers(opcode: str, elem: str) -> None:
    plain = task_of(opcode, (elem,), elem, quant={0: None, 1: None})
    assert codes(judge_task(plain)) == ["NEM109"]
    assert judge_task(task_of(opcode, (elem,), elem)) == ([], f"eltwise<{elem}>.default")
    assert codes(judge_task(task_of("neg", (elem,), elem, quant={0: None, 1: None}))) == []


# --- opcodes without a family -------------------------------------------------------------------------------


def test_every_opcode_knows_its_families() -> None:
    free = {name for name, item in load_registry().items() if not families_of(item)}
    reductions = {"reduce_sum", "reduce_max", "reduce_min", "argmax", "argmin"}
    assert free == {"transfer", "store", "compute"} | reductions


@pytest.mark.parametrize("opcode", ["maxpool", "avgpool"])
@pytest.mark.parametrize("source", ELEMENTS)
@pytest.mark.parametrize("target", ELEMENTS)
def test_pools_keep_elementwise_types(opcode: str, source: str, target: str) -> None:
    attributes: Mapping[str, AttributeValue] = {
        "kernel_shape": (1, 1),
        "pads": (0,) * 4,
        "strides": (1, 1),
    }
    kinds = [tensor(elem, (1, 1, 1, 1), None) for elem in (source, target)]
    findings = judge_task(write_task(opcode, kinds[:1], kinds[1:], attributes), device_with())
    legal = source == target and f"eltwise<{source}>.default" in {row[0] for row in ROWS}
    assert findings[1] == ""
    assert codes(findings) == ([] if legal else ["NEM106"])


@pytest.mark.parametrize(("opcode", "rank"), [("conv1d", 3), ("conv3d", 5), ("depthwise_conv2d", 4)])
def test_other_convolutions_follow_conv2d(opcode: str, rank: int) -> None:
    for name, inputs, output, accum, _ in ROWS[:11]:
        attributes: dict[str, AttributeValue] = {
            **CONV,
            **{"pads": (0,) * (2 * rank - 4), "strides": (1,) * (rank - 2), "dilations": (1,) * (rank - 2)},
            "accum_type": accum,
        }
        scaled = QUANT if accum == "i32" else None
        kinds = [tensor(elem, (1,) * rank, None, scaled) for elem in (*inputs[:2], output)]
        kinds[2:2] = [tensor(elem, (1,), None) for elem in inputs[2:]]
        task = write_task(opcode, kinds[:-1], kinds[-1:], attributes)
        assert codes(judge_task(task, device_with())) == ["NEM096"], name
        kinds[-1] = replace(kinds[-1], elem="u32")
        wrong = write_task(opcode, kinds[:-1], kinds[-1:], attributes)
        assert codes(judge_task(wrong)) == ["NEM096", "NEM106"]
        off = write_task(opcode, kinds[:-1], kinds[-1:], {**attributes, "accum_type": "i16"})
        assert codes(judge_task(off)) == ["NEM096", "NEM106"]


@pytest.mark.parametrize("elem", ELEMENTS)
def test_reductions_keep_the_type_and_arguments_are_indices(elem: str) -> None:
    for target in ELEMENTS:
        x, y = tensor(elem, (4, 2)), tensor(target, (4, 1))
        sums = write_task("reduce_sum", [x], [y], {"axes": (1,), "keepdims": True})
        assert codes(judge_task(sums)) == ["NEM096"] + ["NEM106"] * (elem != target)
        best = write_task("argmax", [x], [y], {"axis": 1, "keepdims": True})
        assert codes(judge_task(best)) == ["NEM096"] + ["NEM106"] * (target not in ("i32", "u32"))


@pytest.mark.parametrize("elem", ELEMENTS)
def test_gather_takes_any_integers(elem: str) -> None:
    x = tensor("bf16", (4, 2))
    task = write_task("gather", [x, tensor(elem, (4,))], [x], {"axis": 0})
    findings, matched = judge_task(task)
    if elem[0] in "iu":
        assert (findings, matched) == ([], "view<bf16>.default")
    else:
        assert [(item.code, item.span.text) for item in findings] == [("NEM106", "in1")]


@pytest.mark.parametrize("elem", ELEMENTS)
def test_variadic_operands_are_of_one_type(elem: str) -> None:
    x, other, whole = tensor("f16", (2,)), tensor(elem, (2,)), tensor("f16", (4,))
    concat = write_task("concat", [x, other], [whole], {"axis": 0})
    split = write_task("split", [whole], [x, other], {"axis": 0, "split_sizes": (2, 2)})
    for task in (concat, split):
        assert codes(judge_task(task)) == ([] if elem == "f16" else ["NEM100"])


def test_the_escape_hatch_is_pointed_out() -> None:
    x = tensor("u8", (4,))
    task = write_task("compute", [x, x], [x, x], {"op": "fft"})
    assert judge_task(task) == ([], "")
    findings = check_kernels([task], None, "")
    assert [(item.code, item.severity) for item in findings] == [("NEM095", "warning")]


# --- devices ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "opcode"), CASES, ids=lambda item: item if isinstance(item, str) else item[0]
)
def test_a_device_needs_the_variant(row: Row, opcode: str) -> None:
    name, _, output, accum, _ = row
    inputs = ("i8",) if name == "cast.default" else types_of(opcode, row)
    task = task_of(opcode, inputs, "u8" if name == "cast.default" else output, accum)
    assert judge_task(task, device_with(name)) == ([], name)
    extended = replace(device_with(), extended={variant_id(name): "tiny"})
    assert judge_task(task, extended) == ([], name)
    others = [other[0] for other in ROWS if other[0] != name]
    findings, _ = judge_task(task, device_with(*others))
    assert [(item.code, item.span.text) for item in findings] == [("NEM101", opcode)]
    assert f"needs {name}, which device 'tiny' does not have" in findings[0].message


def test_the_nearest_variant_of_the_device() -> None:
    task = task_of("gemm", ("bf16", "bf16"), "bf16", "f32")
    device = device_with("gemm.int8<i8>.with_bias", "gemm.float<f16>.no_bias")
    findings, _ = judge_task(task, device)
    assert findings[0].hint == "the nearest that it has is gemm.float<f16>.no_bias: A f16, B f16, Y f16, no C"
    findings, _ = judge_task(task, device_with("eltwise<i8>.default"))
    assert findings[0].hint == "device 'tiny' has no variant of gemm"
