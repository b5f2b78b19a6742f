"""SPMD regions: work-items, subgroups, barriers, scans, cooperative matrices, atomics, foreach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from tests.support.backend.interpreter.kernels import DTYPES, Array, compile_text, draw_array, widen

NUMBER = """
    %sg = builtin.subgroup_id : i32
    %lane = builtin.subgroup_local_id : i32
    %width = builtin.subgroup_size : i32
    %first = arith.mul %sg, %width : i32
    %item = arith.add %first, %lane : i32
    %i = cast %item : index
"""


def scanning(instruction: str, element: str, size: int, rows: int, columns: int) -> str:
    return f"""
func @f(%a: memref<{element}x?>, %b: memref<{element}x?>)
    attributes{{subgroup_size={size}, work_group_size=[{rows},{columns}]}} {{
  parallel {{{NUMBER}
    %x = load %a[%i] : {element}
    %y = {instruction} %x : {element}
    store %y, %b[%i]
  }}
}}"""


@given(
    st.sampled_from(["add", "max", "min"]),
    st.sampled_from(["reduce", "inclusive_scan", "exclusive_scan"]),
    st.sampled_from(["i8", "i32", "i64", "f32", "f64"]),
    st.sampled_from([(4, 4, 1), (4, 8, 2), (16, 16, 1), (8, 8, 3), (1, 2, 2)]),
    st.integers(0, 2**32),
)
def test_scans(function: str, form: str, element: str, sizes: tuple[int, int, int], seed: int) -> None:
    size, rows, columns = sizes
    dtype, count = DTYPES[element], rows * columns
    values = np.random.default_rng(seed).integers(-100, 100, count).astype(dtype)
    found = np.zeros(count, dtype)
    compile_text(scanning(f"subgroup_{function}.{form}", element, size, rows, columns), seed=seed).f(
        values, found
    )
    assert np.array_equal(
        found.reshape(-1, size), [judge(function, form, lane, dtype) for lane in values.reshape(-1, size)]
    )


def judge(function: str, form: str, values: Array, dtype: np.dtype[Any]) -> Array:
    """A scan, by the definition of each of its elements."""

    def whole(part: Array) -> Any:
        return part.sum(dtype=dtype) if function == "add" else part.max() if function == "max" else part.min()

    if form == "reduce":
        return np.full_like(values, whole(values))
    if form == "inclusive_scan":
        return np.array([whole(values[: k + 1]) for k in range(len(values))], dtype)
    real = dtype.kind == "f"
    least = -np.inf if real else np.iinfo(dtype).min
    most = np.inf if real else np.iinfo(dtype).max
    identity = {"add": 0, "max": least, "min": most}[function]
    return np.array([identity, *(whole(values[:k]) for k in range(1, len(values)))], dtype)


REDUCTION = f"""
func @f(%a: memref<f32x64>, %out: memref<f32>) attributes{{subgroup_size=16, work_group_size=[32,2]}} {{
  %t = alloca : memref<f32x64,local>
  parallel {{{NUMBER}
    %x = load %a[%i] : f32
    store %x, %t[%i]
    barrier.local
    %from = constant 1 : index
    %count = constant 64 : index
    %zero = constant 0 : index
    %two = constant 2 : index
    %to = constant 6 : index
    %half = constant 32 : index
    %last = for %k=%zero,%to init(%distance=%half) -> (index) {{
      %active = cmp.lt %i, %distance : bool
      if %active {{
        %j = arith.add %i, %distance : index
        %p = load %t[%i] : f32
        %q = load %t[%j] : f32
        %r = arith.add %p, %q : f32
        store %r, %t[%i]
      }}
      barrier.local
      %next = arith.div %distance, %two : index
      yield (%next)
    }}
    %leader = cmp.eq %i, %zero : bool
    if %leader {{
      %s = load %t[%zero] : f32
      store %s, %out[]
    }}
  }}
}}"""


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_tree_reduction_needs_its_barriers(seed: int | None) -> None:
    values, total = np.arange(64, dtype=np.float32), np.zeros((), np.float32)
    compile_text(REDUCTION, seed=seed).f(values, total)
    assert total == 64 * 63 / 2


def test_without_barriers_a_seed_shows_the_race() -> None:
    text = REDUCTION.replace("      barrier.local\n", "").replace("    barrier.local\n", "")
    totals = set()
    for seed in range(4):
        total = np.zeros((), np.float32)
        compile_text(text, seed=seed).f(np.arange(64, dtype=np.float32), total)
        totals.add(float(np.nan_to_num(total, nan=-1.0)))
    assert totals != {2016.0}


def test_a_barrier_that_some_never_reach() -> None:
    text = f"""
func @f() {{
  parallel {{{NUMBER}
    %three = constant 3 : i32
    %few = cmp.lt %lane, %three : bool
    if %few {{
      barrier
    }}
  }}
}}"""
    with pytest.raises(LamellaError, match=r"TEN227.*3 of 16 work-items"):
        compile_text(text).f()


def test_barriers_of_different_trips_do_not_meet() -> None:
    text = f"""
func @f() {{
  parallel {{{NUMBER}
    %zero = constant 0 : i32
    %two = constant 2 : i32
    for %k:i32=%zero,%two {{
      %even = arith.rem %lane, %two : i32
      %mine = cmp.eq %even, %k : bool
      if %mine {{
        %sum = subgroup_add.reduce %lane : i32
      }}
    }}
  }}
}}"""
    with pytest.raises(LamellaError, match=r"TEN228.*8 of 16 work-items.*subgroup_add.reduce"):
        compile_text(text).f()


def test_broadcast() -> None:
    text = scanning("arith.neg", "i32", 8, 16, 1).replace(
        "%y = arith.neg %x : i32", "%five = constant 5 : i32\n    %y = subgroup_broadcast %x, %five : i32"
    )
    found = np.zeros(16, np.int32)
    compile_text(text).f(np.arange(16, dtype=np.int32), found)
    assert found.tolist() == [5] * 8 + [13] * 8
    with pytest.raises(LamellaError, match=r"TEN230.*work-item 8.*size 8"):
        compile_text(text.replace("constant 5", "constant 8")).f(found, found.copy())


def test_builtins() -> None:
    text = f"""
func @f(%out: memref<i32x6x24x?>) attributes{{subgroup_size=4, work_group_size=[8,3]}} {{
  %g = builtin.group_id : index
  %gs = builtin.group_size : index
  %n = builtin.num_subgroups : i32
  %g32 = cast %g : i32
  %gs32 = cast %gs : i32
  %t = subview %out[0:6,0:24,%g] : memref<i32x6x24>
  parallel {{{NUMBER}
    {" ".join(f"%c{k} = constant {k} : index" for k in range(6))}
    store %sg, %t[%c0,%i]
    store %lane, %t[%c1,%i]
    store %width, %t[%c2,%i]
    store %n, %t[%c3,%i]
    store %g32, %t[%c4,%i]
    store %gs32, %t[%c5,%i]
  }}
}}"""
    out = np.zeros((6, 24, 2), np.int32, order="F")
    compile_text(text).f(out, groups=2)
    items = np.arange(24)
    for group in range(2):
        fixed = [np.full(24, value) for value in (4, 6, group, 2)]
        assert np.array_equal(out[:, :, group], np.stack([items // 4, items % 4, *fixed]))


@given(st.integers(0, 9), st.integers(0, 7), st.integers(0, 2**32))
def test_foreach_visits_each_tuple_once(rows: int, columns: int, seed: int) -> None:
    text = """
func @f(%c: memref<i32x?x?>, %m: i32, %n: i32) attributes{subgroup_size=4, work_group_size=[4,2]} {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  foreach (%i,%j):i32=(%zero,%zero),(%m,%n) {
    %x = cast %i : index
    %y = cast %j : index
    store.atomic_add %one, %c[%x,%y]
  }
}"""
    count = np.zeros((9, 7), np.int32, order="F")
    compile_text(text, seed=seed).f(count, rows, columns)
    expected = np.zeros((9, 7), np.int32)
    expected[:rows, :columns] = 1
    assert np.array_equal(count, expected)


def test_atomic_additions_of_all_work_items_and_groups() -> None:
    text = """
func @f(%a: memref<i64>, %b: memref<c32>) attributes{subgroup_size=8, work_group_size=[8,2]} {
  %one = constant 1 : i64
  %z = constant [1.0,2.0] : c32
  store.atomic_add %one, %a[]
  parallel {
    store.atomic_add %one, %a[]
    store.atomic_add %z, %b[]
  }
}"""
    whole, parts = np.zeros((), np.int64), np.zeros((), np.complex64)
    compile_text(text).f(whole, parts, groups=3)
    assert (int(whole), complex(parts)) == (3 * 32, 48 * (1 + 2j))


def matmul(a: str, c: str, d: str, transposed: str, checked: str) -> str:
    place = "%l,%i" if transposed == "t" else "%i,%l"
    return f"""
func @f(%A: memref<{a}x?x?>, %B: memref<{a}x?x?>, %C: memref<{d}x?x?>)
    attributes{{subgroup_size=4, work_group_size=[4,1]}} {{
  %m = size %C[0] : index
  %n = size %C[1] : index
  %k = size %B[0] : index
  %zero = constant 0 : index
  %M = constant 4 : index
  %N = constant 3 : index
  %K = constant 2 : index
  parallel {{
    for %i=%zero,%m,%M {{
      for %j=%zero,%n,%N {{
        %c0 = constant {"0" if c.startswith("i") else "0.0"} : coopmatrix<{c}x4x3,matrix_acc>
        %c = for %l=%zero,%k,%K init(%acc=%c0) -> (coopmatrix<{c}x4x3,matrix_acc>) {{
          %a = cooperative_matrix_load.{transposed}{checked} %A[{place}] : coopmatrix<{a}x4x2,matrix_a>
          %b = cooperative_matrix_load.n{checked} %B[%l,%j] : coopmatrix<{a}x2x3,matrix_b>
          %next = cooperative_matrix_mul_add %a, %b, %acc : coopmatrix<{c}x4x3,matrix_acc>
          yield (%next)
        }}
        %two = constant {"2" if c.startswith("i") else "2.0"} : {c}
        %scaled = cooperative_matrix_scale %two, %c : coopmatrix<{c}x4x3,matrix_acc>
        %sum = arith.add %scaled, %c : coopmatrix<{c}x4x3,matrix_acc>
        %d = cast %sum : coopmatrix<{d}x4x3,matrix_acc>
        cooperative_matrix_store{checked}.atomic_add %d, %C[%i,%j]
      }}
    }}
  }}
}}"""


@pytest.mark.parametrize("transposed", ["n", "t"])
@pytest.mark.parametrize(
    "types", [("f32", "f32", "f32"), ("f16", "f32", "f16"), ("i8", "i32", "i32"), ("f32", "f64", "f64")]
)
@pytest.mark.parametrize("sizes", [(8, 6, 4), (7, 5, 3), (1, 1, 1)])
def test_cooperative_product(
    transposed: str, types: tuple[str, str, str], sizes: tuple[int, int, int]
) -> None:
    m, n, k = sizes
    random = np.random.default_rng(5)
    a = draw_array(random, types[0], (k, m) if transposed == "t" else (m, k))
    b, c = draw_array(random, types[0], (k, n)), draw_array(random, types[2], (m, n))
    left = widen(a, types[0]).T if transposed == "t" else widen(a, types[0])
    expected = 3 * left @ widen(b, types[0]) + widen(c, types[2])
    checked = ".both_checked" if m % 4 or n % 3 or k % 2 else ""
    compile_text(matmul(*types, transposed, checked)).f(a, b, c)
    assert np.allclose(
        widen(c, types[2]),
        expected,
        rtol=1e-2 if "f16" in types else 1e-5,
        atol=1e-2 if "f16" in types else 1e-5,
    )


def test_unchecked_cooperative_access_stays_inside() -> None:
    arrays = [np.zeros((7, 5), np.float32, order="F") for _ in range(3)]
    with pytest.raises(LamellaError, match=r"TEN215.*index . of mode . leaves"):
        compile_text(matmul("f32", "f32", "f32", "n", "")).f(*arrays)


@pytest.mark.parametrize(("flag", "rows", "columns"), [("rows", 3, 4), ("cols", 4, 3), ("both", 3, 3)])
@pytest.mark.parametrize("transposed", ["n", "t"])
def test_checked_loads_give_zero(flag: str, rows: int, columns: int, transposed: str) -> None:
    text = f"""
func @f(%a: memref<f32x?x?>, %b: memref<f32x4x4>) {{
  %zero = constant 0 : index
  parallel {{
    %m = cooperative_matrix_load.{transposed}.{flag}_checked %a[%zero,%zero] : coopmatrix<f32x4x4,matrix_acc>
    cooperative_matrix_store %m, %b[%zero,%zero]
  }}
}}"""
    shape = (columns, rows) if transposed == "t" else (rows, columns)
    values = np.asfortranarray(np.arange(1, 1 + rows * columns, dtype=np.float32).reshape(shape))
    found = np.full((4, 4), 7, np.float32, order="F")
    compile_text(text).f(values, found)
    expected = np.zeros((4, 4))
    expected[:rows, :columns] = values.T if transposed == "t" else values
    assert np.array_equal(found, expected)


def test_cooperative_operands_are_uniform() -> None:
    text = f"""
func @f(%a: memref<f32x32x4>) {{
  %zero = constant 0 : index
  parallel {{{NUMBER}
    %m = cooperative_matrix_load.n %a[%i,%zero] : coopmatrix<f32x4x4,matrix_acc>
  }}
}}"""
    with pytest.raises(LamellaError, match=r"TEN229.*'%i' of cooperative_matrix_load"):
        compile_text(text).f(np.zeros((32, 4), np.float32, order="F"))
