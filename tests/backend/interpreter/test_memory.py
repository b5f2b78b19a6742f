"""Memory: layouts, views, groups, local memory, and accesses that leave their memref."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.interpreter import Arrays
from lamella.base.diagnostic import LamellaError
from tests.support.backend.interpreter.kernels import DTYPES, Array, compile_text

COPY = """
func @f(%a: memref<f64x?x?,strided<?,?>>, %b: memref<f64x?x?,strided<?,?>>) {
  %one = constant 1.0 : f64
  %zero = constant 0.0 : f64
  axpby.t %one, %a, %zero, %b
}"""
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "first mode fastest": np.asfortranarray,
    "last mode fastest": np.ascontiguousarray,
    "every second": lambda a: np.repeat(np.repeat(a, 2, 0), 2, 1)[::2, ::2],
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
}


@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", LAYOUTS)
def test_arrays_of_any_stride(first: str, second: str) -> None:
    values = np.arange(12.0).reshape(3, 4)
    target = LAYOUTS[second](np.zeros((4, 3)))
    compile_text(COPY).f(LAYOUTS[first](values), target)
    assert np.array_equal(target, values.T)


@given(st.data())
def test_subviews_are_slices(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(*[st.integers(1, 6)] * 3))
    begins = [data.draw(st.integers(0, size - 1)) for size in shape]
    sizes = [data.draw(st.integers(1, size - begin)) for size, begin in zip(shape, begins, strict=True)]
    text = """
func @f(%a: memref<i64x?x?x?,strided<?,?,?>>, %b: memref<i64x?x?>,
        %x: index, %y: index, %z: index, %m: index, %n: index) {
  %zero = constant 0 : i64
  %one = constant 1 : i64
  %v = subview %a[%x:%m,%y,%z:%n] : memref<i64x?x?,strided<?,?>>
  axpby.n %one, %v, %zero, %b
}"""
    array = np.arange(np.prod(shape)).reshape(shape)
    found = np.zeros((sizes[0], sizes[2]), np.int64, order="F")
    compile_text(text, check_bounds=True).f(array, found, *begins, sizes[0], sizes[2])
    x, y, z = begins
    assert np.array_equal(found, array[x : x + sizes[0], y, z : z + sizes[2]])


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_expand_and_fuse_are_reshapes(m: int, n: int, k: int) -> None:
    text = """
func @f(%a: memref<f32x?x3>, %b: memref<f32x?x?>, %c: memref<f32x?>, %m: index, %n: index, %last: index) {
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  %e = expand %a[0->%m x %n] : memref<f32x?x?x3,strided<1,?,?>>
  %s = subview %e[0:%m,0:%n,%last] : memref<f32x?x?,strided<1,?>>
  axpby.n %one, %s, %zero, %b
  %f = fuse %a[0,1] : memref<f32x?>
  axpby.n %one, %f, %zero, %c
}"""
    array = np.asfortranarray(np.random.default_rng(m * n).standard_normal((m * n, 3)).astype(np.float32))
    part, whole = np.zeros((m, n), np.float32, order="F"), np.zeros(3 * m * n, np.float32)
    compile_text(text).f(array, part, whole, m, n, 2)
    assert np.array_equal(part, array.reshape((m, n, 3), order="F")[:, :, 2])
    assert np.array_equal(whole, array.reshape(-1, order="F"))


def failing(text: str, *arguments: object, check_bounds: bool = False) -> str:
    with pytest.raises(LamellaError) as found:
        compile_text(text, check_bounds=check_bounds).f(*arguments)
    return str(found.value)


def test_views_that_cannot_be() -> None:
    expand = (
        "func @f(%a: memref<f32x?>, %n: index) { %e = expand %a[0->%n x 2] : memref<f32x?x2,strided<1,?>> }"
    )
    assert "TEN221" in failing(expand, np.zeros(6, np.float32), 4)
    fuse = "func @f(%a: memref<f32x?x?,strided<1,?>>) { %e = fuse %a[0,1] : memref<f32x?> }"
    assert "sizes 3x2, strides 1,4" in failing(fuse, np.zeros((4, 2), np.float32, order="F")[:3])
    empty = "func @f(%a: memref<f32x?>, %n: index) { %e = subview %a[0:%n] : memref<f32x?> }"
    assert "TEN223" in failing(empty, np.zeros(6, np.float32), 0)


LOAD = """
func @f(%a: memref<f32x4x?,strided<1,?>>, %out: memref<f32>, %i: index, %j: index) {
  %x = load %a[%i,%j] : f32
  store %x, %out[]
}"""


@pytest.mark.parametrize("check_bounds", [True, False])
@pytest.mark.parametrize(("i", "j"), [(4, 0), (-1, 2), (0, 3), (0, -1), (2**62, 0), (0, -(2**63))])
def test_indices_outside_are_findings(i: int, j: int, check_bounds: bool) -> None:
    array = np.zeros((8, 5), np.float32, order="F")[:4, :3]
    message = failing(LOAD, array, np.zeros((), np.float32), i, j, check_bounds=check_bounds)
    mode, index, size = (0, i, 4) if not 0 <= i < 4 else (1, j, 3)
    assert f"index {index} of mode {mode} leaves '%a', whose size there is {size}" in message
    assert "kernels.tensor:3:" in message


SUBVIEW = """
func @f(%a: memref<f32x?>, %out: memref<f32x2>, %i: index) {
  %v = subview %a[%i:2] : memref<f32x2>
  %one = constant 1.0 : f32
  axpby.n %one, %v, %one, %out
}"""


@pytest.mark.parametrize(("offset", "code"), [(7, "TEN216"), (-1, "TEN216")])
def test_views_outside_are_findings(offset: int, code: str) -> None:
    arguments = np.zeros(8, np.float32), np.zeros(2, np.float32), offset
    assert code in failing(SUBVIEW, *arguments, check_bounds=True)
    assert "TEN217" in failing(SUBVIEW, *arguments)


def test_groups() -> None:
    text = """
func @f(%g: group<memref<f32x?>x?>, %out: memref<f32x?>) {
  %i = builtin.group_id : index
  %a = load %g[%i] : memref<f32x?>
  %s = subview %out[%i] : memref<f32>
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  sum.n %one, %a, %zero, %s
}"""
    arrays = [np.arange(count, dtype=np.float32) for count in (1, 5, 3)]
    sums = np.full(3, np.nan, np.float32)
    kernels = compile_text(text)
    kernels.f(arrays, sums, groups=3)
    assert sums.tolist() == [0, 10, 3]
    with pytest.raises(LamellaError, match=r"TEN218.*element 2 leaves group '%g' of size 2"):
        kernels.f(arrays[:2], sums, groups=3)


@pytest.mark.parametrize("offset", ["3", "?"])
def test_groups_with_an_offset(offset: str) -> None:
    text = f"""
func @f(%g: group<memref<f32x2>x1, offset: {offset}>, %out: memref<f32x2>) {{
  %zero = constant 0 : index
  %a = load %g[%zero] : memref<f32x2>
  %one = constant 1.0 : f32
  %none = constant 0.0 : f32
  axpby.n %one, %a, %none, %out
}}"""
    memory, found = np.arange(8, dtype=np.float32), np.zeros(2, np.float32)
    kernels = compile_text(text)
    kernels.f(Arrays([memory[1:3]], 3), found)
    assert found.tolist() == [4, 5]
    if offset == "3":
        kernels.f([memory[2:4]], found)
        assert found.tolist() == [5, 6]
    with pytest.raises(LamellaError, match=r"TEN217.*elements 3 to 4 of the 4"):
        kernels.f(Arrays([memory[4:6]], 3), found)


@pytest.mark.parametrize(("element", "number"), [("f32", "1.0"), ("c64", "[1.0,0.0]"), ("i32", "0")])
def test_local_memory_is_garbage_on_each_trip(element: str, number: str) -> None:
    text = f"""
func @f(%out: memref<{element}x3>) {{
  %zero = constant 0 : index
  %three = constant 3 : index
  for %i=%zero,%three {{
    %t = alloca : memref<{element}x2,local>
    %x = load %t[%zero] : {element}
    store %x, %out[%i]
    %y = constant {number} : {element}
    store %y, %t[%zero]
  }}
}}"""
    found = np.zeros(3, DTYPES[element])
    compile_text(text).f(found)
    assert np.all(found != 0 if element == "i32" else np.isnan(found))


def test_read_only_arrays_may_be_read() -> None:
    array, out = np.broadcast_to(np.float32(3), (4, 3)), np.zeros((), np.float32)
    text = LOAD.replace("strided<1,?>", "strided<?,?>")
    compile_text(text).f(array, out, 1, 1)
    assert out == 3
    writing = "func @f(%a: memref<f32x?>, %x: f32, %i: index) { store %x, %a[%i] }"
    fixed = np.zeros(4, np.float32)
    fixed.flags.writeable = False
    assert "TEN219" in failing(writing, fixed, 1.0, 0)


def test_expansion_keeps_the_stride_of_its_mode() -> None:
    text = """
func @f(%a: memref<i32x6,strided<?>>, %b: memref<i32x2x3>) {
  %one = constant 1 : i32
  %zero = constant 0 : i32
  %e = expand %a[0->2 x 3] : memref<i32x2x3,strided<?,?>>
  axpby.n %one, %e, %zero, %b
}"""
    found = np.zeros((2, 3), np.int32, order="F")
    compile_text(text).f(np.arange(18, dtype=np.int32)[::3], found)
    assert np.array_equal(found, (3 * np.arange(6)).reshape((2, 3), order="F"))
