"""`foreach` as loops over work-items: each tuple of indices comes once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.interpreter import compile_program
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.kernels.passes.lower_foreach import lower_foreach
from lamella.kernels.rewrite import change_functions, make_names_unique, walk
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, parse
from lamella.lang.tensor import nodes as n

TARGET = find_target("cpu-avx512")
SHIFT = 3
SIDE = 44


def lowered(text: str) -> n.Program:
    program = change_functions(parse(Source("kernels.tensor", text)).program, make_names_unique)
    found = lower_foreach(program, TARGET)
    assert not errors(check(found)), check(found)
    return found


def write_kernel(kind: str, ranges: list[tuple[int, int]], sizes: tuple[int, int, int], dynamic: bool) -> str:
    """A kernel that counts how often each tuple comes."""
    names = [f"%i{k}" for k in range(len(ranges))]
    begins = [f"%a{k}" if dynamic else f"%b{k}" for k in range(len(ranges))]
    ends = [f"%z{k}" if dynamic else f"%e{k}" for k in range(len(ranges))]
    shape = "".join(f"x{SIDE}" for _ in ranges)
    given = ", ".join(f"%a{k}: {kind}, %z{k}: {kind}" for k in range(len(ranges)))
    lines = [f"%b{k} = constant {first} : {kind}" for k, (first, _) in enumerate(ranges)]
    lines += [f"%e{k} = constant {last} : {kind}" for k, (_, last) in enumerate(ranges)]
    lines += [f"%s = constant {SHIFT} : {kind}", "%one = constant 1 : i32"]
    lines.append(f"foreach ({','.join(names)}):{kind}=({','.join(begins)}),({','.join(ends)}) {{")
    lines += [f"%m{k} = arith.add {name}, %s : {kind}" for k, name in enumerate(names)]
    lines += [f"%n{k} = cast %m{k} : index" for k in range(len(ranges))]
    places = ",".join(f"%n{k}" for k in range(len(ranges)))
    lines += [
        f"%x = load %A[{places}] : i32",
        "%y = arith.add %x, %one : i32",
        f"store %y, %A[{places}]",
        "}",
    ]
    head = f"subgroup_size={sizes[0]}, work_group_size=[{sizes[1]},{sizes[2]}]"
    return f"func @f(%A: memref<i32{shape}>, {given}) attributes{{{head}}} {{\n" + "\n".join(lines) + "\n}\n"


@given(
    st.sampled_from(["i8", "i16", "i32", "i64", "index"]),
    st.lists(st.tuples(st.integers(-SHIFT, 4), st.integers(-SHIFT, 40)), min_size=1, max_size=3),
    st.sampled_from([(1, 1, 1), (4, 4, 1), (4, 8, 2), (16, 16, 1), (32, 64, 1)]),
    st.booleans(),
)
def test_each_tuple_comes_once(
    kind: str, ranges: list[tuple[int, int]], sizes: tuple[int, int, int], dynamic: bool
) -> None:
    if len(ranges) > 2:
        ranges = [(first, min(last, first + 5)) for first, last in ranges]
    program = lowered(write_kernel(kind, ranges, sizes, dynamic))
    found = np.zeros((SIDE,) * len(ranges), np.int32, order="F")
    compile_program(program, seed=3).f(found, *(bound for pair in ranges for bound in pair))
    expected = np.zeros_like(found)
    expected[tuple(slice(a + SHIFT, max(a, b) + SHIFT) for a, b in ranges)] = 1
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", ["i8", "i16"])
@pytest.mark.parametrize("sizes", [(1, 200, 1), (16, 16, 1), (32, 256, 1), (64, 128, 4)])
def test_ranges_as_long_as_their_type(kind: str, sizes: tuple[int, int, int]) -> None:
    least, most = -(1 << 7), (1 << 7) - 1
    head = f"subgroup_size={sizes[0]}, work_group_size=[{sizes[1]},{sizes[2]}]"
    text = f"""func @f(%A: memref<i32x256>) attributes{{{head}}} {{
  %a = constant {least} : {kind}
  %z = constant {most} : {kind}
  %shift = constant {-least} : index
  %one = constant 1 : i32
  foreach (%i):{kind}=(%a),(%z) {{
    %j = cast %i : index
    %k = arith.add %j, %shift : index
    store.atomic_add %one, %A[%k]
  }}
}}"""
    found = np.zeros(256, np.int32)
    compile_program(lowered(text)).f(found)
    assert found.tolist() == [1] * 255 + [0]


def instructions(text: str) -> list[n.Instruction]:
    return [item.instruction for item in walk(lowered(text).functions[0].body)]


@pytest.mark.parametrize("count", [16, 32])
def test_whole_subgroups_test_nothing(count: int) -> None:
    found = instructions(write_kernel("index", [(0, count)], (16, 16, 1), False))
    assert not [item for item in found if isinstance(item, n.If | n.Compare)]
    assert sum(isinstance(item, n.For) for item in found) == (count > 16)


def test_nothing_is_written_for_no_indices() -> None:
    found = instructions(write_kernel("index", [(0, 0), (0, 5)], (16, 16, 1), False))
    assert not [item for item in found if isinstance(item, n.Parallel)]


def test_the_first_variable_is_the_innermost_loop() -> None:
    found = instructions(write_kernel("index", [(0, 40), (0, 5), (0, 3)], (16, 16, 1), False))
    ends = [item.end.name for item in found if isinstance(item, n.For)]
    assert ends[:2] == ["e2", "e1"]


def test_a_variable_with_one_value_is_not_that_of_the_lanes() -> None:
    found = instructions(write_kernel("index", [(0, 1), (0, 32)], (16, 16, 1), False))
    assert [item.end.name for item in found if isinstance(item, n.For)][:1] == ["e0"]
    assert not [item for item in found if isinstance(item, n.If)]
