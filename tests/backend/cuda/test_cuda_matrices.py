"""Cooperative matrices on a GPU: fragments of the tensor cores, and the lanes of a warp."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lamella.backend import cuda, interpreter
from tests.support.backend.interpreter.kernels import DTYPES, draw_array
from tests.support.differential.running import read

pytestmark = pytest.mark.gpu


def product_text(
    elements: tuple[str, str, str], shape: tuple[int, int, int], forms: str = "nn", size: int = 32
) -> str:
    """One product of a subgroup, whose factors are loaded as they are or transposed."""
    (left, right, added), (m, n, k) = elements, shape
    a = f"{m}x{k}" if forms[0] == "n" else f"{k}x{m}"
    b = f"{k}x{n}" if forms[1] == "n" else f"{n}x{k}"
    acc = f"coopmatrix<{added}x{m}x{n},matrix_acc>"
    return f"""
func @f(%A: memref<{left}x{a}>, %B: memref<{right}x{b}>, %C: memref<{added}x{m}x{n}>)
    attributes{{subgroup_size={size}, work_group_size=[{size},1]}} {{
  parallel {{
    %0 = constant 0 : index
    %a = cooperative_matrix_load.{forms[0]} %A[%0,%0] : coopmatrix<{left}x{m}x{k},matrix_a>
    %b = cooperative_matrix_load.{forms[1]} %B[%0,%0] : coopmatrix<{right}x{k}x{n},matrix_b>
    %c = cooperative_matrix_load.n %C[%0,%0] : {acc}
    %d = cooperative_matrix_mul_add %a, %b, %c : {acc}
    cooperative_matrix_store %d, %C[%0,%0]
  }}
}}
"""


def run_both(text: str, arrays: list[Any], groups: int = 1) -> tuple[list[Any], list[Any]]:
    """What the interpreter and the GPU leave."""
    program = read(text)
    judged, found = ([item.copy(order="F") for item in arrays] for _ in range(2))
    interpreter.compile_program(program).call("f", judged, groups)
    cuda.compile_program(program).call("f", found, groups)
    return judged, found


ELEMENTS = [
    ("bf16", "bf16", "f32"),
    ("f16", "f16", "f32"),
    ("f8e4m3", "f8e4m3", "f32"),
    ("f8e5m2", "f8e4m3", "f32"),
    ("i8", "i8", "i32"),
    ("f32", "f32", "f32"),
    ("f64", "f64", "f64"),
    ("c32", "c32", "c32"),
]
SHAPES = [(16, 16, 16), (32, 32, 32), (64, 16, 48), (8, 5, 3), (40, 16, 16)]


@pytest.mark.parametrize("forms", ["nn", "tn", "nt", "tt"])
@pytest.mark.parametrize("elements", ELEMENTS, ids="-".join)
def test_products(elements: tuple[str, str, str], forms: str) -> None:
    for shape in SHAPES:
        m, n, k = shape
        random = np.random.default_rng(1)
        a = draw_array(random, elements[0], (m, k) if forms[0] == "n" else (k, m))
        b = draw_array(random, elements[1], (k, n) if forms[1] == "n" else (n, k))
        c = draw_array(random, elements[2], (m, n))
        judged, found = run_both(product_text(elements, shape, forms), [a, b, c])
        wide = np.complex128 if elements[2] == "c32" else np.float64
        np.testing.assert_allclose(
            found[2].astype(wide), judged[2].astype(wide), rtol=2e-5, atol=2e-4, err_msg=f"{shape}"
        )


APPLIED = """
func @f(%A: memref<f32x24x10>, %B: memref<f32x24x10>) attributes{subgroup_size=32, work_group_size=[32,1]} {
  parallel {
    %0 = constant 0 : index
    %a = cooperative_matrix_load.n.both_checked %A[%0,%0] : coopmatrix<f32xROWSx12,matrix_acc>
    %b = cooperative_matrix_apply (%r,%c,%v)=%a -> coopmatrix<f32xROWSx12,matrix_acc> {
      %p = cast %r : f32
      %q = cast %c : f32
      %t = arith.mul %p, %v : f32
      %u = arith.add %t, %q : f32
      yield (%u)
    }
    cooperative_matrix_store.both_checked %b, %B[%0,%0]
  }
}
"""


@pytest.mark.parametrize("rows", [24, 32, 16, 40, 64])
def test_apply_and_checks(rows: int) -> None:
    random = np.random.default_rng(2)
    arrays = [draw_array(random, "f32", (24, 10)) for _ in range(2)]
    judged, found = run_both(APPLIED.replace("ROWS", str(rows)), arrays)
    np.testing.assert_array_equal(found[1], judged[1])


GEMM = """
func @f(%A: memref<bf16x128x512>, %B: memref<bf16x128x256>, %C: memref<bf16x512x256>)
    attributes{subgroup_size=32, work_group_size=[256,1]} {
  parallel {
    %g = builtin.group_id : index
    %0 = constant 0 : index
    %2 = constant 2 : index
    %16 = constant 16 : index
    %128 = constant 128 : index
    %256 = constant 256 : index
    %s = builtin.subgroup_id : i32
    %si = cast %s : index
    %mt = arith.rem %g, %2 : index
    %nt = arith.div %g, %2 : index
    %m = arith.mul %mt, %256 : index
    %n0 = arith.mul %nt, %128 : index
    %sn = arith.mul %si, %16 : index
    %n = arith.add %n0, %sn : index
    %z = constant 0.0 : coopmatrix<f32x256x16,matrix_acc>
    %acc = for %k:index=%0,%128,%16 init(%c=%z) -> (coopmatrix<f32x256x16,matrix_acc>) {
      %a = cooperative_matrix_load.t %A[%k,%m] : coopmatrix<bf16x256x16,matrix_a>
      %b = cooperative_matrix_load.n %B[%k,%n] : coopmatrix<bf16x16x16,matrix_b>
      %d = cooperative_matrix_mul_add %a, %b, %c : coopmatrix<f32x256x16,matrix_acc>
      yield (%d)
    }
    %h = cast %acc : coopmatrix<bf16x256x16,matrix_acc>
    cooperative_matrix_store %h, %C[%m,%n]
  }
}
"""


def test_a_product_of_many_tiles() -> None:
    random = np.random.default_rng(3)
    a, b = (
        np.asfortranarray(random.standard_normal((128, n)).astype(ml_dtypes.bfloat16)) for n in (512, 256)
    )
    c = np.asfortranarray(np.full((512, 256), np.nan, DTYPES["bf16"]))
    cuda.compile_program(read(GEMM)).call("f", [a, b, c], 4)
    want = a.astype(np.float32).T @ b.astype(np.float32)
    np.testing.assert_allclose(c.astype(np.float32), want, rtol=1e-2, atol=1e-2)
