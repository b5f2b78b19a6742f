"""What a run reports, and names in and out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from lamella.backend.npu import compile_plan, random_inputs
from lamella.base.diagnostic import LamellaError
from lamella.lang.nem.resolved import Index, Plan
from tests.support.backend.npu.programs import CONV_PIPELINE, RING, plan_of
from tests.support.plan.build import Builder, index, loop, operation, plus, region, variable


def codes(error: pytest.ExceptionInfo[LamellaError]) -> list[str]:
    return [item.code for item in error.value.findings]


DIVIDING = """
buffer A : L2 (size=4)
buffer B : L2 (size=4)
buffer Y : DDR (size=4)
loop i in [0..1]:
    loop j in [0..1]:
        quotient = div.sync in region(A, i * 2 + j, 1) elem=i8, shape=[1], layout=C,
            region(B, i * 2 + j, 1) elem=i8, shape=[1], layout=C
            out region(Y, i * 2 + j, 1) elem=i8, shape=[1], layout=C
    endloop
endloop
"""


def test_a_division_by_zero_names_task_and_iteration() -> None:
    executable = compile_plan(plan_of(DIVIDING))
    found = executable(A=np.array([9, 8, 7, 6], np.int8), B=np.array([3, 2, 1, -1], np.int8))
    assert found["Y"].view(np.int8).tolist() == [3, 4, 7, -6]
    with pytest.raises(LamellaError) as caught:
        executable(A=np.array([9, 8, 7, 6], np.int8), B=np.array([3, 2, 0, 0], np.int8))
    assert codes(caught) == ["NEM172"]
    assert caught.value.findings[0].message == "quotient (div) divides by zero in iteration i=1, j=0"
    assert caught.value.findings[0].span.line == 7
    assert executable.findings == list(caught.value.findings)


def test_uninitialised_reads_are_counted_once_for_each_task() -> None:
    executable = compile_plan(plan_of(DIVIDING.replace("buffer A : L2", "buffer A : L1")))
    executable(B=np.ones(4, np.int8))
    assert [item.code for item in executable.findings] == ["NEM170"]
    message = executable.findings[0].message
    assert (
        message
        == "quotient (div) reads bytes [0, 1) of 'A', which nothing has written in iteration i=0, j=0 (4 times)"
    )
    executable(A=np.ones(4, np.int8), B=np.ones(4, np.int8))
    assert not executable.findings


SCRATCH = """
buffer S : L1 (size=8)
buffer Y : L2 (size=8)
store.sync(dst=region(Y, 0, 8), src=region(S, 0, 8)) @debug(flush)
"""


def test_random_bytes_of_an_l1_do_not_count_as_written() -> None:
    executable = compile_plan(plan_of(SCRATCH))
    assert executable.inputs == ("S",)
    found = executable()
    assert [item.message for item in executable.findings] == [
        "flush reads bytes [0, 8) of 'S', which nothing has written"
    ]
    assert found["Y"].any()
    given = np.arange(8, dtype=np.uint8)
    assert executable(S=given)["Y"].tolist() == given.tolist()
    assert not executable.findings


def test_the_escape_hatch_stops_the_run() -> None:
    plan = plan_of("""
    buffer A : L2 (size=8)
    compute.sync in region(A, 0, 4) elem=i8, shape=[4], layout=C
        out region(A, 4, 4) elem=i8, shape=[4], layout=C op="fft"
    """)
    with pytest.raises(LamellaError) as caught:
        compile_plan(plan)()
    assert codes(caught)[-1] == "NEM174"
    assert "'fft'" in caught.value.findings[-1].message


def test_an_overflow_is_a_warning_and_the_run_goes_on() -> None:
    count = 34_000
    plan = plan_of(f"""
    buffer A : L2 (size={count})
    buffer Y : L2 (size=1)
    let a = region(A, 0, {count}) elem=i8, shape=[1, {count}], layout=MK, quant=per_tensor(scale=1.0, zero_point=-128)
    let b = region(A, 0, {count}) elem=i8, shape=[{count}, 1], layout=KN, quant=per_tensor(scale=1.0, zero_point=-128)
    let y = region(Y, 0, 1) elem=i8, shape=[1, 1], layout=MN, quant=per_tensor(scale=20000000.0, zero_point=0)
    big = gemm.sync in a, b out y accum_type=i32
    """)
    executable = compile_plan(plan)
    total = count * 255 * 255
    assert executable(A=np.full(count, 127, np.int8))["y"].tolist() == [[round((total - 2**32) / 2e7)]]
    assert [item.message for item in executable.findings] == [f"big (gemm) leaves i32: {total}"]


# --- names --------------------------------------------------------------------------------------------------


def test_inputs_are_what_is_read_before_it_is_written() -> None:
    conv = compile_plan(plan_of(CONV_PIPELINE))
    assert conv.inputs == ("X_L2", "W_L2", "Bias")
    assert conv.outputs == ("Y_L2", "Y")
    ring = compile_plan(plan_of(RING))
    assert ring.inputs == ("A_L2", "B")
    found = ring()
    assert found["Y_L2"].dtype == np.uint8
    assert found["Y"].shape == (24, 8)
    assert found["Y"].tobytes() == found["Y_L2"].tobytes()


NAMES = """
buffer W : DDR (size=8, import)
buffer N : DDR (size=8)
buffer Z : L2 (size=64)
let four = region(Z, 0, 4) elem=i4, shape=[7], layout=C
let brain = region(Z, 4, 8) elem=bf16, shape=[4], layout=C
let raw = region(Z, 12, 4)
let still = region(N, 0, 8) elem=f32, shape=[2], layout=C
let copied = region(Z, 24, 4) elem=i4, shape=[8], layout=C
let doubled = region(Z, 32, 8) elem=bf16, shape=[4], layout=C
let other = region(Z, 40, 4)
transfer.sync(dst=copied, src=region(Z, 0, 4))
add.sync in brain, brain out doubled
transfer.sync(dst=other, src=raw)
"""


def test_regions_travel_in_exchange_types() -> None:
    executable = compile_plan(plan_of(NAMES))
    assert executable.inputs == ("W", "Z", "four", "brain")
    assert executable.outputs == ("Z", "copied", "doubled")
    four = np.array([-8, 7, 0, 1, -1, 2, 3], np.int8)
    found = executable(
        four=four, brain=np.array([1.5, -2.0, 0.25, 3.0], np.float32), raw=np.arange(4, dtype=np.uint8)
    )
    assert not executable.findings
    assert found["copied"].dtype == np.int8
    assert found["copied"].tolist() == [*four.tolist(), 0]
    assert found["doubled"].dtype == np.float32
    assert found["doubled"].tolist() == [3.0, -4.0, 0.5, 6.0]
    assert found["Z"][40:44].tolist() == [0, 1, 2, 3]


def test_later_inputs_win_over_earlier_ones() -> None:
    executable = compile_plan(plan_of(NAMES))
    whole, part = np.zeros(64, np.uint8), np.full(7, 5, np.int8)
    assert executable(Z=whole, four=part)["copied"].tolist() == [5] * 7 + [0]
    assert executable(four=part, Z=whole)["copied"].tolist() == [0] * 8


def test_types_that_lose_nothing_are_converted() -> None:
    executable = compile_plan(plan_of(NAMES))
    for brain in (np.array([1, 2, 3, 4]), np.array([1, 2, 3, 4], ml_dtypes.bfloat16), [1.0, 2.0, 3.0, 4.0]):
        found = executable(four=np.arange(7), brain=brain, raw=np.zeros(1, np.float32))
        assert found["doubled"].tolist() == [2.0, 4.0, 6.0, 8.0]
        assert found["copied"].tolist() == [*range(7), 0]


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("nobody", np.zeros(1), "neither a buffer nor a region"),
        ("Z", np.zeros(63, np.uint8), "has 63 bytes; 64 are expected"),
        ("four", np.zeros(8, np.int8), "has shape [8]; the region is i4[7]"),
        ("four", np.full(7, 8, np.int8), "value 8 is outside i4"),
        ("four", np.full(7, 100), "no equal in i4"),
        ("brain", np.full(4, 0.1), "no equal in bf16"),
        ("four", np.array(["a"] * 7), "no element type"),
        ("Z", np.array([None] * 64), "no element type"),
        ("still", np.full(2, np.float64(1e300)), "no equal in f32"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(name: str, value: object, part: str) -> None:
    executable = compile_plan(plan_of(NAMES))
    with pytest.raises(LamellaError) as caught:
        executable(**{name: np.asarray(value)})
    assert codes(caught) == ["NEM177"]
    assert part in caught.value.findings[0].message


# --- random inputs ------------------------------------------------------------------------------------------

DRAWN = """
buffer I : DDR (size=400)
buffer X : DDR (size=8000)
buffer T : L1 (size=4000)
buffer Y : DDR (size=200)
buffer B : L2 (size=40)
buffer A : L2 (size=20)
let idx = region(I, 0, 100) elem=i8, shape=[100], layout=C
let table = region(I, 100, 20) elem=i16, shape=[10], layout=C
let picked = region(Y, 0, 200) elem=i16, shape=[100], layout=C
let bias = region(B, 0, 40) elem=i32, shape=[10], layout=C
let a = region(A, 0, 10) elem=i8, shape=[10, 1], layout=MK, quant=per_tensor(scale=0.1, zero_point=0)
let b = region(A, 10, 10) elem=i8, shape=[1, 10], layout=KN, quant=per_tensor(scale=0.1, zero_point=0)
gather.sync in table, idx out picked axis=0
gemm.sync in a, b, bias
    out region(T, 0, 100) elem=i8, shape=[10, 10], layout=MN, quant=per_tensor(scale=0.1, zero_point=0) accum_type=i32
loop i in [0..1]:
    transfer.sync(dst=region(T, 0, 4000), src=region(X, i * 4000, 4000))
    exp.sync in region(T, 0, 4000) elem=f16, shape=[2000], layout=C
        out region(T, 0, 4000) elem=f16, shape=[2000], layout=C
endloop
"""


def test_random_inputs_suit_the_program() -> None:
    plan = plan_of(DRAWN)
    drawn = random_inputs(plan, 5)
    assert set(drawn) == set(compile_plan(plan).inputs)
    assert drawn["idx"].min() >= 0
    assert drawn["idx"].max() == 9
    assert 2**13 < abs(drawn["bias"]).max() <= 2**15
    assert drawn["table"].dtype == np.int16
    # These bytes have a type only after they were moved.
    moved = drawn["X"].view(np.float16)
    assert np.isfinite(moved).all()
    assert abs(float(moved.astype(np.float64).std()) - 1.0) < 0.1


def test_random_inputs_are_those_of_the_seed() -> None:
    plan = plan_of(DRAWN)
    first, again, other = random_inputs(plan, 5), random_inputs(plan, 5), random_inputs(plan, 6)
    assert {key: value.tobytes() for key, value in first.items()} == {
        k: v.tobytes() for k, v in again.items()
    }
    assert any(first[key].tobytes() != other[key].tobytes() for key in first)
    found, same = compile_plan(plan, seed=5)(), compile_plan(plan)(**first)
    assert found["picked"].tolist() == same["picked"].tolist()


# --- the interpreter trusts no plan -------------------------------------------------------------------------


def _moving(offset: Index) -> Plan:
    builder = Builder()
    source, target = builder.buffer("S", 8), builder.buffer("T", 8)
    move = builder.move(region(source, offset, 4), region(target, 0, 4))
    return builder.plan([loop(builder.loop_number(), 0, 3, 1, [move])])


def test_a_place_outside_its_buffer_is_refused() -> None:
    with pytest.raises(LamellaError) as caught:
        compile_plan(_moving(plus(index(), variable(0), 2)))
    assert codes(caught) == ["NEM040"]
    assert caught.value.findings[0].message.startswith("region [6, 10) leaves buffer 'S' of 8 bytes")


def test_a_place_divided_by_zero_is_refused() -> None:
    with pytest.raises(LamellaError) as caught:
        compile_plan(_moving(operation("/", index(4), variable(0))))
    assert codes(caught) == ["NEM022"]
