"""What a launch proves with its sizes and integers, before machine code touches any memory."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from lamella.backend import cpu, interpreter
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from tests.differential.running import read

TEXT = """
func @fill(%x: memref<f32x?>, %y: memref<f32x?,strided<?>>) {
  %n = size %x[0] : index
  %0 = constant 0 : index
  %v = constant 1.0 : f32
  foreach (%i):index=(%0),(%n) {
    store %v, %y[%i]
  }
}
func @far(%x: memref<f32x?>) {
  %c = constant 100000000000 : index
  %v = constant 1.0 : f32
  store %v, %x[%c]
}
func @put(%n: index, %x: memref<f32x?>) {
  %v = constant 1.0 : f32
  store %v, %x[%n]
}
func @pick(%n: index, %g: group<memref<f32x4>x?>) {
  %x = load %g[%n] : memref<f32x4>
  %v = constant 1.0 : f32
  %0 = constant 0 : index
  store %v, %x[%0]
}
"""
LEAVES = "TEN140"


def codes(error: pytest.ExceptionInfo[LamellaError]) -> set[str]:
    return {item.code for item in error.value.findings}


def zeros(count: int) -> Array:
    return np.zeros(count, np.float32)


@pytest.fixture(scope="module")
def kernels() -> cpu.Kernels:
    return cpu.compile_program(read(TEXT), threads=1)


def test_sizes_that_do_not_fit_are_refused(kernels: cpu.Kernels) -> None:
    with pytest.raises(LamellaError) as error:
        kernels.fill(zeros(1 << 20), zeros(4))
    assert codes(error) == {LEAVES}
    kept = zeros(4)
    kernels.fill(zeros(4), kept)
    assert kept.tolist() == [1.0] * 4


def test_a_constant_beyond_the_end_is_refused(kernels: cpu.Kernels) -> None:
    with pytest.raises(LamellaError) as error:
        kernels.far(zeros(4))
    assert codes(error) == {LEAVES}


@pytest.mark.parametrize("place", [4, -1, 10**8, -(2**62)])
def test_integers_that_leave_the_memory_are_refused(kernels: cpu.Kernels, place: int) -> None:
    array = zeros(4)
    kernels.put(3, array)
    with pytest.raises(LamellaError) as error:
        kernels.put(place, array)
    assert codes(error) == {LEAVES}
    kernels.put(2, array)
    assert array.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_a_group_has_no_more_arrays_than_it_has(kernels: cpu.Kernels) -> None:
    arrays = [zeros(4), zeros(4)]
    kernels.pick(1, arrays)
    assert arrays[1][0] == 1.0
    with pytest.raises(LamellaError):
        kernels.pick(2, arrays)


def test_an_array_that_is_written_is_not_folded_onto_itself(kernels: cpu.Kernels) -> None:
    folded = as_strided(zeros(1), (4,), (0,))
    for compiled in (kernels, interpreter.compile_program(read(TEXT))):
        with pytest.raises(LamellaError) as error:
            compiled.call("fill", [zeros(4), folded])
        assert codes(error) == {"TEN235"}


@pytest.mark.parametrize("threads", [0, -1, 10**9])
def test_a_number_of_threads_that_nobody_has(threads: int) -> None:
    with pytest.raises(InputError, match="threads"):
        cpu.compile_program(read(TEXT), threads=threads)


def test_a_kernel_that_is_not_there_is_an_attribute_that_is_not_there(kernels: cpu.Kernels) -> None:
    assert not hasattr(kernels, "nothing")
    with pytest.raises(LamellaError):
        _ = kernels.nothing


def test_arguments_may_be_named(kernels: cpu.Kernels) -> None:
    array = zeros(4)
    kernels.put(1, x=array)
    kernels.put(x=array, n=0)
    assert array.tolist() == [1.0, 1.0, 0.0, 0.0]
    for wrong in ({"z": array}, {"n": 1, "x": array, "y": 2}, {"x": array}):
        with pytest.raises(InputError):
            kernels.put(**wrong)
