"""Load hoisting on threads: the program computes the same, and what is written is not read earlier."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.kernels.passes.raise_loads import raise_loads
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import If, Load, Parallel, Program, Store
from tests.support.differential.running import read

TEXT = """
func @f(%x: memref<f32x64>, %y: memref<f32x64>, %z: memref<f32x64>)
    attributes{subgroup_size=32, work_group_size=[32,1]} {
  parallel {
    %l = builtin.subgroup_local_id : i32
    %0 = cast %l : index
    %s = constant 32 : index
    %a = load %x[%0] : f32
    store %a, %y[%0]
    %1 = arith.add %0, %s : index
    %b = load %x[%1] : f32
    %c = load %y[%0] : f32
    %d = arith.add %b, %c : f32
    store %d, %y[%1]
    %e = load %y[%1] : f32
    store %e, %z[%0]
    if %q {
      store %a, %z[%1]
    }
  }
}
""".replace("    if %q {", "    %q = cmp.lt %0, %s : bool\n    if %q {")


def order(program: Program) -> list[str]:
    """The memrefs that are loaded from and stored to, in order."""
    parallel = program.functions[0].body.statements[-1].instruction
    assert isinstance(parallel, Parallel)
    nodes = [item.instruction for item in parallel.body.statements]
    return [
        f"{'load' if isinstance(item, Load) else 'store'} {item.operand.name}"
        for item in nodes
        if isinstance(item, Load | Store)
    ]


def test_loads_of_what_nobody_writes_are_raised() -> None:
    program = read(TEXT)
    raised = raise_loads(program, find_target("sm_90a"))
    assert order(raised) == [
        "load x", "load x", "store y", "load y", "store y", "load y", "store z",
    ]  # fmt: skip
    assert raise_loads(program, find_target("cpu-avx512")) is program
    found = []
    for item in (program, raised):
        arrays = [np.arange(64, dtype=np.float32) * step for step in (1, 0, 0)]
        interpreter.compile_program(item, check_bounds=True).call("f", arrays, 1)
        found.append(arrays)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


SAVES = """
func @g(%x: memref<f32x64>, %at: memref<i64> {"settled"=true}, %cache: memref<f32x64x9> {"settled"=true},
        %saved: memref<f32x64>, %y: memref<f32x64>, %fault: memref<i32x1>)
    attributes{subgroup_size=32, work_group_size=[64,1]} {
  %room = alloca : memref<f32x64,local>
  parallel {
    %l = builtin.subgroup_local_id : i32
    %0 = cast %l : index
    %zero = constant 0 : index
    %s = constant 32 : index
    %one = constant 1 : i32
    %8 = constant 8 : index
    %1 = arith.add %0, %s : index
    %g = builtin.subgroup_id : i32
    %n = cast %g : index
    %v = load %x[%0] : f32
    %first = cmp.eq %n, %zero : bool
    if %first {
      store %v, %room[%0]
    }
    %second = cmp.ne %n, %zero : bool
    if %second {
      %p = load %at[] : i64
      %q = cast %p : index
      %r = arith.min %q, %8 : index
      %in = cmp.ge %q, %zero : bool
      if %in {
        %bad = cmp.ne %r, %q : bool
        if %bad {
          store %one, %fault[%zero]
        }
        %a = load %cache[%0,%r] : f32
        store %a, %saved[%0]
      }
      if %in {
        %worse = cmp.ne %r, %q : bool
        if %worse {
          store %one, %fault[%zero]
        }
        %b = load %cache[%1,%r] : f32
        store %b, %saved[%1]
      }
    }
    barrier.local
    if %second {
      %c = load %x[%1] : f32
      store %c, %y[%1]
    }
    %d = load %room[%0] : f32
    %e = load %x[%1] : f32
    %f = arith.add %d, %e : f32
    if %first {
      store %f, %y[%0]
    }
  }
}
"""


@pytest.mark.parametrize("at", [0, 8, 11, -1])
def test_branches_load_at_once_and_first(at: int) -> None:
    """Branches on the same conditions become one; what they load of settled memory stands before all else."""
    program = read(SAVES)
    raised = raise_loads(program, find_target("sm_90a"))
    parallel = raised.functions[0].body.statements[-1].instruction
    assert isinstance(parallel, Parallel)
    first = next(item.instruction for item in parallel.body.statements if isinstance(item.instruction, If))
    inside = [item.instruction for item in first.then.statements]
    assert [item.operand.name for item in inside if isinstance(item, Load)] == ["cache", "cache"]
    before, _ = emit(program, find_target("sm_90a")).text.split("griddepcontrol.wait", 1)
    assert before.count("= load float") == 2  # both rows that are saved
    found = []
    for item in (program, raised):
        random = np.random.default_rng(3)
        arrays = [
            random.standard_normal(64).astype(np.float32),
            np.asarray(at),
            np.asfortranarray(random.standard_normal((64, 9)).astype(np.float32)),
            *(np.zeros(64, np.float32) for _ in range(2)),
            np.zeros(1, np.int32),
        ]
        interpreter.compile_program(item, check_bounds=True).call("g", arrays, 1)
        found.append(arrays)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found[0][-1][0] == (at > 8)
