"""Kernels that were once compiled wrong, as small as they can be."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend import cpu, interpreter
from tests.support.backend.interpreter.kernels import DTYPES
from tests.support.differential.layouts import arrange, is_marked
from tests.support.differential.running import read

FOLDED = """
func @f(%A: memref<indexx4>) attributes{subgroup_size=1, work_group_size=[1,4]} {
  %g = builtin.group_id : index
  %one = constant 1 : index
  %skipped = for %i:index=%one,%one,%one init(%x=%g) -> (index) {
    yield (%i)
  }
  %true = constant true : bool
  %same = arith.select %true, %skipped, %one : index
  %taken = if %true -> (index) {
    yield (%same)
  } else {
    yield (%one)
  }
  %again = arith.max %taken, %taken : index
  store %again, %A[%taken]
}
"""


def test_what_a_folded_value_stands_for_may_be_folded_itself() -> None:
    program = read(FOLDED)
    for compiled in (interpreter.compile_program(program), cpu.compile_program(program)):
        array = np.full(4, 7)
        compiled.call("f", [array], 1)
        assert array.tolist() == [0, 7, 7, 7]


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64", "bf16", "f16", "f32", "f64"])
@pytest.mark.parametrize("size", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("lane", [0, 1])
def test_one_lane_writes_one_element(element: str, size: int, lane: int) -> None:
    """LLVM writes the number before it was cut where it sees a single lane."""
    wide = "i64" if element.startswith("i") else "f64"
    text = f"""
func @f(%A: memref<{element}x{size}>, %x: {wide}) attributes{{subgroup_size={size}, work_group_size=[{size},1]}} {{
  parallel {{
    %l = builtin.subgroup_local_id : i32
    %i = cast %l : index
    %only = constant {lane} : i32
    %is = cmp.eq %l, %only : bool
    if %is {{
      %w = cast %l : {wide}
      %s = arith.add %w, %x : {wide}
      %v = cast %s : {element}
      store %v, %A[%i]
    }}
  }}
}}
"""
    array = arrange(np.full(size, 7, DTYPES[element]), "packed")
    cpu.compile_program(read(text)).call("f", [array, -2 if wide == "i64" else -2.0], 1)
    expected = [7] * size
    expected[lane] = lane - 2
    assert array.astype(np.float64).tolist() == expected
    assert is_marked(array)


CARRIED = """
func @f(%x: memref<i32x8>) attributes{subgroup_size=4, work_group_size=[8,1]} {
  %4 = constant 4 : index
  %0 = constant 0 : index
  %2 = constant 2 : index
  %yes = constant true : bool
  parallel {
    %l0 = builtin.subgroup_local_id : i32
    %s0 = builtin.subgroup_id : i32
    %l = cast %l0 : index
    %s = cast %s0 : index
    %o = arith.mul %s, %4 : index
    %i = arith.add %o, %l : index
    %v = load %x[%i] : i32
    %e = for %k:index=%0,%2 init(%c=%v) -> (i32) {
      barrier.local
      %d = arith.add %c, %c : i32
      yield (%d)
    }
    %z = cmp.lt %0, %4 : bool
    %r = if %z -> (i32) {
      barrier.local
      %t = arith.add %e, %l0 : i32
      yield (%t)
    } else {
      yield (%e)
    }
    store %r, %x[%i]
  }
}
"""


def test_each_subgroup_keeps_what_it_yields_round_a_barrier() -> None:
    program = read(CARRIED)
    for compiled in (interpreter.compile_program(program), cpu.compile_program(program)):
        array = np.arange(1, 9, dtype=np.int32)
        compiled.call("f", [array], 1)
        assert array.tolist() == [4 * value + lane % 4 for lane, value in enumerate(range(1, 9))]


PASSED = """
func @f(%x: memref<i32x4>) attributes{subgroup_size=1, work_group_size=[1,4]} {
  %0 = constant 0 : i32
  %1 = constant 1 : i32
  parallel {
    %s = builtin.subgroup_id : i32
    %i = cast %s : index
    %z = cmp.lt %s, %1 : bool
    %r = for %k:i32=%0,%1,%1 init(%c=%z) -> (bool) {
      barrier.local
      yield (%c)
    }
    %v = arith.select %r, %1, %0 : i32
    store %v, %x[%i]
  }
}
"""


def test_what_a_loop_round_a_barrier_hands_on_unchanged() -> None:
    program = read(PASSED)
    for compiled in (interpreter.compile_program(program), cpu.compile_program(program)):
        array = np.full(4, 7, np.int32)
        compiled.call("f", [array], 1)
        assert array.tolist() == [1, 0, 0, 0]
