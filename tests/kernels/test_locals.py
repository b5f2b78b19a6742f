"""Local memory: what lives at the same time never shares a byte, and what does not shares them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from lamella.base.source import Source
from lamella.kernels.hazards import local_bytes, local_size, stack_offset
from lamella.kernels.passes import place_locals, stop_lifetimes
from lamella.kernels.rewrite import change_functions, make_names_unique, used_values, walk
from lamella.kernels.target import Target, find_target
from lamella.lang.tensor import check, parse, write
from lamella.lang.tensor import nodes as n
from tests.support.strategies.tensor_kernels import Kernel, kernels

TARGET = find_target("cpu-avx512")


def read(text: str) -> n.Program:
    return change_functions(parse(Source("kernels.tensor", text)).program, make_names_unique)


def place(program: n.Program, target: Target = TARGET) -> n.Function:
    (function,) = place_locals(stop_lifetimes(program, target), target).functions
    return function


def lives(function: n.Function) -> dict[str, tuple[int, int]]:
    """From which statement to which each alloca is used, a loop around a use and behind the alloca counted whole."""
    order = list(walk(function.body))
    spans = {id(item): (k, k + sum(1 for _ in walk(n.Region((item,)))) - 1) for k, item in enumerate(order)}
    roots: dict[str, str] = {}
    found: dict[str, tuple[int, int]] = {}
    for number, statement in enumerate(order):
        item = statement.instruction
        if isinstance(item, n.Alloca):
            roots[statement.results[0].name] = statement.results[0].name
            found[statement.results[0].name] = (number, number)
        elif isinstance(item, n.LifetimeStop):
            continue
        for value in used_values(item):
            root = roots.get(value.name)
            if root is None:
                continue
            if isinstance(item, n.Subview | n.Expand | n.Fuse):
                roots[statement.results[0].name] = root
            found[root] = (found[root][0], max(number, found[root][1]))
    loops = [spans[id(item)] for item in order if isinstance(item.instruction, n.For)]
    return {name: _widen(life, loops) for name, life in found.items()}


def _widen(life: tuple[int, int], loops: list[tuple[int, int]]) -> tuple[int, int]:
    """A use in a loop that began behind the alloca lasts until the loop's end."""
    ends = [end for begin, end in loops if life[0] < begin <= life[1] <= end]
    return life[0], max([life[1], *ends])


@given(kernels())
def test_lives_that_overlap_share_no_byte(kernel: Kernel) -> None:
    function = place(read(kernel.text))
    places = {
        item.results[0].name: (stack_offset(item.instruction), local_size(item.instruction.type))
        for item in walk(function.body)
        if isinstance(item.instruction, n.Alloca)
    }
    found = lives(function)
    for one, (start, size) in places.items():
        assert start is not None
        assert start % TARGET.default_alignment == 0
        assert start + size <= local_bytes(function)
        for other, (begin, count) in places.items():
            assert begin is not None
            meet = found[one][0] <= found[other][1] and found[other][0] <= found[one][1]
            if one != other and meet:
                assert start + size <= begin or begin + count <= start


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 4)), max_size=30))
def test_no_more_memory_than_all_of_it(pairs: list[tuple[int, int]]) -> None:
    """Allocas that are used some statements later take no more bytes than without any reuse."""
    lines: list[str] = []
    uses: dict[int, list[int]] = {}
    for number, (size, later) in enumerate(pairs):
        lines.append(f"%t{number} = alloca : memref<i8x{size},local>")
        uses.setdefault(number + later, []).append(number)
        lines += [f"%u{k} = subview %t{k}[0:1] : memref<i8x1,local>" for k in uses.get(number, [])]
    function = place(read("func @f() {\n" + "\n".join(lines) + "\n}\n"))
    assert local_bytes(function) <= sum(-(-size // 128) * 128 for size, _ in pairs)
    longest = max((later for _, later in pairs), default=0)
    assert local_bytes(function) <= (longest + 1) * 512 + 512


def test_lifetimes_end_behind_the_last_use_through_views() -> None:
    text = """func @f(%c: bool, %A: memref<f32x4>) {
  %t = alloca : memref<f32x4x4,local>
  %v = subview %t[0:4,1] : memref<f32x4,local>
  %a = constant 1.0 : f32
  if %c {
    %u = alloca : memref<f32x4,local>
    axpby.n %a, %v, %a, %u
  }
  axpby.n %a, %A, %a, %A
}
"""
    (function,) = stop_lifetimes(read(text), TARGET).functions
    words = [type(item.instruction).__name__ for item in walk(function.body)]
    assert words == [
        "Alloca",
        "Subview",
        "Constant",
        "If",
        "Alloca",
        "Blas",
        "LifetimeStop",
        "LifetimeStop",
        "Blas",
    ]
    assert stop_lifetimes(n.Program((function,)), TARGET).functions == (function,)


def test_branches_share_memory() -> None:
    text = """func @f(%c: bool) {
  if %c {
    %t = alloca : memref<f32x100,local>
  } else {
    %u = alloca : memref<f32x50,local>
  }
}
"""
    assert local_bytes(place(read(text))) == 400
    (function,) = place_locals(read(text), TARGET).functions
    assert local_bytes(function) == 400, "the end of a region ends what it allocates"


def test_alignment_is_kept_and_the_place_is_written() -> None:
    text = "func @f() {\n%t = alloca : memref<i8x3,local>\n%u = alloca {alignment=64} : memref<i8x3,local>\n"
    program = n.Program((place(read(text + "%v = subview %t[0:1] : memref<i8x1,local>\n}\n")),))
    assert 'alloca {alignment=64, "stack_offset"=128} : memref<i8x3,local>' in write(program)
    assert [item.code for item in check(program)] == []
    assert read(write(program)) == program


def test_too_much_local_memory_is_a_finding() -> None:
    program = read("func @f() {\n%t = alloca : memref<f64x1048576,local>\n}\n")
    with pytest.raises(
        LamellaError, match="8388608 bytes of local memory, the target cpu-avx512 has 4194304"
    ):
        place(program)


def test_many_allocas_take_little_time() -> None:
    lines = [f"%t{k} = alloca : memref<i8x1,local>" for k in range(5_000)]
    lines += [f"%u{k} = subview %t{k}[0:1] : memref<i8x1,local>" for k in range(5_000)]
    function = place(read("func @f() {\n" + "\n".join(lines) + "\n}\n"))
    assert local_bytes(function) == 4_999 * 128 + 1
