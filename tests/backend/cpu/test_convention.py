"""The calling convention that stands before PTX is the one that the code reads."""

from __future__ import annotations

import re

import pytest

from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.convention import calling_convention
from lamella.base.source import Source
from lamella.kernels.target import find_target
from lamella.lang.tensor import parse

PARAMETERS = {
    "%p: i32": ["%p: i32 in the low 4 bytes"],
    "%p: bool": ["%p: bool in the low 1 bytes"],
    "%p: f64": ["%p: f64"],
    "%p: c32": ["%p: c32, real part first"],
    "%p: c64": ["the real part", "the imaginary part"],
    "%p: memref<f32x5x10>": ["first element"],
    "%p: memref<f32x?x?>": ["first element", "size 0", "size 1", "stride 1"],
    "%p: memref<f64x5x?,strided<1,5>>": ["first element", "size 1"],
    "%p: memref<i64x5x?x6>": ["first element", "size 1", "stride 2"],
    "%p: memref<i16x?x5x?,strided<1,20,100>>": ["first element", "size 0", "size 2"],
    "%p: group<memref<i32x5x?x6>x?>": ["addresses of its memrefs", "size 1", "stride 2", "how many"],
    "%p: group<memref<f32x?>x?, offset: ?>": ["addresses of its memrefs", "size 0", "how many", "the offset"],
    "%p: group<memref<f32x42>x42, offset: ?>": ["addresses of its memrefs", "the offset"],
}


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_slots_are_where_the_code_reads_them(parameter: str) -> None:
    text = f"func @f({parameter}, %last: i64) {{ %g = builtin.group_id.y : index }}"
    compiled = emit(parse(Source("k.tensor", text)).program, find_target("cuda"))
    slots = re.findall(r"^//   slot (\d+): (.*)$", calling_convention(compiled), re.MULTILINE)
    assert [int(number) for number, _ in slots] == list(range(len(slots)))
    *first, last, wide, high = (words for _, words in slots)
    assert (last, wide, high) == ("%last: i64", "%groups_x: index", "%groups_y: index")
    assert len(first) == len(PARAMETERS[parameter])
    assert all(part in words for part, words in zip(PARAMETERS[parameter], first, strict=True))
    places = [int(place) for place in re.findall(r"ptr %args, i64 (\d+)", compiled.text)]
    assert {place // 8 for place in places} == set(range(len(slots)))


def test_each_kernel_says_its_block_and_its_shared_memory() -> None:
    text = """
func @one() attributes{subgroup_size=32, work_group_size=[64,2]} {
  %t = alloca : memref<f32x8,local>
  %0 = constant 0 : index
  %v = constant 1.0 : f32
  parallel { store %v, %t[%0] }
}
func @two() { }"""
    compiled = emit(parse(Source("k.tensor", text)).program, find_target("cuda"))
    told = calling_convention(compiled)
    assert (
        "// kernel_0 is @one: block (64, 2, 1), grid (work-groups, 1, 1), 32 bytes of shared memory\n" in told
    )
    assert (
        "// kernel_1 is @two: block (32, 4, 1), grid (work-groups / 4, rounded up, 1, 1), 0 bytes of shared memory\n"
        in told
    )
    assert told.isascii()
