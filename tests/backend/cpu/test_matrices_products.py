"""Products of cooperative matrices in every type that the language allows, judged by NumPy in wider types."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.interpreter.arithmetic import convert
from lamella.lang.tensor.check.kinds import is_castable, is_promotable, promote
from tests.support.backend.cpu.cooperating import Array, Kernel, lay_out
from tests.support.backend.interpreter.kernels import COMPLEX, DTYPES, EPSILON, INTEGERS, draw_array, widen

SIZE = "attributes{subgroup_size=16,work_group_size=[16,1]}"
PAIRS = [
    (left, right, total)
    for left, right, total in product(DTYPES, repeat=3)
    if (both := promote(left, right)) is not None and is_promotable(both, total)
]
COMPUTED = {"bf16": "f32", "f16": "f32"}


def multiply_text(elements: tuple[str, str, str, str], shape: tuple[int, int, int]) -> str:
    """A kernel that computes A B + C and stores the sum."""
    left, right, added, result = elements
    rows, columns, depth = shape
    return f"""
    func @f(%A: memref<{left}x{rows}x{depth}>, %B: memref<{right}x{depth}x{columns}>,
            %C: memref<{added}x{rows}x{columns}>, %D: memref<{result}x{rows}x{columns}>) {SIZE} {{
      parallel {{
        %z = constant 0 : index
        %a = cooperative_matrix_load.n %A[%z,%z] : coopmatrix<{left}x{rows}x{depth},matrix_a>
        %b = cooperative_matrix_load.n %B[%z,%z] : coopmatrix<{right}x{depth}x{columns},matrix_b>
        %c = cooperative_matrix_load.n %C[%z,%z] : coopmatrix<{added}x{rows}x{columns},matrix_acc>
        %d = cooperative_matrix_mul_add %a, %b, %c : coopmatrix<{result}x{rows}x{columns},matrix_acc>
        cooperative_matrix_store %d, %D[%z,%z]
      }}
    }}"""


def agree(found: Array, exact: Array, sizes: Array, added: str, result: str, depth: int) -> None:
    """Whether a sum is what was computed exactly, but for rounding in the type of the sum and once in the result."""
    if added in INTEGERS:
        assert np.array_equal(found, convert(exact.astype(DTYPES[added]), result))
        return
    unit = EPSILON[COMPUTED.get(added, added)] * (2 * depth + 2)
    if result in INTEGERS:
        assert np.all(np.abs(found - np.trunc(exact.real)) <= 1 + unit * sizes)
        return
    rounding = np.abs(exact) * EPSILON[result]
    assert np.all(np.abs(widen(found, result) - exact) <= unit * sizes + rounding)


@pytest.mark.parametrize("elements", PAIRS, ids="-".join)
def test_products_in_all_types(elements: tuple[str, str, str]) -> None:
    rows, columns, depth = 5, 3, 4
    kernel = Kernel(multiply_text((*elements, elements[2]), (rows, columns, depth)))
    random = np.random.default_rng(3)
    shapes = ((rows, depth), (depth, columns), (rows, columns))
    given_ = [draw_array(random, name, shape) for name, shape in zip(elements, shapes, strict=True)]
    left, right, added = (widen(array, name) for array, name in zip(given_, elements, strict=True))
    found = np.zeros((rows, columns), DTYPES[elements[2]], order="F")
    kernel(*given_, found)
    sizes = np.abs(left) @ np.abs(right) + np.abs(added)
    agree(found, left @ right + added, sizes, elements[2], elements[2], depth)


RESULTS = [(added, result) for added, result in product(DTYPES, repeat=2) if is_castable(added, result)]


@pytest.mark.parametrize(("added", "result"), RESULTS)
def test_the_sum_is_rounded_to_the_result(added: str, result: str) -> None:
    rows, columns, depth = 6, 2, 2
    kernel = Kernel(multiply_text((added, added, added, result), (rows, columns, depth)))
    random = np.random.default_rng(4)
    given_ = [
        draw_array(random, added, shape) for shape in ((rows, depth), (depth, columns), (rows, columns))
    ]
    left, right, total = (widen(array, added) for array in given_)
    found = np.zeros((rows, columns), DTYPES[result], order="F")
    kernel(*given_, found)
    sizes = np.abs(left) @ np.abs(right) + np.abs(total)
    agree(found, left @ right + total, sizes, added, result, depth)


@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 14), st.integers(1, 5)),
    element=st.sampled_from(["f32", "f64", "i8", "i32", "c32", "f16"]),
    target=st.sampled_from(["cpu-avx512", "cpu-avx2", "cpu-aarch64"]),
)
def test_products_of_all_shapes(shape: tuple[int, int, int], element: str, target: str) -> None:
    rows, columns, depth = shape
    kernel = Kernel(multiply_text((element,) * 4, shape), target)
    random = np.random.default_rng(5)
    given_ = [
        lay_out(draw_array(random, element, size), (1, size[0]), True)
        for size in ((rows, depth), (depth, columns), (rows, columns))
    ]
    left, right, added = (widen(array, element) for array in given_)
    found = lay_out(np.zeros((rows, columns), DTYPES[element]), (1, rows), True)
    kernel(*given_, found)
    sizes = np.abs(left) @ np.abs(right) + np.abs(added)
    agree(found, left @ right + added, sizes, element, element, depth)


@pytest.mark.parametrize("element", ["i8", "i16"])
def test_sums_of_the_least_integers_wrap(element: str) -> None:
    shape = (16, 2, 3)
    kernel = Kernel(multiply_text((element, element, "i32", "i32"), shape))
    least = int(np.iinfo(DTYPES[element]).min)
    left, right = (np.full(size, least, DTYPES[element], order="F") for size in ((16, 3), (3, 2)))
    added = np.full((16, 2), 2**31 - 1, np.int32, order="F")
    found = np.zeros_like(added)
    kernel(left, right, added, found)
    assert np.array_equal(found, (added + np.int64(3 * least * least)).astype(np.int32))


@pytest.mark.parametrize("use", ["matrix_a", "matrix_b", "matrix_acc"])
@pytest.mark.parametrize("element", ["i8", "i32", "index", "bf16", "f16", "f32", "f64", "c32", "c64"])
def test_a_constant_is_scaled(element: str, use: str) -> None:
    complex_ = element in COMPLEX
    three, half = ("[3.0,-1.0]", "[0.5,2.0]") if complex_ else ("3.0", "0.5")
    if element in INTEGERS:
        three, half = "3", "-7"
    kernel = Kernel(
        f"""
        func @f(%A: memref<{element}x5x3>) {SIZE} {{
          parallel {{
            %z = constant 0 : index
            %c = constant {three} : coopmatrix<{element}x5x3,{use}>
            %s = constant {half} : {element}
            %m = cooperative_matrix_scale %s, %c : coopmatrix<{element}x5x3,{use}>
            cooperative_matrix_store %m, %A[%z,%z]
          }}
        }}"""
    )
    found = np.zeros((5, 3), DTYPES[element], order="F")
    kernel(found)
    value = (3 - 1j) * (0.5 + 2j) if complex_ else 1.5 if element not in INTEGERS else -21
    assert np.array_equal(found, np.full((5, 3), value, DTYPES[element]))


@pytest.mark.parametrize("flag", ["atomic", "atomic_add"])
@pytest.mark.parametrize("use", ["matrix_b", "matrix_acc"])
@pytest.mark.parametrize("element", ["i32", "i64", "f16", "f32", "f64", "c32", "c64"])
@pytest.mark.parametrize("rows", [1, 5, 16])
def test_atomic_stores(element: str, use: str, flag: str, rows: int) -> None:
    kernel = Kernel(
        f"""
        func @f(%A: memref<{element}x?x?>, %B: memref<{element}x?x?>) {SIZE} {{
          parallel {{
            %x = constant 1 : index
            %y = constant 0 : index
            %m = cooperative_matrix_load.n %A[%y,%y] : coopmatrix<{element}x{rows}x3,{use}>
            cooperative_matrix_store.both_checked.{flag} %m, %B[%x,%y]
          }}
        }}"""
    )
    random = np.random.default_rng(6)
    given_, before = draw_array(random, element, (rows, 3)), draw_array(random, element, (rows, 2))
    found = lay_out(before, (1, rows), True)
    kernel(given_, found)
    expected = before.copy()
    last = max(rows - 1, 0)
    stored = given_[:last, :2]
    expected[1:] = expected[1:] + stored if flag == "atomic_add" else stored
    assert found.tobytes() == expected.tobytes()
