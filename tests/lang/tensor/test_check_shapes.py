"""Shapes of linear algebra and layouts of views, judged by NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import ERROR
from lamella.base.source import Source
from lamella.lang.tensor import check, parse

Array = npt.NDArray[np.float32]
Shape = tuple[int, ...]

small = st.integers(1, 3)
flags = st.booleans()


def orders(least: int, most: int) -> st.SearchStrategy[Shape]:
    """Shapes of some orders, with sizes that often agree."""
    return st.lists(small, min_size=least, max_size=most).map(tuple)


def errors_of(parameters: str, body: str) -> list[str]:
    """The codes of the errors in a kernel."""
    program, found = parse(Source("k.tensor", f"func @k({parameters}) {{ {body} }}"))
    assert not found
    return [item.code for item in check(program) if item.severity == ERROR]


def blas_errors(body: str, *shapes: Shape) -> list[str]:
    """The codes of the errors of a linear algebra instruction on %A, %B, … of some shapes."""
    names = "ABC"[: len(shapes)]
    memrefs = [f"%{name}: memref<f32{text(shape)}>" for name, shape in zip(names, shapes, strict=True)]
    return errors_of(", ".join(["%a: f32", *memrefs]), body)


def text(shape: Shape) -> str:
    """A shape behind an element type."""
    return "".join(f"x{size}" for size in shape)


def letter(flag: bool) -> str:
    """A transpose modifier."""
    return ".t" if flag else ".n"


def op(shape: Shape, flag: bool) -> Array:
    """An array, transposed where it has two modes and is asked for."""
    array = np.zeros(shape, np.float32)
    return array.T if flag and array.ndim == 2 else array


def product_shape(left: Array, right: Array) -> Shape | None:
    """The shape of a matrix product; None where there is none."""
    try:
        return (left @ right).shape
    except ValueError:
        return None


@given(orders(1, 3), orders(1, 3), orders(1, 3), flags, flags)
def test_gemm_takes_what_matmul_takes(a: Shape, b: Shape, c: Shape, first: bool, second: bool) -> None:
    found = blas_errors(f"gemm{letter(first)}{letter(second)} %a, %A, %B, %a, %C", a, b, c)
    wrong_orders = sum(len(shape) != 2 for shape in (a, b, c))
    if wrong_orders:
        assert found == ["TEN131"] * wrong_orders
    else:
        fits = product_shape(op(a, first), op(b, second)) == c
        assert found == ([] if fits else ["TEN132"])


@given(orders(2, 2), orders(1, 1), orders(1, 1), flags)
def test_gemv_takes_what_matmul_takes(a: Shape, b: Shape, c: Shape, first: bool) -> None:
    fits = product_shape(op(a, first), op(b, False)) == c
    assert blas_errors(f"gemv{letter(first)} %a, %A, %B, %a, %C", a, b, c) == ([] if fits else ["TEN132"])


@given(orders(1, 1), orders(1, 1), orders(2, 2))
def test_ger_takes_what_outer_gives(a: Shape, b: Shape, c: Shape) -> None:
    fits = np.outer(op(a, False), op(b, False)).shape == c
    assert blas_errors("ger %a, %A, %B, %a, %C", a, b, c) == ([] if fits else ["TEN132"])


@given(orders(0, 2), orders(0, 2), flags)
def test_axpby_takes_the_shape_of_its_operand(a: Shape, b: Shape, first: bool) -> None:
    fits = op(a, first).shape == b
    assert blas_errors(f"axpby{letter(first)} %a, %A, %a, %B", a, b) == ([] if fits else ["TEN132"])


@given(orders(1, 2), orders(0, 1), flags)
def test_sum_takes_the_shape_of_a_sum_over_the_last_mode(a: Shape, b: Shape, first: bool) -> None:
    found = blas_errors(f"sum{letter(first)} %a, %A, %a, %B", a, b)
    if len(a) != len(b) + 1:
        assert found == ["TEN131"]
    else:
        assert found == ([] if op(a, first).sum(axis=-1).shape == b else ["TEN132"])


@given(orders(0, 3), orders(0, 3), st.integers(-1, 3))
def test_cumsum_takes_the_modes_of_its_operand(a: Shape, b: Shape, mode: int) -> None:
    found = blas_errors(f"cumsum %a, %A, {mode}, %a, %B", a, b)
    if not a:
        assert found == ["TEN131"]
    elif mode not in range(len(a)):
        assert found == ["TEN133"]
    else:
        assert found == ([] if np.zeros(a).cumsum(mode).shape == b else ["TEN132"])


@given(orders(1, 2), orders(1, 2), orders(1, 2))
def test_hadamard_takes_equal_shapes(a: Shape, b: Shape, c: Shape) -> None:
    assert blas_errors("hadamard %a, %A, %B, %a, %C", a, b, c) == ([] if a == b == c else ["TEN132"])


# --- views --------------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """Sizes and strides, in elements."""

    shape: Shape
    stride: Shape

    def __str__(self) -> str:
        return f"memref<f32{text(self.shape)},strided<{','.join(map(str, self.stride))}>>"

    @property
    def array(self) -> Array:
        """An array with this layout."""
        reach = 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        steps = [4 * step for step in self.stride]
        return np.lib.stride_tricks.as_strided(np.zeros(reach, np.float32), self.shape, steps)


def layout_of(array: Array) -> Layout:
    """The layout of an array."""
    return Layout(array.shape, tuple(step // 4 for step in array.strides))


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Layouts without overlap, here and there with gaps."""
    shape = draw(st.lists(st.sampled_from([2, 3, 4, 6]), min_size=2, max_size=4))
    stride, distance = [], draw(st.sampled_from([1, 1, 2]))
    for size in shape:
        stride.append(distance)
        distance = distance * size + draw(st.sampled_from([0, 0, 1]))
    return Layout(tuple(shape), tuple(stride))


def changed(layout: Layout, mode: int) -> list[tuple[Layout, str]]:
    """Layouts that differ in a mode, each with the code of what is wrong with them."""
    mode %= len(layout.shape)
    shape, stride = list(layout.shape), list(layout.stride)
    shape[mode] += 1
    stride[mode] += 1
    return [
        (Layout(tuple(shape), layout.stride), "TEN122"),
        (Layout(layout.shape, tuple(stride)), "TEN123"),
        (Layout((*layout.shape, 1), (*layout.stride, 99)), "TEN121"),
    ]


def check_view(operand: Layout, view: str, result: Layout, mode: int) -> None:
    """A view is of the layout that NumPy gives it, and of no other."""
    assert errors_of(f"%A: {operand}", f"%B = {view} : {result}") == []
    for wrong, code in changed(result, mode) if result.shape else []:
        assert errors_of(f"%A: {operand}", f"%B = {view} : {wrong}") == [code]


@given(layouts(), st.data(), st.integers(0, 3))
def test_subviews_have_the_layout_of_a_slice(operand: Layout, data: st.DataObject, mode: int) -> None:
    parts: list[str] = []
    index: list[slice | int] = []
    for size in operand.shape:
        offset = data.draw(st.integers(0, size - 1))
        length = data.draw(st.integers(0, size - offset))
        parts.append(f"{offset}:{length}" if length else str(offset))
        index.append(slice(offset, offset + length) if length else offset)
    result = layout_of(operand.array[tuple(index)])
    check_view(operand, f"subview %A[{','.join(parts)}]", result, mode)


@given(layouts(), st.data(), st.integers(0, 3))
def test_expanded_modes_have_the_layout_of_a_reshape(operand: Layout, data: st.DataObject, mode: int) -> None:
    expanded = data.draw(st.integers(0, len(operand.shape) - 1))
    size = operand.shape[expanded]
    first = data.draw(st.sampled_from([item for item in range(2, size + 1) if size % item == 0]))
    shape = (*operand.shape[:expanded], first, size // first, *operand.shape[expanded + 1 :])
    view = f"expand %A[{expanded}->{first} x {size // first}]"
    result = layout_of(np.reshape(operand.array, shape, order="F", copy=False))
    stride = list(result.stride)
    # NumPy gives a mode of one element any stride
    stride[expanded + 1] = operand.stride[expanded] * first
    check_view(operand, view, Layout(result.shape, tuple(stride)), mode)


@given(layouts(), st.data(), st.integers(0, 3))
def test_modes_are_fused_where_a_reshape_needs_no_copy(
    operand: Layout, data: st.DataObject, mode: int
) -> None:
    first = data.draw(st.integers(0, len(operand.shape) - 2))
    last = data.draw(st.integers(first + 1, len(operand.shape) - 1))
    size = int(np.prod(operand.shape[first : last + 1]))
    shape = (*operand.shape[:first], size, *operand.shape[last + 1 :])
    view = f"fuse %A[{first},{last}]"
    try:
        result = layout_of(np.reshape(operand.array, shape, order="F", copy=False))
    except ValueError:
        stride = (*operand.stride[: first + 1], *operand.stride[last + 1 :])
        found = errors_of(f"%A: {operand}", f"%B = {view} : {Layout(shape, stride)}")
        assert found == ["TEN128"]
    else:
        check_view(operand, view, result, mode)


@given(orders(2, 2), orders(2, 2), orders(2, 2), orders(2, 2))
def test_mul_add_takes_what_matmul_takes(a: Shape, b: Shape, c: Shape, d: Shape) -> None:
    uses = ("matrix_a", "matrix_b", "matrix_acc", "matrix_acc")
    types = [f"coopmatrix<f32{text(shape)},{use}>" for shape, use in zip((a, b, c, d), uses, strict=True)]
    lines = [f"%{name} = constant 0.0 : {type_}" for name, type_ in zip("ABC", types, strict=False)]
    body = "\n".join([*lines, f"%D = cooperative_matrix_mul_add %A, %B, %C : {types[3]}"])
    fits = product_shape(op(a, False), op(b, False)) == c == d
    assert errors_of("", f"parallel {{ {body} }}") == ([] if fits else ["TEN136"])
