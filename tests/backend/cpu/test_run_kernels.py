"""Kernels by name, with machine code written by hand: the surface of the interpreter, and the views."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu.compile import load_kernels
from lamella.backend.cpu.compiled import Compiled, KernelSymbol
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.tensor import parse, write
from tests.support.backend.cpu.texts import (
    AXPY,
    AXPY_TEXT,
    COUNT,
    COUNT_TEXT,
    load_slots,
    make_kernels,
    write_kernel,
)

BATCH = """
func @add(%a: group<memref<f64x?>x?>, %b: group<memref<f64x?>x?>) {
  %i = builtin.group_id : index
  %x = load %a[%i] : memref<f64x?>
  %y = load %b[%i] : memref<f64x?>
  %one = constant 1.0 : f64
  axpby.n %one, %x, %one, %y
}"""
BATCH_TEXT = (
    """
define void @kernel_0(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch) {
entry:
"""
    + load_slots("ptr", "ptr", "i64", "ptr", "ptr", "i64")
    + """
  br label %group
group:
  %i = phi i64 [ %first, %entry ], [ %more, %end ]
  %pn = getelementptr i64, ptr %a1, i64 %i
  %n = load i64, ptr %pn
  %px = getelementptr ptr, ptr %a0, i64 %i
  %x = load ptr, ptr %px
  %py = getelementptr ptr, ptr %a3, i64 %i
  %y = load ptr, ptr %py
  br label %test
test:
  %k = phi i64 [ 0, %group ], [ %next, %element ]
  %inside = icmp slt i64 %k, %n
  br i1 %inside, label %element, label %end
element:
  %qx = getelementptr double, ptr %x, i64 %k
  %qy = getelementptr double, ptr %y, i64 %k
  %vx = load double, ptr %qx
  %vy = load double, ptr %qy
  %sum = fadd double %vx, %vy
  store double %sum, ptr %qy
  %next = add i64 %k, 1
  br label %test
end:
  %more = add i64 %i, 1
  %again = icmp slt i64 %more, %last
  br i1 %again, label %group, label %done
done:
  ret void
}
"""
)


@pytest.mark.parametrize("threads", [1, 2])
@given(st.lists(st.floats(-100, 100, width=32), max_size=50), st.floats(-8, 8, width=32))
def test_axpy(threads: int, values: list[float], factor: float) -> None:
    x = np.array(values, np.float32)
    y = x[::-1].copy()
    wanted = np.float32(factor) * x + y
    make_kernels(AXPY, [AXPY_TEXT], threads=threads).axpy(factor, x, y, groups=len(x))
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch(threads: int) -> None:
    random = np.random.default_rng(3)
    a = [random.standard_normal(size) for size in range(40)]
    b = [random.standard_normal(size) for size in range(40)]
    wanted = [x + y for x, y in zip(a, b, strict=True)]
    make_kernels(BATCH, [BATCH_TEXT], threads=threads).add(a, b, groups=40)
    for found, right in zip(b, wanted, strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("groups", [0, 1, 2, 1000])
def test_groups_are_counted(groups: int) -> None:
    out = np.zeros(1000, np.int64)
    make_kernels(COUNT, [COUNT_TEXT], threads=2).count(out, groups=np.int64(groups))
    assert out.sum() == groups
    assert (out[:groups] == 1).all()


def test_kernels_by_name() -> None:
    nothing = [write_kernel(f"kernel_{number}", "", "  %o = add i64 %i, 0") for number in range(3)]
    kernels = make_kernels("func @one(%a: memref<i32>) {} func @call() {} func @7() {}", nothing)
    assert kernels.names == ("one", "call", "7")
    kernels.one(np.zeros((), np.int32))
    assert kernels.one is kernels.one
    kernels.call("call")
    kernels.call("7", (), 2)
    with pytest.raises(LamellaError, match=r"TEN200.*'@two'"):
        kernels.two()
    with pytest.raises(LamellaError, match=r"TEN200.*'@two'"):
        kernels.call("two")
    with pytest.raises(LamellaError, match=r"TEN201.*takes 1 arguments, 0 were passed"):
        kernels.one()
    with pytest.raises(AttributeError):
        kernels._hidden  # noqa: B018


@pytest.mark.parametrize("groups", [-1, True, 1.0, "2", 1 << 63])
def test_group_counts(groups: int) -> None:
    with pytest.raises(LamellaError, match="TEN202"):
        make_kernels(COUNT, [COUNT_TEXT]).count(np.zeros(1, np.int64), groups=groups)


def test_views() -> None:
    kernels = make_kernels(AXPY, [AXPY_TEXT])
    assert kernels.llvm == AXPY_TEXT
    assert kernels.ir == write(parse(Source("test.tensor", AXPY)).program)
    assert "kernel_0:" in kernels.asm
    assert "axpy" not in kernels.asm


def test_local_memory_is_limited() -> None:
    program = parse(Source("test.tensor", COUNT)).program
    compiled = Compiled(COUNT_TEXT, (KernelSymbol("count", "kernel_0", 1000),), program, program)
    with pytest.raises(LamellaError, match=r"TEN231.*1000 bytes"):
        load_kernels(compiled, limits=Limits(max_total_bytes=999))
    load_kernels(compiled, limits=Limits(max_total_bytes=1000))


def test_local_memory_that_cannot_be_had_is_an_error() -> None:
    kernels = make_kernels(COUNT, [COUNT_TEXT], local_bytes=1 << 31)
    program = parse(Source("test.tensor", COUNT)).program
    compiled = Compiled(COUNT_TEXT, (KernelSymbol("count", "kernel_0", 1 << 60),), program, program)
    huge = load_kernels(compiled, limits=Limits(max_total_bytes=1 << 62), threads=1)
    with pytest.raises(LamellaError, match="bytes for the local memory"):
        huge.count(np.zeros(1, np.int64))
    kernels.count(np.zeros(1, np.int64))


def test_wrong_code_is_an_error() -> None:
    with pytest.raises(InputError):
        make_kernels(COUNT, ["define void @other() {\n  ret void\n}"])
