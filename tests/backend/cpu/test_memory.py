"""Loads and stores of lanes against NumPy, on memory whose neighbourhood nobody may touch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.arguments import dtype_of
from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.memory import emit_load, emit_store
from lamella.backend.cpu.emit.values import ScalarValue
from lamella.base.arrays import Array
from lamella.lang.tensor.nodes import Load, Scalar, Store, Value, make_memref
from lamella.lang.tensor.words import SCALARS
from tests.support.backend.cpu.emitting import (
    Guarded,
    add_parameter,
    compile_kernel,
    draw_values,
    in_parts,
    make_here,
    read_lanes,
    read_mask,
    read_slot,
    write_lanes,
)

LANES = (1, 2, 4, 8, 16, 32, 64)
elements = st.sampled_from(SCALARS)
lanes_ = st.sampled_from(LANES)
steps = st.integers(-6, 6)
masks = st.one_of(st.none(), st.integers(1, (1 << 64) - 1))
MEMORY, INDEX, VALUE = Value("memory"), Value("index"), Value("value")


def _active(mask: int | None, lanes: int) -> Array:
    """Which lanes run; there is always one."""
    if mask is None or lanes == 1:
        return np.ones(lanes, bool)
    bits = mask % (1 << lanes) or 1
    return np.array([bits >> lane & 1 for lane in range(lanes)], bool)


def _bits(active: Array) -> int:
    return sum(1 << lane for lane, on in enumerate(active) if on)


def _places(lanes: int, step: int) -> Array:
    """Where each lane is, the lowest at 0."""
    places: Array = step * np.arange(lanes)
    places -= places.min()
    return places


@given(elements, lanes_, steps, masks, st.booleans())
def test_lanes_that_lie_evenly_load_what_numpy_does(
    element: str, lanes: int, step: int, mask: int | None, at_end: bool
) -> None:
    places, active = _places(lanes, step), _active(mask, lanes)
    here = make_here(lanes)
    add_parameter(here, "memory", make_memref(element, (None,)))
    here.values["index"] = integers.affine(here, read_slot(here, 2, "i64"), step)
    if mask is not None and lanes > 1:
        read_mask(here, 3)
    found = emit_load(here, Load(MEMORY, (INDEX,), Scalar(element)))
    assert isinstance(found, ScalarValue)
    here.mask = None
    write_lanes(here, found, 4)
    assert found.is_uniform == (step == 0 or lanes == 1)
    memory = Guarded().place(draw_values(element, int(places.max()) + 1, lanes), at_end)
    seen = np.zeros(found.count, memory.dtype)
    result = in_parts(seen)
    compile_kernel(here)(memory, memory.size, int(places[0]), _bits(active), result)
    wanted = memory[places[: found.count]]
    if not found.is_uniform:
        wanted = np.where(active, wanted, 0).astype(memory.dtype)
    np.testing.assert_array_equal(result, in_parts(wanted))


@given(elements, lanes_, steps, masks, st.booleans())
def test_lanes_that_lie_evenly_store_what_numpy_does(
    element: str, lanes: int, step: int, mask: int | None, at_end: bool
) -> None:
    places, active = _places(lanes, step), _active(mask, lanes)
    here = make_here(lanes)
    add_parameter(here, "memory", make_memref(element, (None,)))
    here.values["index"] = integers.affine(here, read_slot(here, 2, "i64"), step)
    here.values["value"] = read_lanes(here, element, 4)
    if mask is not None and lanes > 1:
        read_mask(here, 3)
    emit_store(here, Store(VALUE, MEMORY, (INDEX,)))
    values = draw_values(element, lanes, lanes)
    memory = Guarded().place(np.zeros(int(places.max()) + 1, dtype_of(element)), at_end)
    compile_kernel(here)(memory, memory.size, int(places[0]), _bits(active), in_parts(values))
    wanted = np.zeros_like(memory)
    for place, value, on in zip(places, values, active, strict=True):
        if on:
            wanted[place] = value
    np.testing.assert_array_equal(memory, wanted)


@given(elements, st.sampled_from(LANES[1:]), masks, st.integers(0, 99))
def test_lanes_go_where_they_point(element: str, lanes: int, mask: int | None, seed: int) -> None:
    active = _active(mask, lanes)
    here = make_here(lanes)
    add_parameter(here, "memory", make_memref(element, (None,)))
    here.values["index"] = read_lanes(here, "index", 2)
    if mask is not None:
        read_mask(here, 3)
    found = emit_load(here, Load(MEMORY, (INDEX,), Scalar(element)))
    assert isinstance(found, ScalarValue)
    here.values["value"] = found
    add_parameter(here, "target", make_memref(element, (None,)), 4)
    emit_store(here, Store(VALUE, Value("target"), (INDEX,)))
    memory = draw_values(element, 40, seed)
    index = np.random.default_rng(seed).integers(0, 40, lanes)
    target = np.zeros_like(memory)
    # lanes that do not run point nowhere
    wild = np.where(active, index, 1 << 50)
    compile_kernel(here)(memory, memory.size, wild, _bits(active), target, target.size)
    wanted = np.zeros_like(memory)
    wanted[index[active]] = memory[index[active]]
    np.testing.assert_array_equal(target, wanted)


@pytest.mark.parametrize("element", SCALARS)
def test_of_lanes_that_share_a_place_the_last_that_runs_stays(element: str) -> None:
    lanes = 16
    here = make_here(lanes)
    add_parameter(here, "memory", make_memref(element, ()))
    here.values["value"] = read_lanes(here, element, 1)
    read_mask(here, 2)
    emit_store(here, Store(VALUE, MEMORY, ()))
    values, call = draw_values(element, lanes, 5), compile_kernel(here)
    for mask in (1, 0b1010, 0x8000, 0xFFFF):
        memory = np.zeros(1, dtype_of(element))
        call(memory, in_parts(values), mask)
        assert memory[0] == values[mask.bit_length() - 1]


def test_a_step_of_two_needs_no_gather() -> None:
    here = make_here(16)
    add_parameter(here, "memory", make_memref("f32", (None,)))
    here.values["index"] = integers.affine(here, read_slot(here, 2, "i64"), 2)
    emit_load(here, Load(MEMORY, (INDEX,), Scalar("f32")))
    text = here.out.body()
    assert "gather" not in text
    assert text.count("load <16 x float>") == 2
