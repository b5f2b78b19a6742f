"""Broadcast, reductions, scans and builtins of a subgroup, against the order of the lanes in NumPy."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.arguments import dtype_of
from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.subgroups import emit_broadcast, emit_builtin, emit_operation
from lamella.backend.cpu.emit.values import ScalarValue
from lamella.backend.interpreter.arithmetic import Number, is_complex, is_integer
from lamella.base.arrays import Array, DType
from lamella.lang.tensor.nodes import INDEX, Builtin, Scalar, SubgroupBroadcast, SubgroupOperation, Value
from lamella.lang.tensor.words import FORMS, SCALARS
from tests.support.backend.cpu.emitting import (
    compile_kernel,
    draw_values,
    in_parts,
    make_here,
    read_lanes,
    read_mask,
    read_slot,
    write_lanes,
)

X, LANE = Value("x"), Value("lane")
LANES = (1, 2, 4, 8, 16, 32, 64)
FUNCTIONS = {"add": np.add, "max": np.fmax, "min": np.fmin}


def _start(function: str, dtype: DType) -> Number:
    """What a scan begins with."""
    least, found = function == "max", 0.0
    if function != "add" and is_integer(dtype):
        bounds = np.iinfo(dtype)
        found = bounds.min if least else bounds.max
    elif function != "add":
        found = -np.inf if least else np.inf
    started: Number = np.array([found]).astype(dtype)[0]
    return started


def _judge(function: str, form: str, values: Array, active: Array) -> Array:
    """The results of the lanes that run."""
    running = list(values[active])
    found = list(accumulate(running, FUNCTIONS[function]))
    if form == "reduce":
        return np.array(found[-1:], values.dtype)
    if form == "exclusive_scan":
        found = [_start(function, values.dtype), *found[:-1]]
    return np.array(found, values.dtype)


@given(
    st.sampled_from(SCALARS),
    st.sampled_from(["add", "max", "min"]),
    st.sampled_from(FORMS),
    st.sampled_from(LANES),
    st.one_of(st.none(), st.integers(1, (1 << 64) - 1)),
)
def test_reductions_and_scans(element: str, function: str, form: str, lanes: int, mask: int | None) -> None:
    if function != "add" and is_complex(dtype_of(element)):
        function = "add"
    here = make_here(lanes)
    here.values["x"] = read_lanes(here, element, 0)
    bits = (1 << lanes) - 1
    if mask is not None and lanes > 1:
        read_mask(here, 1)
        bits = mask % (1 << lanes) or 1
    found = emit_operation(here, SubgroupOperation(function, form, X, Scalar(element)))
    assert found.is_uniform == (form == "reduce" or lanes == 1)
    here.mask = None
    write_lanes(here, found, 2)
    values = draw_values(element, lanes, lanes)
    result = in_parts(np.zeros(found.count, values.dtype))
    compile_kernel(here)(in_parts(values), bits, result)
    active = np.array([bits >> lane & 1 for lane in range(lanes)], bool)
    whole = result.reshape(-1, found.count)
    seen = whole[:, active] if found.count == lanes else whole
    wanted = _judge(function, form, values, active)
    np.testing.assert_array_equal(seen.reshape(-1), in_parts(wanted))


@pytest.mark.parametrize("function", ["max", "min"])
@pytest.mark.parametrize("form", FORMS)
def test_a_number_wins_over_nan_and_only_nan_gives_nan(function: str, form: str) -> None:
    here = make_here(8)
    here.values["x"] = read_lanes(here, "f32", 0)
    found = emit_operation(here, SubgroupOperation(function, form, X, Scalar("f32")))
    write_lanes(here, found, 1)
    call = compile_kernel(here)
    nan = float("nan")
    for values in ([nan] * 8, [nan, nan, 3, nan, -5, nan, nan, 9]):
        array, result = np.array(values, np.float32), np.zeros(found.count, np.float32)
        call(array, result)
        np.testing.assert_array_equal(result, _judge(function, form, array, np.ones(8, bool)))


@pytest.mark.parametrize("form", ["reduce", "inclusive_scan"])
def test_the_sum_of_minus_zeros_is_minus_zero(form: str) -> None:
    here = make_here(8)
    here.values["x"] = read_lanes(here, "f64", 0)
    read_mask(here, 1)
    found = emit_operation(here, SubgroupOperation("add", form, X, Scalar("f64")))
    write_lanes(here, found, 2)
    result = np.zeros(found.count)
    compile_kernel(here)(np.full(8, -0.0), 0b10100101, result)
    assert np.signbit(result).all()


@given(st.sampled_from(["f32", "f64", "f16", "c32"]), st.sampled_from(FORMS), st.integers(0, 99))
def test_sums_are_as_exact_as_a_tree_of_additions(element: str, form: str, seed: int) -> None:
    lanes, dtype = 32, dtype_of(element)
    here = make_here(lanes)
    here.values["x"] = read_lanes(here, element, 0)
    found = emit_operation(here, SubgroupOperation("add", form, X, Scalar(element)))
    write_lanes(here, found, 1)
    drawn = np.random.default_rng(seed).standard_normal(lanes).astype(dtype)
    result = in_parts(np.zeros(found.count, dtype))
    compile_kernel(here)(in_parts(drawn), result)
    exact = _judge(
        "add", form, drawn.astype(np.complex128 if is_complex(dtype) else np.float64), drawn == drawn
    )
    bound = 6 * np.finfo(dtype).eps * np.abs(drawn).astype(np.float64).sum()
    np.testing.assert_allclose(result.astype(np.float64), in_parts(exact), rtol=0, atol=bound)


@given(st.sampled_from(SCALARS), st.sampled_from(LANES), st.integers(-100, 100), st.booleans())
def test_a_broadcast_is_the_value_of_one_lane(element: str, lanes: int, lane: int, known: bool) -> None:
    here = make_here(lanes)
    here.values["x"] = read_lanes(here, element, 0)
    here.values["lane"] = integers.number(lane, "i32")
    if not known:
        here.values["lane"] = integers.dynamic(read_slot(here, 1, "i32"), "i32")
    found = emit_broadcast(here, SubgroupBroadcast(X, LANE, Scalar(element)))
    assert found.is_uniform
    write_lanes(here, found, 2)
    values = draw_values(element, lanes, 3)
    result = in_parts(np.zeros(1, values.dtype))
    compile_kernel(here)(in_parts(values), lane, result)
    np.testing.assert_array_equal(result, in_parts(values[[lane % lanes]]))


def test_the_lane_of_a_broadcast_is_that_of_lanes_that_run() -> None:
    here = make_here(4)
    here.values["x"], here.values["lane"] = read_lanes(here, "f32", 0), read_lanes(here, "i32", 1)
    read_mask(here, 2)
    found = emit_broadcast(here, SubgroupBroadcast(X, LANE, Scalar("f32")))
    write_lanes(here, found, 3)
    result = np.zeros(1, np.float32)
    lanes = np.array([0, 1, 3, 3], np.int32)
    compile_kernel(here)(np.arange(4, dtype=np.float32), lanes, 0b1100, result)
    assert result[0] == 3


def test_builtins_say_where_a_lane_is() -> None:
    here = make_here(8, 24)
    here.subgroups, here.subgroup_id, here.group_id, here.group_count = 3, "2", "%first", "%groups"
    found = {
        name: emit_builtin(here, Builtin(name, INDEX))
        for name in ("num_subgroups", "subgroup_size", "group_id", "group_size", "subgroup_id")
    }
    assert {name: value.operand for name, value in found.items()} == {
        "num_subgroups": "3",
        "subgroup_size": "8",
        "group_id": "%first",
        "group_size": "%groups",
        "subgroup_id": "2",
    }
    lane = emit_builtin(here, Builtin("subgroup_local_id", Scalar("i32")))
    assert (lane.element, lane.base, lane.step, lane.count) == ("i32", "0", 1, 8)
    write_lanes(here, integers.spread(here, lane), 0)
    result = np.zeros(8, np.int32)
    compile_kernel(here)(result)
    np.testing.assert_array_equal(result, np.arange(8))


def test_one_lane_is_lane_zero() -> None:
    lane = emit_builtin(make_here(1), Builtin("subgroup_local_id", Scalar("i32")))
    assert lane == ScalarValue("i32", ("0",), 1, 0, divisor=0)
