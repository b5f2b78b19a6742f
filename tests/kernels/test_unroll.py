"""Unrolled loops: the trips, what they carry, and how much text may come of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.interpreter import compile_program
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.kernels.passes.unroll import unroll
from lamella.kernels.rewrite import change_functions, make_names_unique, walk
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, parse
from lamella.lang.tensor import nodes as n

TARGET = find_target("cpu-avx512")


def unrolled(text: str) -> n.Program:
    program = change_functions(parse(Source("kernels.tensor", text)).program, make_names_unique)
    found = unroll(program, TARGET)
    assert not errors(check(found)), check(found)
    return found


def loops(program: n.Program) -> int:
    return sum(isinstance(item.instruction, n.For) for item in walk(program.functions[0].body))


def write_loop(kind: str, bounds: tuple[int, int, int], form: str, dynamic: str = "") -> str:
    """A loop that adds its trips up in two ways and notes how many there were."""
    begin, end, step = bounds
    first, last = "%m0" if "begin" in dynamic else "%b", "%n" if dynamic else "%e"
    return f"""func @f(%A: memref<i64x3>, %m0: {kind}, %n: {kind}) {{
  %b = constant {begin} : {kind}
  %e = constant {end} : {kind}
  %s = constant {step} : {kind}
  %zero = constant 0 : i64
  %one = constant 1 : i64
  %three = constant 3 : i64
  %x,%y,%z = for %i:{kind}={first},{last},%s init(%p=%zero,%q=%one,%r=%zero) -> (i64,i64,i64) {{
    %j = cast %i : i64
    %k = arith.add %p, %j : i64
    %l = arith.mul %q, %three : i64
    %m = arith.add %l, %j : i64
    %o = arith.add %r, %one : i64
    yield (%k, %m, %o)
  }}{form}
  %0 = constant 0 : index
  %1 = constant 1 : index
  %2 = constant 2 : index
  store %x, %A[%0]
  store %y, %A[%1]
  store %z, %A[%2]
}}
"""


def expected(trips: range) -> list[int]:
    total, mixed = 0, 1
    for trip in trips:
        total, mixed = total + trip, (mixed * 3 + trip + 2**63) % 2**64 - 2**63
    return [total, mixed, len(trips)]


FORMS = ("", " {unroll=true}", " {unroll=false}", " {unroll=1}", " {unroll=2}", " {unroll=5}", " {unroll=64}")


@given(
    st.sampled_from(["i8", "i16", "i32", "i64", "index"]),
    st.integers(-5, 20),
    st.integers(-5, 100),
    st.integers(1, 9),
    st.sampled_from(FORMS),
    st.sampled_from(["", "end", "begin and end"]),
)
def test_all_trips_are_made_once(kind: str, begin: int, end: int, step: int, form: str, dynamic: str) -> None:
    program = unrolled(write_loop(kind, (begin, end, step), form, dynamic))
    found = np.zeros(3, np.int64)
    compile_program(program).f(found, begin, end)
    assert found.tolist() == expected(range(begin, end, step))
    trips = len(range(begin, end, step))
    if form == " {unroll=true}" and not dynamic:
        assert loops(program) == 0
    if form == " {unroll=2}" and (dynamic or trips > 2):
        assert loops(program) == 2
    if form == " {unroll=true}" and dynamic:
        assert loops(program) == 2


@pytest.mark.parametrize("form", [" {unroll=true}", " {unroll=1000000000}"])
def test_long_loops_stay_loops(form: str) -> None:
    program = unrolled(write_loop("index", (0, 1_000_000_000, 1), form))
    assert loops(program) == 1
    assert sum(1 for _ in walk(program.functions[0].body)) < 100


def test_nested_loops_do_not_explode() -> None:
    head = "func @f() {\n%b = constant 0 : index\n%e = constant 100 : index\n"
    text = head + "for %i:index=%b,%e {\n" * 1
    for depth in range(6):
        text += f"for %i{depth}:index=%b,%e {{\n"
    text += "%c = constant 1 : index\n" + "} {unroll=true}\n" * 7 + "}\n"
    program = unrolled(text)
    assert sum(1 for _ in walk(program.functions[0].body)) <= 5 * TARGET.largest_unrolled


def test_a_variable_at_the_end_of_its_type() -> None:
    program = unrolled(write_loop("i8", (120, 126, 1), " {unroll=2}"))
    found = np.zeros(3, np.int64)
    compile_program(program).f(found, 0, 0)
    assert found.tolist() == expected(range(120, 126))


@pytest.mark.parametrize("form", [" {unroll=2}", " {unroll=true}"])
@pytest.mark.parametrize("kind", ["i8", "i16"])
def test_a_distance_too_long_for_its_type(kind: str, form: str) -> None:
    bits = 8 if kind == "i8" else 16
    least, most, step = -(1 << (bits - 1)), (1 << (bits - 1)) - 1, 1 << (bits - 4)
    program = unrolled(write_loop(kind, (0, 0, step), form, "begin and end"))
    found = np.zeros(3, np.int64)
    compile_program(program).f(found, least, most - step)
    assert found.tolist() == expected(range(least, most - step, step))


def test_the_newer_spelling_is_obeyed() -> None:
    text = write_loop("index", (0, 9, 2), " attributes{unroll=true}")
    assert loops(unrolled(text)) == 0
