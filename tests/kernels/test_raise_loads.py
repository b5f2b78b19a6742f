"""Loads above stores on threads: the program computes the same, and what is written is not read earlier."""

from __future__ import annotations

import numpy as np

from lamella.backend import interpreter
from lamella.kernels.passes.raise_loads import raise_loads
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Load, Parallel, Program, Store
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
