"""The numeric suite of the tensor language on a GPU: NumPy and the interpreter judge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings

from lamella.backend import cuda
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.tensor import parse
from tests.differential.test_collective import judge as judge_case
from tests.support.differential.collective import FUNCTIONS, write_case
from tests.support.differential.running import (
    Numbers,
    agree,
    arrays_of,
    judge,
    make_arguments,
    read,
)
from tests.support.differential.varieties import make_cases
from tests.support.strategies.tensor_programs import Kernel, kernels

pytestmark = pytest.mark.gpu
PARTS = 8


def fitting(text: str) -> str:
    """A kernel for warps, which have 32 threads."""
    return text.replace("subgroup_size=64", "subgroup_size=32")


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_pairs(function: str, part: int) -> None:
    cases = make_cases(function)[part::PARTS]
    text = fitting("\n".join(write_case(case, f"k{number}") for number, case in enumerate(cases)))
    parsed = parse(Source("kernels.tensor", text))
    assert not errors(parsed.findings), parsed.findings
    compiled = cuda.compile_program(parsed.program)
    for number, case in enumerate(cases):
        judge_case(case, compiled, f"k{number}", seed=number)


def execute(kernel: Kernel, text: str) -> Sequence[Numbers]:
    """What the GPU leaves in the arrays."""
    arguments = make_arguments(kernel)
    cuda.compile_program(read(text)).call("f", arguments, kernel.groups)
    return arrays_of(kernel, arguments)


@given(kernels())
@settings(max_examples=100)
def test_random_kernels(kernel: Kernel) -> None:
    text = fitting(kernel.text)
    agree(kernel, judge(kernel, read(text)), execute(kernel, text))


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_subgroups(size: int) -> None:
    text = f"""
func @f(%x: memref<f32x128>, %y: memref<f32x128x4>) attributes{{subgroup_size={size}, work_group_size=[128,1]}} {{
  parallel {{
    %s = builtin.subgroup_id : i32
    %l = builtin.subgroup_local_id : i32
    %n = constant {size} : i32
    %a = arith.mul %s, %n : i32
    %b = arith.add %a, %l : i32
    %i = cast %b : index
    %v = load %x[%i] : f32
    %r = subgroup_add.reduce %v : f32
    %q = subgroup_add.inclusive_scan %v : f32
    %e = subgroup_add.exclusive_scan %v : f32
    %m = subgroup_max.reduce %v : f32
    %0 = constant 0 : index
    %1 = constant 1 : index
    %2 = constant 2 : index
    %3 = constant 3 : index
    store %r, %y[%i,%0]
    store %q, %y[%i,%1]
    store %e, %y[%i,%2]
    store %m, %y[%i,%3]
  }}
}}
"""
    x = np.arange(128, dtype=np.float32)
    y = np.zeros((128, 4), np.float32, order="F")
    cuda.compile_program(read(text)).call("f", [x, y])
    rows = x.reshape(-1, size)
    want = np.cumsum(rows, 1)
    np.testing.assert_array_equal(y[:, 0], np.repeat(want[:, -1], size))
    np.testing.assert_array_equal(y[:, 1], want.reshape(-1))
    np.testing.assert_array_equal(y[:, 2], (want - rows).reshape(-1))
    np.testing.assert_array_equal(y[:, 3], np.repeat(rows.max(1), size))
