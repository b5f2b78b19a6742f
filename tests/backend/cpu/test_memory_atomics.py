"""Atomic stores and additions: in the order of the lanes for one thread, none lost for several."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.arguments import dtype_of
from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.memory import emit_store
from lamella.backend.cpu.emit.values import ScalarValue
from lamella.backend.interpreter.arithmetic import is_complex, is_integer
from lamella.base.arrays import Array
from lamella.lang.tensor.check.kinds import ATOMIC
from lamella.lang.tensor.nodes import Store, Value, make_memref
from tests.support.backend.cpu.emitting import (
    add_parameter,
    compile_kernel,
    draw_values,
    in_parts,
    make_here,
    read_lanes,
    read_mask,
    read_slot,
)

ATOMIC_ADD = Store(Value("value"), Value("memory"), (Value("index"),), "atomic_add")
elements = st.sampled_from(ATOMIC)
lanes_ = st.sampled_from((2, 4, 16, 64))


def _draw(element: str, count: int, seed: int) -> Array:
    """Numbers whose sums are rounded, so that the order of additions shows."""
    dtype, generator = dtype_of(element), np.random.default_rng(seed)
    if is_integer(dtype):
        bounds = np.iinfo(dtype)
        return generator.integers(bounds.min, bounds.max, count, dtype)
    found = generator.standard_normal(count)
    return (found + 1j * generator.standard_normal(count) if is_complex(dtype) else found).astype(dtype)


def _prepare(element: str, lanes: int, places: str, masked: bool) -> EmitContext:
    """Slots: memory, its size, the index or indices, the values, a mask."""
    context = make_here(lanes)
    add_parameter(context, "memory", make_memref(element, (None,)))
    if places == "own":
        context.values["index"] = read_lanes(context, "index", 2)
    else:
        step = 0 if places == "shared" else 1
        context.values["index"] = integers.affine(context, read_slot(context, 2, "i64"), step)
    context.values["value"] = read_lanes(context, element, 3)
    if masked:
        read_mask(context, 4)
    return context


@given(elements, lanes_, st.sampled_from(["shared", "even", "own"]), st.integers(0, 1 << 63), st.booleans())
def test_lanes_add_in_their_order(element: str, lanes: int, places: str, mask: int, masked: bool) -> None:
    context = _prepare(element, lanes, places, masked)
    emit_store(context, ATOMIC_ADD)
    index = np.random.default_rng(mask).integers(0, 5, lanes)
    values, memory = _draw(element, lanes, mask), _draw(element, 70, 1)
    wanted = memory.copy()
    bits = mask % (1 << lanes) or 1
    with np.errstate(over="ignore"):
        for lane in range(lanes):
            place = {"shared": 3, "even": 3 + lane, "own": int(index[lane])}[places]
            if not masked or bits >> lane & 1:
                wanted[place] = wanted[place] + values[lane]
    where = index if places == "own" else 3
    compile_kernel(context)(memory, memory.size, where, in_parts(values), bits)
    np.testing.assert_array_equal(memory, wanted)


@given(elements, lanes_, st.sampled_from(["shared", "even", "own"]), st.integers(0, 1 << 63))
def test_atomic_stores_write_what_plain_ones_do(element: str, lanes: int, places: str, mask: int) -> None:
    bits = mask % (1 << lanes) or 1
    index = np.random.default_rng(mask).integers(0, 5, lanes)
    values = _draw(element, lanes, mask)
    found = []
    for flag in ("atomic", ""):
        context = _prepare(element, lanes, places, True)
        emit_store(context, Store(Value("value"), Value("memory"), (Value("index"),), flag))
        memory = _draw(element, 70, 1)
        where = index if places == "own" else 3
        compile_kernel(context)(memory, memory.size, where, in_parts(values), bits)
        found.append(memory)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("element", ATOMIC)
def test_a_work_group_that_acts_as_one_adds_for_each_work_item(element: str) -> None:
    items = 48
    context = make_here(1, items)
    add_parameter(context, "memory", make_memref(element, (None,)))
    context.values["index"] = integers.number(1)
    context.values["value"] = read_lanes(context, element, 2)
    emit_store(context, ATOMIC_ADD)
    value, memory = _draw(element, 1, 2), _draw(element, 3, 1)
    wanted = memory.copy()
    with np.errstate(over="ignore"):
        for _ in range(items):
            wanted[1] = wanted[1] + value[0]
    compile_kernel(context)(memory, memory.size, in_parts(value))
    np.testing.assert_array_equal(memory, wanted)


def test_a_subgroup_of_one_lane_adds_once() -> None:
    context = make_here(1, 48)
    context.collective = False
    add_parameter(context, "memory", make_memref("i32", (None,)))
    context.values["index"], context.values["value"] = integers.number(0), integers.number(5, "i32")
    emit_store(context, ATOMIC_ADD)
    memory = np.zeros(1, np.int32)
    compile_kernel(context)(memory, 1)
    assert memory[0] == 5


def test_a_minus_zero_stays_where_no_lane_adds_to_it() -> None:
    context = _prepare("f32", 4, "shared", True)
    emit_store(context, ATOMIC_ADD)
    memory = np.array([-0.0], np.float32)
    values = np.array([7, -0.0, 7, 7], np.float32)
    compile_kernel(context)(memory, 1, 0, values, 0b0010)
    assert np.signbit(memory[0])


@pytest.mark.parametrize("element", ["i32", "f32", "f64", "c32"])
@pytest.mark.parametrize("places", ["shared", "even"])
def test_no_addition_of_several_threads_is_lost(element: str, places: str) -> None:
    lanes, threads, calls = 8, 4, 200
    context = _prepare(element, lanes, places, False)
    emit_store(context, ATOMIC_ADD)
    values, memory = draw_values(element, lanes, 2), np.zeros(lanes, dtype_of(element))
    call, parts = compile_kernel(context), in_parts(values)

    def work() -> None:
        for _ in range(calls):
            call(memory, lanes, 0, parts)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    wanted = np.zeros_like(memory)
    wanted[: 1 if places == "shared" else lanes] = values.sum() if places == "shared" else values
    np.testing.assert_array_equal(memory, wanted * threads * calls)


def test_an_atomic_store_of_one_value_is_written_once() -> None:
    context = make_here(16)
    add_parameter(context, "memory", make_memref("f32", ()))
    context.values["value"] = ScalarValue("f32", (read_slot(context, 1, "float"),))
    emit_store(context, Store(Value("value"), Value("memory"), (), "atomic"))
    assert context.out.body().count("store atomic") == 1
