"""Cooperative matrices as code of other processors: the text is read, nothing runs."""

from __future__ import annotations

import re

import pytest

from lamella.backend.cpu.jit import MACHINES, assembly
from tests.support.backend.cpu.cooperating import emit, read
from tests.support.backend.interpreter.kernels import DTYPES

SIZE = "attributes{subgroup_size=16,work_group_size=[16,1]}"


def product_text(rows: int, columns: int) -> str:
    """The innermost loop of a matrix product."""
    return f"""
    func @f(%A: memref<f32x{rows}x384>, %B: memref<f32x384x{columns}>, %C: memref<f32x{rows}x{columns}>) {SIZE} {{
      parallel {{
        %z = constant 0 : index
        %end = constant 384 : index
        %step = constant 2 : index
        %zero = constant 0.0 : coopmatrix<f32x{rows}x{columns},matrix_acc>
        %r = for %k:index=%z,%end,%step init(%c=%zero) -> (coopmatrix<f32x{rows}x{columns},matrix_acc>) {{
          %a = cooperative_matrix_load.n %A[%z,%k] : coopmatrix<f32x{rows}x2,matrix_a>
          %b = cooperative_matrix_load.n %B[%k,%z] : coopmatrix<f32x2x{columns},matrix_b>
          %d = cooperative_matrix_mul_add %a, %b, %c : coopmatrix<f32x{rows}x{columns},matrix_acc>
          yield (%d)
        }}
        cooperative_matrix_store %r, %C[%z,%z]
      }}
    }}"""


@pytest.mark.parametrize(
    ("target", "rows", "columns", "register", "spilled"),
    [
        ("cpu-avx512", 32, 12, "%zmm", "%rsp"),
        ("cpu-avx2", 16, 6, "%ymm", "%rsp"),
        ("cpu-aarch64", 8, 8, ".4s", "[sp"),
    ],
)
def test_sums_stay_in_registers(target: str, rows: int, columns: int, register: str, spilled: str) -> None:
    text = assembly(emit(read(product_text(rows, columns)).functions[0], target), MACHINES[target])
    blocks = re.split(r"^\.?L?BB\w+:", text, flags=re.MULTILINE)
    loop = max(blocks, key=lambda block: len(re.findall(r"\b(?:vfmadd\w+|fmla)\b", block)))
    loop = re.split(r"^\s+(?:j\w+|b\.\w+)\s", loop, maxsplit=1, flags=re.MULTILINE)[0]
    products = [line for line in loop.splitlines() if re.search(r"\b(?:vfmadd\w+|fmla)\b", line)]
    lanes = {"%zmm": 16, "%ymm": 8, ".4s": 4}[register]
    assert len(products) == 2 * rows // lanes * columns
    assert all(register in line for line in products)
    assert spilled not in loop


@pytest.mark.parametrize("element", [*DTYPES])
@pytest.mark.parametrize("target", ["cpu-avx512", "cpu-avx2", "cpu-aarch64"])
def test_every_access_is_written_for_every_machine(target: str, element: str) -> None:
    kind = f"coopmatrix<{element}x5x3,matrix_acc>"
    text = f"""
    func @f(%A: memref<{element}x?x?>, %B: memref<{element}x?x?,strided<?,1>>,
            %C: memref<{element}x?x?,strided<?,?>>, %x: index) {SIZE} {{
      parallel {{
        %a = cooperative_matrix_load.n.both_checked %A[%x,%x] : {kind}
        %b = cooperative_matrix_load.n.both_checked %B[%x,%x] : {kind}
        %c = cooperative_matrix_load.n.both_checked %C[%x,%x] : {kind}
        cooperative_matrix_store.both_checked %c, %A[%x,%x]
        cooperative_matrix_store.both_checked %a, %B[%x,%x]
        cooperative_matrix_store.both_checked %b, %C[%x,%x]
      }}
    }}"""
    written = assembly(emit(read(text).functions[0], target), MACHINES[target])
    assert "kernel_0" in written
    assert "call" not in re.findall(r"^\s+(\w+)", written, re.MULTILINE)
