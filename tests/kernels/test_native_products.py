"""Kernels that a library may compute: the attribute is read and written, and who has no library passes over it."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend import interpreter
from lamella.backend.cpu import compile_program
from lamella.base.source import Source
from lamella.kernels.native_products import find_native
from lamella.kernels.passes import lower
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, parse, write
from lamella.lang.tensor.nodes import Function, Program

TEXT = """
func @product(%C: memref<f32x3x4>, %A: memref<f32x5x3,strided<1,8>>, %B: memref<f32x5x4>) attributes{"native"=true} {
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  gemm.t.n %one, %A, %B, %zero, %C
}
"""


def read(text: str) -> Program:
    found = parse(Source("product", text)).program
    assert found is not None
    return found


def kernel(text: str) -> Function:
    (found,) = read(text).functions
    return found


def test_the_attribute_is_read_and_written() -> None:
    program = read(TEXT)
    assert read(write(program)) == program
    assert '"native"=true' in write(program)


def test_it_is_an_extension_of_a_function() -> None:
    (note,) = check(read(TEXT))
    assert note.message == "attribute 'native' is an extension of Lamella"
    wrong = check(read(TEXT.replace("=true", "=3")))
    assert any("native" in item.message and "true or false" in item.message for item in wrong)


def test_the_product_is_found_with_its_matrices() -> None:
    found = find_native(kernel(TEXT))
    assert found is not None
    assert (found.left.place, found.left.rows, found.left.columns, found.left.stride) == (1, 5, 3, 8)
    assert found.left.transposed
    assert not found.right.transposed
    assert (found.output.place, found.output.rows, found.output.columns, found.output.stride) == (0, 3, 4, 3)
    assert found.depth == 5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("=true", "=false"),
        (' attributes{"native"=true}', ""),
        ("constant 1.0", "constant 2.0"),
        ("constant 0.0", "constant 1.0"),
        ("memref<f32x5x4>", "memref<f32x5x?>"),
        ("gemm.t.n %one, %A, %B, %zero, %C", "gemm.t.n %one, %A, %B, %zero, %C axpby.n %one, %B, %one, %B"),
    ],
)
def test_what_is_more_than_a_product_is_none(old: str, new: str) -> None:
    assert old in TEXT
    assert find_native(kernel(TEXT.replace(old, new))) is None


def test_who_has_no_library_computes_the_text() -> None:
    random = np.random.default_rng(3)
    a = np.lib.stride_tricks.as_strided(random.random((3, 8), np.float32), (5, 3), (4, 32))
    b = np.asfortranarray(random.random((5, 4), np.float32))
    for compiled in (interpreter.compile_program(read(TEXT)), compile_program(read(TEXT))):
        c = np.asfortranarray(np.full((3, 4), np.nan, np.float32))
        compiled.call("product", [c, a, b], 1)
        np.testing.assert_allclose(c, a.T @ b, rtol=1e-6)


def test_passes_leave_the_attribute() -> None:
    (lowered,) = lower(read(TEXT), find_target("sm_90a")).functions
    assert lowered.attributes is not None
    assert lowered.attributes.find("native") is True
