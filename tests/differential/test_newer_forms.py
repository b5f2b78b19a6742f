"""Forms of a newer version as extensions: the interpreter, machine code and NumPy agree on generated kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.backend import cpu, interpreter
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.source import Source
from lamella.kernels.passes import PASSES, lower
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, parse, write
from lamella.lang.tensor.layout import component_count, component_place
from lamella.lang.tensor.nodes import Coopmatrix, Program

Array = npt.NDArray[Any]
TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}
SIZES = st.sampled_from(((1, 1, 1), (2, 4, 1), (4, 8, 1), (8, 8, 1), (4, 8, 2), (16, 32, 1)))
"""Subgroup size and work-group size."""


def read(text: str) -> Program:
    program, found = parse(Source("k.tensor", text))
    assert not errors([*found, *check(program)]), [str(item) for item in found]
    assert parse(Source("k.tensor", write(program))).program == program
    return program


def ways(text: str) -> Iterator[Any]:
    """The kernels of a text in the interpreter, mixed and in order, and as machine code."""
    program = read(text)
    yield interpreter.compile_program(program)
    yield interpreter.compile_program(program, seed=1)
    yield cpu.compile_program(program)


def head(sizes: tuple[int, int, int]) -> str:
    return f"attributes{{subgroup_size={sizes[0]}, work_group_size=[{sizes[1]},{sizes[2]}]}}"


# --- tiles --------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(
    SIZES,
    st.tuples(*[st.integers(0, 9)] * 2),
    st.tuples(*[st.integers(1, 4)] * 2),
    st.sampled_from(["", ":i32"]),
)
def test_tiles_cover_each_index_once(
    sizes: tuple[int, int, int], shape: tuple[int, int], tile: tuple[int, int], kind: str
) -> None:
    """Every tile adds its number of indices to each of its elements, once for each work-item of one subgroup."""
    type_ = kind[1:] or "index"
    casts = "" if type_ == "index" else "%ai = cast %a : index %bi = cast %b : index"
    names = "%a,%b" if type_ == "index" else "%ai,%bi"
    text = f"""
func @f(%y: memref<i32x?x?>) {head(sizes)} {{
  %0 = constant 0 : {type_}
  %n0 = size %y[0] : index
  %m0 = size %y[1] : index
  %n = cast %n0 : {type_}
  %m = cast %m0 : {type_}
  foreach_tile (%i,%j){kind}=(%0,%0),(%n,%m) as (%ti,%tj)<=({tile[0]},{tile[1]}) {{
    %area = arith.mul %ti, %tj : {type_}
    %add = cast %area : i32
    %iend = arith.add %i, %ti : {type_}
    %jend = arith.add %j, %tj : {type_}
    for %a:{type_}=%i,%iend {{
      for %b:{type_}=%j,%jend {{
        {casts}
        store.atomic_add %add, %y[{names}]
      }}
    }}
  }}
}}"""
    wanted = np.zeros(shape, np.int32)
    for i in range(0, shape[0], tile[0]):
        for j in range(0, shape[1], tile[1]):
            part = wanted[i : i + tile[0], j : j + tile[1]]
            part += sizes[0] * part.size
    for kernels in ways(text):
        found = np.zeros(shape, np.int32, order="F")
        kernels.f(found)
        assert np.array_equal(found, wanted)


# --- axes ---------------------------------------------------------------------------------------------------

AXES = """
func @f(%y: memref<i64x?x?x?>, %count: memref<i64x3>) {
  %x = group_id.x : index
  %g = group_id.y : index
  %z = group_id.z : index
  %nx = num_groups.x : index
  %ny = num_groups.y : index
  %nz = num_groups.z : index
  %0 = constant 0 : index
  %1 = constant 1 : index
  %2 = constant 2 : index
  %hundred = constant 100 : index
  %a = arith.mul %z, %hundred : index
  %b = arith.add %a, %g : index
  %c = arith.mul %b, %hundred : index
  %d = arith.add %c, %x : index
  %e = cast %d : i64
  %sx = cast %nx : i64
  %sy = cast %ny : i64
  %sz = cast %nz : i64
  parallel {
    store %e, %y[%x,%g,%z]
    store %sx, %count[%0]
    store %sy, %count[%1]
    store %sz, %count[%2]
  }
}"""


@pytest.mark.parametrize("grid", [(3, 2, 4), (1, 5, 1), (4, 1, 2), (4, 3), 6])
def test_axes_of_a_launch(grid: Any) -> None:
    shape = (*grid, 1, 1)[:3] if isinstance(grid, tuple) else (grid, 1, 1)
    x, y, z = np.indices(shape)
    for kernels in ways(AXES):
        found, count = np.zeros(shape, np.int64, order="F"), np.zeros(3, np.int64)
        kernels.f(found, count, groups=grid)
        assert np.array_equal(found, (100 * z + y) * 100 + x)
        assert tuple(count) == shape


@pytest.mark.parametrize("groups", [(1, 2, 3, 4), (), (2, -1), (2, 1.5), "22", (1 << 40, 1 << 40)])
def test_what_is_no_number_of_work_groups(groups: Any) -> None:
    for kernels in ways(AXES):
        with pytest.raises(LamellaError, match="cannot be launched"):
            kernels.f(np.zeros((1, 1, 1), np.int64), np.zeros(3, np.int64), groups=groups)
        with pytest.raises(LamellaError, match="takes 2 arguments"):
            kernels.f(np.zeros((1, 1, 1), np.int64))


def test_an_axis_that_a_kernel_does_not_read_is_refused() -> None:
    for kernels in ways("func @f() { %y = builtin.group_id.y : index }"):
        kernels.f(groups=(2, 3))
        with pytest.raises(LamellaError, match="3 work-groups along z"):
            kernels.f(groups=(2, 1, 3))


# --- atomics ------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(
    SIZES,
    st.sampled_from(["add", "max", "min"]),
    st.sampled_from(sorted(TYPES)),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_an_atomic_update_gives_what_stood_there(
    sizes: tuple[int, int, int], function: str, element: str, count: int, cells: int
) -> None:
    """In whatever order: what was found, and then made of it, is a chain from the first value to the last."""
    text = f"""
func @f(%x: memref<{element}x?>, %where: memref<indexx?>, %cells: memref<{element}x?>, %old: memref<{element}x?>)
    {head(sizes)} {{
  %0 = constant 0 : index
  %n = size %x[0] : index
  foreach (%i)=(%0),(%n) {{
    %v = load %x[%i] : {element}
    %w = load %where[%i] : index
    %o = atomic_{function} %v, %cells[%w] : {element}
    store %o, %old[%i]
  }}
}}"""
    draw = np.random.default_rng(count)
    x = draw.integers(-9, 9, count).astype(TYPES[element])
    where = draw.integers(0, cells, count)
    combine = {"add": np.add, "max": np.maximum, "min": np.minimum}[function]
    for kernels in ways(text):
        found, old = np.zeros(cells, TYPES[element]), np.full(count, 99, TYPES[element])
        kernels.f(x, where, found, old)
        for cell in range(cells):
            mine = where == cell
            assert found[cell] == combine.reduce(x[mine], initial=0)
            before, after = sorted(old[mine]), sorted(combine(old[mine], x[mine]))
            assert sorted([*before, found[cell]]) == sorted([TYPES[element](0), *after])


# --- cooperative matrices -----------------------------------------------------------------------------------

MATRICES = st.builds(
    Coopmatrix,
    st.sampled_from(["f32", "f64", "i32"]),
    st.sampled_from([1, 2, 3, 4, 6, 8, 16, 32]),
    st.integers(1, 7),
    st.sampled_from(["matrix_a", "matrix_b", "matrix_acc"]),
)


@given(SIZES, MATRICES)
def test_components_of_matrices(sizes: tuple[int, int, int], type_: Coopmatrix) -> None:
    """Rows and columns of an apply, a component that is taken out, changed and put back, a matrix of one number."""
    kind = f"coopmatrix<{type_.element}x{type_.rows}x{type_.columns},{type_.use}>"
    component = component_count(type_, sizes[0]) // 2
    text = f"""
func @f(%A: memref<{type_.element}x?x?,strided<?,?>>, %C: memref<{type_.element}x?x?>,
        %B: memref<{type_.element}x?x?>, %s: {type_.element}, %t: memref<{type_.element}x{type_.rows}>) {head(sizes)} {{
  %0 = constant 0 : index
  parallel {{
    %m = cooperative_matrix_load.n %A[%0,%0] : {kind}
    %n = cooperative_matrix_apply (%i,%j,%v)=%m -> {kind} {{
      %r = cast %i : index
      %b = load %t[%r] : {type_.element}
      %c = cast %j : {type_.element}
      %d = arith.mul %b, %c : {type_.element}
      %w = arith.add %v, %d : {type_.element}
      yield (%w)
    }}
    %e = cooperative_matrix_extract %n[{component}] : {type_.element}
    %f = arith.mul %e, %s : {type_.element}
    %o = cooperative_matrix_insert %f, %n[{component}] : {kind}
    cooperative_matrix_store %o, %C[%0,%0]
    %q = cooperative_matrix_construct %s : {kind}
    cooperative_matrix_store %q, %B[%0,%0]
  }}
}}"""
    shape = (type_.rows, type_.columns)
    draw = np.random.default_rng(type_.rows * 10 + type_.columns)
    start = draw.integers(-8, 8, shape).astype(TYPES[type_.element])
    scale = draw.integers(-8, 8, type_.rows).astype(TYPES[type_.element])
    wanted = start + scale[:, None] * np.arange(type_.columns, dtype=start.dtype)
    for lane in range(sizes[0]):
        place = component_place(type_, sizes[0], lane, component)
        if place is not None:
            wanted[place] *= 3
    for kernels in ways(text):
        found, filled = (np.zeros(shape, start.dtype, order="F") for _ in range(2))
        kernels.f(start, found, filled, 3, scale)
        assert np.array_equal(found, wanted)
        assert (filled == 3).all()


@given(MATRICES, st.sampled_from([1, 2, 3, 4, 8, 16, 32]))
def test_each_component_of_a_matrix_is_held_once(type_: Coopmatrix, lanes: int) -> None:
    held = [
        component_place(type_, lanes, lane, component)
        for lane in range(lanes)
        for component in range(component_count(type_, lanes))
    ]
    places = [place for place in held if place is not None]
    assert len(held) - len(places) < lanes * type_.rows
    assert sorted(places) == [(row, column) for row in range(type_.rows) for column in range(type_.columns)]


# --- passes and other machines ------------------------------------------------------------------------------


def test_the_pass_leaves_no_extension_and_its_text_is_read_again() -> None:
    program = read(AXES)
    names = [item.name for item in PASSES]
    lowered = write(lower(program, find_target("cpu-avx512"), names[names.index("lower-extensions")]))
    assert "group_id." not in lowered
    assert "%groups_x: index" in lowered
    assert not errors(check(read(lowered)))


# --- functions of scalars on the components of matrices -----------------------------------------------------


FUNCTIONS: dict[str, tuple[str, Any]] = {
    "rem": ("f32", np.fmod),
    "xor": ("i32", np.bitwise_xor),
    "not": ("i32", np.invert),
    "abs": ("f32", np.abs),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_scalars_work_on_the_components_of_matrices(function: str) -> None:
    element, judge = FUNCTIONS[function]
    operands = "%x, %y" if function in ("rem", "xor") else "%x"
    matrix = f"coopmatrix<{element}x4x8,matrix_acc>"
    text = f"""func @f(%A: memref<{element}x4x8>, %B: memref<{element}x4x8>, %C: memref<{element}x4x8>) {{
      %0 = constant 0 : index
      parallel {{
        %x = cooperative_matrix_load.n %A[%0,%0] : {matrix}
        %y = cooperative_matrix_load.n %B[%0,%0] : {matrix}
        %z = arith.{function} {operands} : {matrix}
        cooperative_matrix_store %z, %C[%0,%0]
      }}
    }}"""
    draw = np.random.default_rng(1)
    left, right = (np.asfortranarray(draw.integers(1, 99, (4, 8)).astype(TYPES[element])) for _ in "ab")
    wanted = judge(-left, right) if operands != "%x" else judge(-left)
    for kernels in ways(text):
        found = np.zeros((4, 8), TYPES[element], order="F")
        kernels.f(-left, right, found)
        np.testing.assert_array_equal(found, wanted)


# --- rows and columns of subgroups --------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(4, 8, 3), (8, 8, 1), (2, 2, 4), None])
def test_subgroups_know_their_row_and_column(sizes: tuple[int, int, int] | None) -> None:
    places = "%k = cast %s : index store %a, %R[%k,%0] store %b, %R[%k,%1] store %c, %R[%k,%2]"
    text = f"""func @f(%R: memref<i32x32x6>) {"" if sizes is None else head(sizes)} {{
      %0 = constant 0 : index  %1 = constant 1 : index  %2 = constant 2 : index
      %3 = constant 3 : index  %4 = constant 4 : index  %5 = constant 5 : index
      parallel {{
        %s = builtin.subgroup_id : i32
        %a = subgroup_id.x : i32  %b = subgroup_id.y : i32  %c = builtin.subgroup_id.z : i32
        %d = num_subgroups.x : i32  %e = builtin.num_subgroups.y : i32  %f = num_subgroups.z : i32
        {places} store %d, %R[%k,%3] store %e, %R[%k,%4] store %f, %R[%k,%5]
      }}
    }}"""
    size, rows, columns = sizes or (16, 16, 1)
    high = rows // size
    wanted = np.full((32, 6), -1)
    for number in range(high * columns):
        wanted[number] = [number % high, number // high, 0, high, columns, 1]
    for kernels in ways(text):
        found = np.full((32, 6), -1, np.int32, order="F")
        kernels.f(found)
        np.testing.assert_array_equal(found, wanted)
