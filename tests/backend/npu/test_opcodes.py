"""Every opcode against a judge that is not ours."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.npu.opcodes import OPCODES
from lamella.lang.nem.registry import load_registry
from tests.support.backend.npu import by_torch, cases, exact, exact_moving
from tests.support.backend.npu.drawing import FLOATS, INTEGERS, Case, Draw, tensor

Build = Callable[[Draw, str], Case]
Exact = tuple[Build, Callable[[Case], exact.Results]]
ByTorch = tuple[Build, by_torch.Judge]

TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5}
ONE_STEP = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-22}
CONVOLUTIONS = tuple(cases.RANKS)
POOLS = ("maxpool", "avgpool")
REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min")
ELEMENTS = (*cases.UNARY, *cases.BINARY)
SOFT = ("softmax", "log_softmax", "layernorm", "rmsnorm")


def _with(build: Callable[[Draw, str, str], Case], *elems: str) -> Build:
    """A builder that draws its element type too."""
    return lambda draw, opcode: build(draw, opcode, draw.one_of(*elems))


INTEGER_JUDGES: dict[str, Exact] = {
    **dict.fromkeys(("gemm", "matmul"), (cases.integer_product, exact.gemm)),
    **dict.fromkeys(CONVOLUTIONS, (_with(cases.convolution, "i8", "i4"), exact.convolve)),
    **dict.fromkeys(POOLS, (_with(cases.pool, *INTEGERS), exact_moving.pool)),
    **dict.fromkeys(ELEMENTS, (cases.quantised_elements, exact.quantised_elements)),
    **dict.fromkeys(REDUCTIONS, (_with(cases.reduction, *INTEGERS), exact_moving.reduce_axes)),
    **dict.fromkeys(
        ("argmax", "argmin"), (_with(cases.extreme_place, *INTEGERS, *FLOATS), exact_moving.find_extreme)
    ),
    **dict.fromkeys(("transfer", "store"), (cases.moved_bytes, exact_moving.copy)),
    **{
        name: (cases.view, getattr(exact_moving, "slice_axes" if name == "slice" else name))
        for name in ("transpose", "reshape", "slice", "concat", "split", "pad", "gather")
    },
    **{name: (cases.conversion, getattr(exact_moving, name)) for name in ("cast", "quantize", "dequantize")},
}
PLAIN_JUDGES: dict[str, Exact] = {
    name: (cases.plain_elements, exact.plain_elements) for name in ELEMENTS if name not in cases.REAL_ONLY
}
ORDER_JUDGES: dict[str, Exact] = {
    **dict.fromkeys(("gemm", "matmul"), (cases.float_product, exact.gemm)),
    **dict.fromkeys(CONVOLUTIONS, (_with(cases.convolution, *FLOATS), exact.convolve)),
}
FLOAT_JUDGES: dict[str, ByTorch] = {
    **dict.fromkeys(ELEMENTS, (cases.float_elements, by_torch.elements)),
    **dict.fromkeys(("gemm", "matmul"), (cases.float_product, by_torch.product)),
    **dict.fromkeys(CONVOLUTIONS, (_with(cases.convolution, *FLOATS), by_torch.convolution)),
    **dict.fromkeys(POOLS, (_with(cases.pool, *FLOATS), by_torch.pool)),
    **dict.fromkeys(REDUCTIONS, (_with(cases.reduction, *FLOATS), by_torch.reduction)),
    **dict.fromkeys(("softmax", "log_softmax"), (cases.along_axis, by_torch.soft)),
    **dict.fromkeys(("layernorm", "rmsnorm"), (cases.along_axis, by_torch.norm)),
}


def _assert_equal(case: Case, judge: Callable[[Case], exact.Results]) -> None:
    for found, wanted, type in zip(case.run(), judge(case), case.outputs, strict=True):
        np.testing.assert_array_equal(found.astype(np.float64), exact.as_array(wanted, type))


@pytest.mark.parametrize("opcode", INTEGER_JUDGES)
@given(data=st.data())
def test_integers_and_moved_elements_are_exact(opcode: str, data: st.DataObject) -> None:
    build, judge = INTEGER_JUDGES[opcode]
    _assert_equal(build(Draw(data), opcode), judge)


@pytest.mark.parametrize("opcode", PLAIN_JUDGES)
@given(data=st.data())
def test_plain_integers_wrap(opcode: str, data: st.DataObject) -> None:
    build, judge = PLAIN_JUDGES[opcode]
    _assert_equal(build(Draw(data), opcode), judge)


@pytest.mark.parametrize("opcode", ORDER_JUDGES)
@given(data=st.data())
def test_float_sums_keep_the_reference_order(opcode: str, data: st.DataObject) -> None:
    build, judge = ORDER_JUDGES[opcode]
    _assert_equal(build(Draw(data), opcode), judge)


@pytest.mark.parametrize("opcode", FLOAT_JUDGES)
@given(data=st.data())
def test_floats_agree_with_torch(opcode: str, data: st.DataObject) -> None:
    build, judge = FLOAT_JUDGES[opcode]
    case = build(Draw(data), opcode)
    elem = case.outputs[0].elem
    (found,), wanted = case.run(), judge(case).numpy()
    wanted = np.array([exact.nearest(value, elem) for value in wanted.flat]).reshape(wanted.shape)
    finite = np.abs(wanted[np.isfinite(wanted)])
    relative = ONE_STEP[elem] if opcode in ELEMENTS else TOLERANCE[elem]
    least = 2.0**-23 if opcode in ELEMENTS else relative * float(finite.max(initial=0.0))
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=relative, atol=least)


def test_every_opcode_of_the_registry_has_a_judge() -> None:
    judged = {*INTEGER_JUDGES, *PLAIN_JUDGES, *FLOAT_JUDGES}
    assert judged == set(load_registry()) - {"compute"}
    assert set(OPCODES) == set(load_registry())
    assert judged - set(FLOAT_JUDGES) == set(INTEGER_JUDGES) - {*ELEMENTS, *ORDER_JUDGES, *POOLS, *REDUCTIONS}


def test_the_escape_hatch_is_unsupported() -> None:
    case = Case("compute", [], [tensor("i8", (2,))], {"op": "fft"})
    assert case.run()[0].tolist() == [0, 0]
    assert case.reported == [("NEM174", {"name": "fft"})]
