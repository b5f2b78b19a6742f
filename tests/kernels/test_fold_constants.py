"""Constants that are computed before the run are those that the run would give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.interpreter import compile_program
from lamella.backend.interpreter.arithmetic import (
    compare,
    compute_binary,
    compute_unary,
    convert,
    make_number,
)
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.source import Source
from lamella.kernels.fold import fold_arith, fold_cast, fold_compare
from lamella.kernels.passes.fold_constants import fold_constants
from lamella.kernels.rewrite import change_functions, make_names_unique, walk
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, parse
from lamella.lang.tensor import nodes as n
from lamella.lang.tensor.words import BINARY, COMPARISONS

INTEGERS = ("i8", "i16", "i32", "i64", "index")
TARGET = find_target("cpu-avx512")


@given(st.sampled_from(INTEGERS), st.sampled_from(BINARY), st.data())
def test_integer_arithmetic(element: str, function: str, data: st.DataObject) -> None:
    bits = np.iinfo(np.int64 if element == "index" else element.replace("i", "int")).bits
    numbers = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) | st.integers(-9, 9)
    left, right = data.draw(numbers), data.draw(numbers)
    found = fold_arith(function, [left, right], n.Scalar(element))
    with np.errstate(all="ignore"):
        if found is None:
            divides = function in ("div", "rem") and right == 0
            assert divides or (function in ("shl", "shr") and not 0 <= right < bits)
        elif not (function == "div" and left == -(2 ** (bits - 1)) and right == -1):
            wanted = compute_binary(function, make_number(left, element), make_number(right, element))
            assert found == int(wanted)
    for unary in ("neg", "not"):
        wanted = compute_unary(unary, make_number(left, element))
        assert fold_arith(unary, [left], n.Scalar(element)) == int(wanted)


FLOATS = st.floats(width=16) | st.sampled_from([0.0, 1.0, -1.5, 0.1, 1e30, 65504.0, 1e-8])


@given(st.sampled_from(COMPARISONS), st.sampled_from(["bf16", "f16", "f32", "f64"]), FLOATS, FLOATS)
def test_comparisons(function: str, element: str, left: float, right: float) -> None:
    found = fold_compare(function, left, right, n.Scalar(element))
    if found is not None:
        wanted = compare(function, make_number(left, element), make_number(right, element))
        assert found == bool(wanted)
    elif np.isfinite(left) and np.isfinite(right):
        with np.errstate(all="ignore"):
            exact = [float(make_number(item, element)) == item for item in (left, right)]
        assert not all(exact)


ALL = (*INTEGERS, "bf16", "f16", "f32", "f64", "c32", "c64")


@given(st.sampled_from(ALL), st.sampled_from(ALL), st.integers(-300, 300), FLOATS)
def test_casts(source: str, target: str, whole: int, real: float) -> None:
    value = whole if source in INTEGERS else (real, 0.5) if source.startswith("c") else real
    found = fold_cast(value, n.Scalar(source), n.Scalar(target))
    if found is not None:
        with np.errstate(all="ignore"):
            wanted = convert(make_number(value, source), target)
        assert make_number(found, target).tobytes() == wanted.tobytes()


def folded(text: str) -> list[n.Statement]:
    program = change_functions(parse(Source("kernels.tensor", text)).program, make_names_unique)
    found = fold_constants(program, TARGET)
    assert not errors(check(found)), check(found)
    return list(walk(found.functions[0].body))


def words(text: str) -> list[str]:
    return [type(item.instruction).__name__ for item in folded(text)]


def test_branches_that_are_never_taken_go() -> None:
    text = """func @f(%A: memref<i32>) {
  %a = constant 3 : i32
  %b = constant 4 : i32
  %c = cmp.lt %b, %a : bool
  %x = if %c -> (i32) {
    yield (%a)
  } else {
    %d = arith.add %a, %b : i32
    yield (%d)
  }
  %y = for %i:i32=%b,%a init(%p=%x) -> (i32) {
    %q = arith.mul %p, %p : i32
    yield (%q)
  }
  store %y, %A[]
}
"""
    assert words(text) == ["Constant", "Store"]
    found = np.zeros((), np.int32)
    compile_program(parse(Source("a.tensor", text)).program).f(found)
    (constant, _) = folded(text)
    assert isinstance(constant.instruction, n.Constant)
    assert constant.instruction.value == found == 7


def test_what_nobody_uses_goes() -> None:
    text = """func @f(%A: memref<f32x4>, %x: f32) {
  %0 = constant 0 : index
  %4 = constant 4 : index
  %t = alloca : memref<f32x4,local>
  %l = load %A[%0] : f32
  %y = for %i:index=%0,%4 init(%p=%l) -> (f32) {
    %q = arith.mul %p, %x : f32
    yield (%q)
  }
  parallel {
    %z = load %A[%0] : f32
  }
}
"""
    assert words(text) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("arith.mul %x, %one : f32", ["Store"]),
        ("arith.mul %one, %x : f32", ["Store"]),
        ("arith.add %x, %zero : f32", ["Constant", "Arith", "Store"]),
        ("arith.mul %x, %zero : f32", ["Constant", "Arith", "Store"]),
        ("arith.select %true, %x, %zero : f32", ["Store"]),
    ],
)
def test_floating_point_keeps_its_meaning(line: str, expected: list[str]) -> None:
    text = f"""func @f(%A: memref<f32>, %x: f32) {{
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  %true = constant true : bool
  %y = {line}
  store %y, %A[]
}}
"""
    assert words(text) == expected


def test_sizes_of_work_groups_are_known() -> None:
    text = """func @f(%A: memref<i32x64>) attributes{subgroup_size=16, work_group_size=[16,1]} {
  %zero = constant 0 : index
  parallel {
    %s = builtin.subgroup_size : i32
    %l = builtin.subgroup_local_id : i32
    %g = builtin.subgroup_id : i32
    %i = cast %g : index
    %c = cmp.lt %l, %s : bool
    %d = cmp.eq %i, %zero : bool
    if %c {
      if %d {
        %j = cast %l : index
        store %s, %A[%j]
      }
    }
  }
}
"""
    assert words(text) == ["Parallel", "Constant", "Builtin", "Cast", "Store"]


def test_division_by_zero_is_left_to_the_run() -> None:
    text = (
        "func @f(%A: memref<i32>) {\n%a = constant 0 : i32\n%b = arith.div %a, %a : i32\nstore %b, %A[]\n}\n"
    )
    assert words(text) == ["Constant", "Arith", "Store"]
    with pytest.raises(LamellaError, match="by zero"):
        compile_program(parse(Source("a.tensor", text)).program).f(np.zeros((), np.int32))


def test_constants_too_large_for_their_type_keep_their_low_bits() -> None:
    text = "func @f(%A: memref<i8>) {\n%a = constant 300 : i8\n%b = constant 2 : i8\n"
    text += "%c = arith.div %a, %b : i8\nstore %c, %A[]\n}\n"
    (constant, _) = folded(text)
    assert constant.instruction == n.Constant(22, n.Scalar("i8"))
    found = np.zeros((), np.int8)
    compile_program(parse(Source("a.tensor", text)).program).f(found)
    assert found == 22
