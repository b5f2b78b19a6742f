"""Packed accesses begin with the first element of a pack: proved, refused, or tested while the kernel runs."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import lamella
from lamella.base.arrays import Array

KERNEL = """
func @f(%A: memref<bf16x2x16x8>, %C: memref<f32x16x16>, %s: index) {
  %zero = constant 0 : index
  %two = constant 2 : index
  %three = constant 3 : index
  %twice = arith.mul %s, %two : index
  parallel {
    %none = constant 0.0 : coopmatrix<f32x16x16,matrix_acc>
    %ones = constant 1.0 : coopmatrix<bf16x4x16,matrix_b>
    %a = cooperative_matrix_load.n %A[%zero,COLUMN] : coopmatrix<bf16x16x4,matrix_a>
    %c = cooperative_matrix_mul_add %a, %ones, %none : coopmatrix<f32x16x16,matrix_acc>
    cooperative_matrix_store %c, %C[%zero,%zero]
  }
}
"""
A = np.asfortranarray(np.random.default_rng(0).integers(-9, 9, (2, 16, 8)).astype(ml_dtypes.bfloat16))


def run(folder: Path, column: str, start: int, backend: str) -> Array:
    """The first column of the sums of four columns from a start on."""
    (folder / "f.tensor").write_text(KERNEL.replace("COLUMN", column))
    sums = np.zeros((16, 16), np.float32, order="F")
    getattr(lamella.compile(folder / "f.tensor", backend=backend), "f")(A, sums, start)  # noqa: B009
    return sums[:, 0]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(("column", "start"), [("%two", 0), ("%twice", 3), ("%s", 6)])
def test_even_columns_are_read(tmp_path: Path, backend: str, column: str, start: int) -> None:
    first = {"%two": 2, "%twice": 2 * start, "%s": start}[column]
    wide = A.astype(np.float32).transpose(1, 2, 0).reshape(16, 16)
    np.testing.assert_array_equal(run(tmp_path, column, start, backend), wide[:, first : first + 4].sum(1))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(("column", "start"), [("%three", 0), ("%s", 5)])
def test_odd_columns_are_refused(tmp_path: Path, backend: str, column: str, start: int) -> None:
    with pytest.raises(lamella.LamellaError) as caught:
        run(tmp_path, column, start, backend)
    assert caught.value.findings[0].code == "TEN234"


def test_a_multiple_is_proved(tmp_path: Path) -> None:
    (tmp_path / "f.tensor").write_text(KERNEL.replace("COLUMN", "%twice"))
    found = [item.message for item in lamella.check(tmp_path / "f.tensor")]
    assert not any("packed column" in item for item in found)
    (tmp_path / "f.tensor").write_text(KERNEL.replace("COLUMN", "%s"))
    found = [item.message for item in lamella.check(tmp_path / "f.tensor")]
    assert any("packed column %s" in item for item in found)
