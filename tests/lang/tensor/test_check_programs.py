"""What the specification shows, and texts that nobody would write: the first have no errors, the others no crash."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import ERROR
from lamella.base.source import Source
from lamella.lang.tensor import check, parse

HERE = Path(__file__).parent
SAMPLES = {
    "sample": """func @fused_kernel(%alpha: f32,
                         %A: group<memref<f32x16x8>x?>,
                         %B: memref<f32x8x8>,
                         %C: memref<f32x8x16>,
                         %D: memref<f32x16x16x?>) {
      %0 = group_id : index
      %1 = load %A[%0]        : memref<f32x16x8>
      %2 = subview %D[:,:,%0] : memref<f32x16x16>
      %tmp0 = alloca : memref<f32x16x8>
      %zero = constant 0.0 : f32
      %one = constant 1.0 : f32
      gemm.n.t %one, %1, %B, %zero, %tmp0
      gemm.n.n %alpha, %tmp0, %C, %one, %2
    }""",
    "fibonacci": """func @fibonacci() {
      %from = constant 2 -> i32
      %to = constant 6 -> i32
      %f0 = constant 0 -> i64
      %f1 = constant 1 -> i64
      %fn_1, %fn = for %n:i32=%from,%to init(%fn_2=%f0,%fn_1=%f1) -> (i64,i64) {
          %fn = arith.add %fn_2, %fn_1 : i64
          yield (%fn_1, %fn)
      }
      %next = arith.add %fn_1, %fn : i64
    }""",
    "if": """func @smaller(%0: i32) {
      %1 = cmp.lt %0, 16 : i32
      %x = if %1 -> (i32) {
          yield (%0)
      } else {
          %c16 = constant 16 : i32
          yield (%c16)
      }
    }""",
    "siblings": """func @siblings(%c: bool, %a: f32) {
      if %c { %x = arith.neg %a : f32 } else { %x = cast %a : f64 }
      %x = constant true : bool
    }""",
    "matrices": """func @matrices(%A: memref<f16x64x64>, %B: memref<f16x64x64>, %C: memref<f32x64x64>, %s: f32) {
      parallel {
        %i = constant 0 : index
        %a = cooperative_matrix_load.n.rows_checked %A[%i,%i] : coopmatrix<f16x16x8,matrix_a>
        %b = cooperative_matrix_load.t %B[%i,%i] : coopmatrix<f16x8x16,matrix_b>
        %c = constant 0.0 : coopmatrix<f32x16x16,matrix_acc>
        %d = cooperative_matrix_mul_add %a, %b, %c : coopmatrix<f32x16x16,matrix_acc>
        %e = cooperative_matrix_scale %s, %d : coopmatrix<f32x16x16,matrix_acc>
        %f = arith.mul %e, %c : coopmatrix<f32x16x16,matrix_acc>
        %h = cooperative_matrix_mul_add %a, %b, %f : coopmatrix<f16x16x16,matrix_acc>
        cooperative_matrix_store.both_checked.atomic_add %f, %C[%i,%i]
      }
    }""",
    "carried without names": """func @loop(%n: index, %a: f32, %c: bool) {
      for %i=%n,%n init(%x=%a) -> (f32) { yield (%x) } {unroll=true}
      if %c { yield () }
    }""",
}
VIEWS = [
    ("subview %0[4:8,8:4]", "f32x8x4,strided<1,32>", "f32x32x16"),
    ("subview %0[4:8,8:4]", "f32x8x4,strided<1,?>", "f32x32x16"),
    ("subview %0[2:4, %1]", "f32x4", "f32x16x8"),
    ("subview %0[2:4, %1:0]", "f32x4", "f32x16x8"),
    ("subview %0[2:4, %1:1]", "f64x4x1,strided<1,16>", "f64x16x8"),
    ("subview %0[%1:4]", "f32x4", "f32x16"),
    ("subview %0[%2:%2]", "f32x?", "f32x16"),
    ("subview %0[2:4, %2:%2, 6:7]", "f32x4x?x7,strided<1,16,672>", "f32x16x42x13"),
    ("subview %0[2:4, %2:%2, 6:7]", "f32x4x?x7,strided<1,?,?>", "f32x16x42x13,strided<1,?,?>"),
    ("expand %0[1 -> 2x8]", "f32x32x2x8x8", "f32x32x16x8"),
    ("expand %0[1 -> 2x2x2x2]", "f32x32x2x2x2x2x8", "f32x32x16x8"),
    ("expand %0[1 -> %1 x 2]", "f32x32x?x2", "f32x32x?"),
    ("expand %0[1 -> 2 x %1]", "f32x32x2x?", "f32x32x?"),
    ("expand %0[1 -> %1 x 2]", "f32x32x?x2", "f32x32x16"),
    ("expand %0[1 -> %1 x %2 x 2]", "f32x32x?x?x2", "f32x32x16"),
    ("expand %0[1 -> %2 x 2 x %1]", "f32x32x?x2x?", "f32x32x16"),
    ("expand %0[1 -> %1 x %2]", "f32x32x?x?", "f32x32x16"),
    ("expand %0[0->4 x 8]", "f32x4x8x7,strided<2,8,64>", "f32x32x7,strided<2,64>"),
    ("expand %0[0->4 x 8]", "f32x4x8x7,strided<2,?,?>", "f32x32x7,strided<2,64>"),
    ("expand %0[0->%1 x 4]", "f32x?x4x7,strided<2,?,?>", "f32x?x7,strided<2,?>"),
    ("expand %0[0->4 x %1]", "f32x4x?x7,strided<2,8,?>", "f32x?x7,strided<2,?>"),
    ("expand %0[0->4 x %1]", "f32x4x?x7,strided<2,?,?>", "f32x?x7,strided<2,?>"),
    ("fuse %0[1,3]", "f32x32x512x42", "f32x32x16x8x4x42"),
    ("fuse %0[1,3]", "f32x32x?x42,strided<1,32,?>", "f32x32x16x?x4x42"),
    ("fuse %0[1,2]", "f32x32x32x2,strided<1,48,1536>", "f32x32x16x2x2,strided<1,48,768,1536>"),
    ("fuse %0[1,2]", "f32x32x32x2,strided<1,?,?>", "f32x32x16x2x2,strided<1,48,768,1536>"),
    ("fuse %0[0,1]", "f32x?x32,strided<1,?>", "f32x8x?x32,strided<1,?,?>"),
    ("fuse %0[0,1]", "f32x128", "f32x8x16,strided<1,?>"),
]


def errors_of(text: str) -> list[str]:
    """The errors of a text, as they are shown."""
    program, found = parse(Source("k.tensor", text))
    return [str(item) for item in [*found, *check(program)] if item.severity == ERROR]


@pytest.mark.parametrize("name", SAMPLES)
def test_what_the_specification_shows_is_right(name: str) -> None:
    assert errors_of(SAMPLES[name]) == []


@pytest.mark.parametrize(("view", "result", "operand"), VIEWS)
def test_views_that_the_specification_shows_are_right(view: str, result: str, operand: str) -> None:
    text = f"func @k(%0: memref<{operand}>, %1: index, %2: index) {{ %3 = {view} : memref<{result}> }}"
    assert errors_of(text) == []


@pytest.mark.parametrize("path", sorted((HERE / "good").glob("*.tensor")), ids=lambda path: path.stem)
def test_right_programs_have_no_errors(path: Path) -> None:
    assert errors_of(path.read_text(encoding="utf-8")) == []


TOKEN = re.compile(r"[%@]?\w+(?:\.\w+)*|->|\S")
SEEDS = [
    path.read_text(encoding="utf-8", errors="replace") for path in sorted((HERE / "bad").glob("*.tensor"))
]
SOUP = sorted({token for text in [*SEEDS, *SAMPLES.values()] for token in TOKEN.findall(text)})


@given(st.sampled_from([*SEEDS, *SAMPLES.values()]), st.data())
def test_whatever_can_be_read_can_be_checked(text: str, data: st.DataObject) -> None:
    tokens = TOKEN.findall(re.sub(r";.*", "", text))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(tokens)))
        dropped = data.draw(st.integers(0, 1))
        tokens[place : place + dropped] = data.draw(st.lists(st.sampled_from(SOUP), max_size=2))
    program, _ = parse(Source("k.tensor", " ".join(tokens)))
    found = check(program)
    assert all(str(item) for item in found)
    assert [item.span.start for item in found] == sorted(item.span.start for item in found)


def test_sizes_of_any_length_can_be_refused() -> None:
    size = 2**63 - 1
    modes = "x".join([str(size)] * 24)
    sizes = " x ".join([str(size)] * 2000)
    assert "2^63" in errors_of(f"func @k(%A: memref<f32x{modes}>) {{ }}")[0]
    assert errors_of(f"func @k(%A: memref<f32x4>) {{ %B = expand %A[0->{sizes}] : memref<f32x{modes}> }}")
    assert errors_of(f"func @k(%A: memref<f32x4>) {{ %B = expand %A[0->{sizes}] : memref<f32x4> }}")


def test_ten_thousand_mistakes_are_all_told() -> None:
    lines = "\n".join(f"%a{number} = arith.neg %b{number} : f32" for number in range(10_000))
    program, _ = parse(Source("k.tensor", f"func @k() {{ {lines} }}"))
    assert len(check(program)) == 10_000
