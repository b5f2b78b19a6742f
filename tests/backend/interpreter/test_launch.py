"""Launches: names, counts, scalars, promises; loops, limits and traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from lamella.backend.cpu import compile_program
from lamella.backend.interpreter import ExecutedStatement
from lamella.backend.named import NamedKernels
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.tensor import parse
from tests.support.backend.interpreter.kernels import compile_text


def test_kernels_by_name() -> None:
    kernels = compile_text("func @one(%a: memref<i32>) {} func @call() {} func @7() {}")
    assert kernels.names == ("one", "call", "7")
    kernels.one(np.zeros((), np.int32))
    kernels.call("call")
    kernels.call("7", (), 2)
    with pytest.raises(LamellaError, match=r"TEN200.*'@two'"):
        kernels.two()
    with pytest.raises(LamellaError, match=r"TEN201.*takes 1 arguments, 0 were passed"):
        kernels.one()


@pytest.mark.parametrize("groups", [-1, True, 1.0, "2"])
def test_group_counts(groups: int) -> None:
    with pytest.raises(LamellaError, match="TEN202"):
        compile_text("func @f() {}").f(groups=groups)


@pytest.mark.parametrize(
    ("element", "good", "bad"),
    [
        ("i8", [-128, 127, np.int64(5)], [128, -129, 1.0, True, np.float32(1)]),
        ("index", [2**63 - 1, -(2**63)], [2**63]),
        ("bf16", [1, 2.5, np.float64(1e300), np.inf], [1j, True]),
        ("f64", [10**300], [10**400]),
        ("c32", [1, 2.5, 1 + 2j, np.complex128(1j)], [False]),
        ("bool", [True, np.bool_(False)], [0, 1.0]),
    ],
)
def test_scalars(element: str, good: list[object], bad: list[object]) -> None:
    kernels = compile_text(f"func @f(%a: {element}) {{}}")
    for value in good:
        kernels.f(value)
    for value in bad:
        with pytest.raises(LamellaError, match="TEN204"):
            kernels.f(value)
    with pytest.raises(LamellaError, match="TEN203"):
        kernels.f("1")


def test_scalars_arrive() -> None:
    kernels = compile_text(
        "func @f(%a: bool, %b: c32, %c: i16, %x: memref<c32>, %y: memref<i16>) {\n"
        "  if %a {\n    store %b, %x[]\n    store %c, %y[]\n  }\n}"
    )
    x, y = np.zeros((), np.complex64), np.zeros((), np.int16)
    kernels.f(False, 1j, 5, x, y)
    assert (complex(x), int(y)) == (0, 0)
    kernels.f(True, 1 - 2j, np.int64(-7), x, y)
    assert (complex(x), int(y)) == (1 - 2j, -7)


Backend: TypeAlias = Callable[[str], NamedKernels]


def compile_interpreted(text: str) -> NamedKernels:
    """Kernels that the interpreter runs."""
    return compile_text(text)


def compile_machine_code(text: str) -> NamedKernels:
    """The same kernels as machine code."""
    return compile_program(parse(Source("kernels.tensor", text)).program)


def aligned(count: int, offset: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Floats that begin some bytes behind a multiple of 64."""
    memory = np.zeros(4 * count + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + 4 * count].view(np.float32)


def test_promises_hold_or_are_findings() -> None:
    kernels = compile_text(
        "func @f(%a: memref<f32x?x?,strided<1,?>> {alignment=64, shape_gcd=[4], stride_gcd=[1,8]}) {}"
    )
    kernels.f(aligned(32, 0).reshape((8, 4), order="F"))
    with pytest.raises(LamellaError, match=r"TEN212.*lies 16 bytes"):
        kernels.f(aligned(32, 16).reshape((8, 4), order="F"))
    with pytest.raises(LamellaError, match=r"TEN213.*mode 0.*size 6"):
        kernels.f(aligned(32, 0).reshape((8, 4), order="F")[:6])
    with pytest.raises(LamellaError, match=r"TEN214.*mode 1.*stride 12"):
        kernels.f(aligned(48, 0).reshape((12, 4), order="F")[:8])


def test_promises_pass_through_groups() -> None:
    kernels = compile_text("func @f(%a: group<memref<f32x?>x?> {shape_gcd=[2]}) {}")
    with pytest.raises(LamellaError) as found:
        kernels.f([np.zeros(n, np.float32) for n in (2, 3, 4, 5)])
    assert [item.code for item in found.value.findings] == ["TEN213", "TEN213"]


@pytest.mark.parametrize("backend", [compile_interpreted, compile_machine_code])
def test_the_alignment_of_a_group_holds_behind_its_offset(backend: Backend) -> None:
    """It is that of the memrefs that are loaded from the group."""
    kernels = backend("func @f(%a: group<memref<f32x4>x?, offset: 4> {alignment=64}) {}")
    kernels.call("f", [[aligned(16, 48)[:4], aligned(16, 48)[:4]]], 1)
    with pytest.raises(LamellaError, match=r"TEN212.*lies 16 bytes"):
        kernels.call("f", [[aligned(16, 48)[:4], aligned(16, 0)[:4]]], 1)


def test_layouts_are_verified_all_at_once() -> None:
    kernels = compile_text(
        "func @f(%a: memref<f32x4x8>, %b: memref<f32x4>, %c: memref<i32x4>, %d: memref<f32x?>) {}"
    )
    vector = np.zeros(8, np.float32)
    with pytest.raises(LamellaError) as found:
        kernels.f(np.zeros((4, 8), np.float32), np.zeros((4, 1), np.float32), vector[:4], vector[::-1])
    assert [item.code for item in found.value.findings] == ["TEN208", "TEN206", "TEN205", "TEN209"]


def test_the_stride_of_a_single_element_is_free() -> None:
    compile_text("func @f(%a: memref<f32x4x1>) {}").f(np.zeros((4, 7), np.float32, order="F")[:, :1])
    compile_text("func @f(%a: memref<f32x1x4>) {}").f(np.zeros((1, 4), np.float32))


def test_fibonacci() -> None:
    text = """
func @f(%to: i32, %out: memref<i64x2>) {
  %from = constant 2 : i32
  %f0 = constant 0 : i64
  %f1 = constant 1 : i64
  %fn_1, %fn = for %n:i32=%from,%to init(%fn_2=%f0,%fn_1=%f1) -> (i64,i64) {
    %fn = arith.add %fn_2, %fn_1 : i64
    yield (%fn_1, %fn)
  }
  %zero = constant 0 : index
  %one = constant 1 : index
  store %fn_1, %out[%zero]
  store %fn, %out[%one]
}"""
    kernels, out = compile_text(text), np.zeros(2, np.int64)
    previous, last = 0, 1
    for to in range(2, 12):
        kernels.f(to, out)
        assert out.tolist() == [previous, last]
        previous, last = last, previous + last


LOOP = """
func @f(%from: i8, %to: i8, %step: i8, %out: memref<i32>) {
  %one = constant 1 : i32
  for %i:i8=%from,%to,%step {
    %x = load %out[] : i32
    %y = arith.add %x, %one : i32
    store %y, %out[]
  }
}"""


@pytest.mark.parametrize("bounds", [(0, 7, 3), (5, 5, 1), (6, 5, 1), (120, 127, 5), (-3, 0, 1)])
def test_trips(bounds: tuple[int, int, int]) -> None:
    """The step is added modulo the range of the type: 125 and 5 give -126."""
    index, trips = bounds[0], 0
    while index < bounds[1]:
        trips, index = trips + 1, (index + bounds[2] + 128) % 256 - 128
    out = np.zeros((), np.int32)
    compile_text(LOOP).f(*bounds, out)
    assert out == trips


@pytest.mark.parametrize("step", [0, -1])
def test_loops_end(step: int) -> None:
    with pytest.raises(LamellaError, match=r"TEN226.*500 steps"):
        compile_text(LOOP.replace("i8", "i64"), limits=Limits(max_steps=500)).f(
            0, 5, step, np.zeros((), np.int32)
        )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{ %z = constant 0 : index foreach (%i,%j)=(%z,%z),(%n,%n) {} }", "TEN226"),
        ("attributes{work_group_size=[1048576,1048576], subgroup_size=16} { parallel {} }", "TEN233"),
        (
            "{ %x = constant 1 : i8 %t = alloca : memref<i8x1048576x1048576,strided<0,0>,local>\n"
            "  axpby.n %x, %t, %x, %t }",
            "TEN232",
        ),
        ("{ parallel { %c = constant 1 : coopmatrix<i8x1048576x1048576,matrix_acc> } }", "TEN232"),
        (
            "{ %z = constant 0 : index parallel {\n"
            "  %c = cooperative_matrix_load.n.both_checked %a[%z,%z] : coopmatrix<i8x1048576x1048576,matrix_acc> } }",
            "TEN232",
        ),
    ],
)
def test_what_a_file_asks_for_is_bounded(text: str, code: str) -> None:
    with pytest.raises(LamellaError, match=code):
        compile_text(f"func @f(%n: index, %a: memref<i8x2x2>) {text}").f(
            2**40, np.zeros((2, 2), np.int8, order="F")
        )


def test_work_groups_are_bounded() -> None:
    with pytest.raises(LamellaError, match="TEN226"):
        compile_text("func @f() {}", limits=Limits(max_steps=1000), seed=1).f(groups=10**12)


def test_local_memory_is_bounded() -> None:
    text = "func @f() { %a = alloca : memref<f32x1099511627776,local> }"
    with pytest.raises(LamellaError, match=r"TEN231.*4398046511104 bytes"):
        compile_text(text).f()
    loop = """
func @f(%n: index) {
  %z = constant 0 : index
  for %i=%z,%n {
    %a = alloca : memref<f32x1024,local>
  }
}"""
    compile_text(loop, limits=Limits(max_total_bytes=5000)).f(10)


def test_a_trace_sees_each_statement() -> None:
    steps: list[ExecutedStatement] = []
    text = """
func @f(%a: memref<i32>) attributes{subgroup_size=2, work_group_size=[2,1]} {
  %x = constant 5 : i32
  parallel {
    %y = arith.add %x, %x : i32
  }
}"""
    compile_text(text, trace=steps.append).f(np.zeros((), np.int32), groups=2)
    seen = [(step.group, step.item, *(int(str(item)) for item in step.results)) for step in steps]
    assert seen == [
        (0, None, 5),
        (0, 0, 10),
        (0, 1, 10),
        (0, None),
        (1, None, 5),
        (1, 0, 10),
        (1, 1, 10),
        (1, None),
    ]
    assert {step.kernel for step in steps} == {"f"}


def test_a_wrong_program_is_not_compiled() -> None:
    with pytest.raises(LamellaError):
        compile_text("func @f(%a: i32) { %b = arith.add %a, %c : i32 }")
