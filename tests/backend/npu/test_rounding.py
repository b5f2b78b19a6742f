"""Numbers picked so that one careless rounding shows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.npu.opcodes import OpcodeInput
from lamella.base.arrays import Array
from lamella.base.quant import PerGroup, PerTensor, Quant
from lamella.lang.nem.resolved import AttributeValue
from tests.support.backend.npu.drawing import Case, tensor

BYTES = st.integers(-128, 127)
EXACT: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {
        **{"add": operator.add, "sub": operator.sub, "mul": operator.mul, "pow": operator.pow},
        "div": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    }
)


def _product(
    a: list[int], b: list[int], quants: tuple[Quant, Quant, Quant | None], bias: int | None = None
) -> Case:
    left, right = np.array([a], np.int8), np.array(b, np.int8)[:, None]
    inputs = [
        OpcodeInput(left, tensor("i8", left.shape, quants[0])),
        OpcodeInput(right, tensor("i8", right.shape, quants[1])),
    ]
    if bias is not None:
        inputs.append(OpcodeInput(np.array([bias], np.int32), tensor("i32", (1,))))
    return Case("gemm", inputs, [tensor("i16", (1, 1), quants[2])], {"accum_type": "i32"})


def _only(case: Case) -> int:
    return int(case.run()[0].reshape(-1)[0])


@pytest.mark.parametrize(
    ("scales", "acc"), [((0.72, 0.75, 0.72), 38), ((0.35, 0.42, 0.55), 275), ((0.4, 0.75, 0.56), 154)]
)
def test_the_multiplier_is_one_product_and_one_quotient(scales: tuple[float, float, float], acc: int) -> None:
    a, b, y = scales
    quants = PerTensor(a), PerTensor(b), PerTensor(y)
    assert _only(_product([1, 1, 1], [acc // 3, acc // 3, acc - 2 * (acc // 3)], quants)) == round(
        acc * (a * b / y)
    )


@pytest.mark.parametrize(
    ("scale", "x"), [(0.59, 7.375), (0.62, 7.75), (0.14, 5.25), (0.5, 0.25), (0.5, 0.75)]
)
def test_quantize_divides_and_rounds_half_to_even(scale: float, x: float) -> None:
    operand = OpcodeInput(np.array([x, -x], np.float32), tensor("f32", (2,)))
    found = Case("quantize", [operand], [tensor("i8", (2,), PerTensor(scale, 3))]).run()[0]
    assert found.tolist() == [round(x / scale) + 3, round(-x / scale) + 3]


def test_groups_are_combined_in_ascending_order() -> None:
    quants = PerTensor(1.0), PerGroup(0, 1, (1e17, 1e17, 1.0), (0, 0, 0)), PerTensor(1.0)
    assert _only(_product([1, -1, 1], [1, 1, 1], quants)) == 1
    assert (
        _only(
            _product(
                [1, 1, -1], [1, 1, 1], (quants[0], PerGroup(0, 1, (1.0, 1e17, 1e17), (0, 0, 0)), quants[2])
            )
        )
        == 0
    )


def _wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


COUNT = 34_000
"""Products of 255 * 255: just too many for 32 bits."""


def test_an_accumulator_that_leaves_i32_is_reported_and_wraps() -> None:
    total = COUNT * 255 * 255
    quants = PerTensor(1.0, -128), PerTensor(1.0, -128), PerTensor(2.0**20)
    case = _product([127] * COUNT, [127] * COUNT, quants)
    assert _only(case) == round(_wrapped(total) / 2**20)
    assert case.reported == [("NEM171", {"elem": "i32", "value": total})]


def test_each_group_has_its_own_accumulator() -> None:
    groups = PerGroup(0, COUNT, (1.0, 1.0), (-128, -128))
    case = _product(
        [127] * (2 * COUNT), [127] * (2 * COUNT), (PerTensor(1.0, -128), groups, PerTensor(2.0**20))
    )
    assert _only(case) == round(2 * _wrapped(COUNT * 255 * 255) / 2**20)
    assert case.codes() == {"NEM171"}


def test_a_bias_can_be_what_overflows() -> None:
    case = _product([1], [1], (PerTensor(1.0), PerTensor(1.0), PerTensor(2.0**20)), bias=2**31 - 1)
    assert _only(case) == round(-(2**31) / 2**20)
    assert case.codes() == {"NEM171"}


def test_without_a_descriptor_of_the_output_accumulators_are_clamped() -> None:
    assert _only(_product([100] * 9, [100] * 9, (PerTensor(0.1), PerTensor(0.1), None))) == 2**15 - 1


def _plain(opcode: str, a: list[int], b: list[int]) -> Case:
    arrays: list[Array] = [np.array(item, np.int8) for item in (a, b)]
    type = tensor("i8", (len(a),))
    return Case(opcode, [OpcodeInput(item, type) for item in arrays], [type])


def test_dividing_plain_integers_by_zero_is_reported() -> None:
    case = _plain("div", [7, -7, 5, -128], [2, 2, 0, 1])
    assert case.run()[0].tolist() == [3, -3, 0, -128]
    assert case.reported == [("NEM172", {})]
    case = _plain("pow", [0, 2], [-1, 6])
    assert case.run()[0].tolist() == [0, 64]
    assert case.codes() == {"NEM172"}


@pytest.mark.parametrize("opcode", ["add", "sub", "mul", "div", "pow"])
@given(st.lists(st.tuples(BYTES, BYTES), min_size=1, max_size=8))
def test_plain_integers_that_leave_their_type_are_reported(opcode: str, pairs: list[tuple[int, int]]) -> None:
    pairs = [(a, b & 127) if opcode == "pow" else (a, b or 1) for a, b in pairs]
    case = _plain(opcode, [a for a, _ in pairs], [b for _, b in pairs])
    exact = [EXACT[opcode](a, b) for a, b in pairs]
    assert case.run()[0].tolist() == [(value + 128) % 256 - 128 for value in exact]
    assert case.codes() == {"NEM171" for value in exact if not -128 <= value <= 127}


def test_the_sum_of_plain_integers_is_reported_when_it_leaves_their_type() -> None:
    x = OpcodeInput(np.array([100, 27, 1], np.int8), tensor("i8", (3,)))
    case = Case("reduce_sum", [x], [tensor("i8", (1,))], {"axes": (0,), "keepdims": True})
    assert _only(case) == -128
    assert case.reported == [("NEM171", {"elem": "i8", "value": 128})]


@pytest.mark.parametrize("index", [-1, 3, 100])
def test_gathering_outside_is_reported(index: int) -> None:
    x = OpcodeInput(np.array([1, 2, 3], np.int8), tensor("i8", (3,)))
    indices = OpcodeInput(np.array([0, index], np.int8), tensor("i8", (2,)))
    case = Case("gather", [x, indices], [tensor("i8", (2,))], {"axis": 0})
    case.run()
    assert case.reported == [("NEM173", {"index": index, "size": 3})]


def test_hostile_pads_cost_nothing() -> None:
    x = OpcodeInput(np.ones((1, 1, 1, 1), np.int8), tensor("i8", (1, 1, 1, 1), PerTensor(1.0)))
    huge = 10**18
    attributes: dict[str, AttributeValue] = {
        "pads": (huge, huge, huge, huge),
        "strides": (huge, huge),
        "dilations": (1, 1),
        "groups": 1,
    }
    y = tensor("i8", (1, 3, 3, 1), PerTensor(1.0))
    found = Case("conv2d", [x, x], [y], attributes).run()[0].reshape(3, 3)
    assert found.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_gelu_keeps_its_digits_far_below_zero() -> None:
    x = np.array([-10.0, -5.0, -1e-30], np.float32)
    type = tensor("f32", (3,))
    found = Case("gelu", [OpcodeInput(x, type)], [type]).run()[0]
    np.testing.assert_allclose(found, [-7.619853e-23, -1.433258e-06, -5e-31], rtol=1e-6)
