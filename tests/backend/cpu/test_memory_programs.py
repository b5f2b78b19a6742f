"""Whole kernels that are about memory and subgroups: machine code and the interpreter leave the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu.compile import load_kernels
from lamella.backend.cpu.emission import emit_program
from lamella.backend.interpreter import compile_program
from lamella.backend.interpreter.arithmetic import BF16
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.kernels.passes import place_locals
from lamella.kernels.target import find_target
from lamella.lang.tensor import parse
from lamella.lang.tensor.check.kinds import ATOMIC
from lamella.lang.tensor.words import FORMS, SCALARS
from tests.support.backend.cpu.emitting import draw_values

SIZES = st.sampled_from([(1, 1), (1, 3), (4, 1), (8, 2), (16, 1), (32, 1)])


def _agree(text: str, arrays: list[object], groups: int = 1) -> None:
    """Run a kernel both ways on copies of its arguments, which are all the same afterwards."""
    parsed = parse(Source("kernels.tensor", text))
    assert not [item for item in parsed.findings if item.severity == "error"], parsed.findings
    target = find_target("cpu-avx512")
    lowered = place_locals(parsed.program, target)
    fast = load_kernels(emit_program(parsed.program, lowered, target), threads=1)
    given_, judged = _copied(arrays), _copied(arrays)
    fast.call("k", given_, groups)
    compile_program(parsed.program).call("k", judged, groups)
    for one, other in zip(given_, judged, strict=True):
        _compare(one, other)


def _copied(arrays: list[object]) -> list[object]:
    return [
        _copied(item) if isinstance(item, list) else item.copy("F") if isinstance(item, np.ndarray) else item
        for item in arrays
    ]


def _compare(one: object, other: object) -> None:
    if isinstance(one, list) and isinstance(other, list):
        for pair in zip(one, other, strict=True):
            _compare(*pair)
    elif isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        # NumPy does not know NaN of a type that is not its own
        wide = [item.astype(np.float32) if item.dtype == BF16 else item for item in (one, other)]
        np.testing.assert_array_equal(wide[0], wide[1])


def _matrix(element: str, shape: tuple[int, ...], seed: int) -> Array:
    return draw_values(element, int(np.prod(shape)), seed).reshape(shape, order="F")


def _head(size: int, groups: int) -> str:
    return f"attributes{{subgroup_size={size}, work_group_size=[{size},{groups}]}}"


ITEM = """
    %lane32 = builtin.subgroup_local_id : i32
    %sg32 = builtin.subgroup_id : i32
    %lane = cast %lane32 : index
    %sg = cast %sg32 : index
    %g = builtin.group_id : index
"""


@given(st.sampled_from(SCALARS), SIZES, st.integers(-3, 3), st.integers(0, 3), st.booleans())
def test_lanes_through_views(
    element: str, sizes: tuple[int, int], step: int, shift: int, guarded: bool
) -> None:
    size, subgroups = sizes
    rows = 3 * size + 4
    text = f"""
func @k(%A: memref<{element}x?x?x?>, %B: memref<{element}x{rows}x{subgroups}x?>) {_head(size, subgroups)} {{
  %g0 = builtin.group_id : index
  %a = subview %A[0:{rows},0:{subgroups},%g0] : memref<{element}x{rows}x{subgroups},strided<1,?>>
  %b = subview %B[0:{rows},0:{subgroups},%g0] : memref<{element}x{rows}x{subgroups},strided<1,{rows}>>
  parallel {{{ITEM}
    %step = constant {step} : index
    %start = constant {shift + max(0, -step) * (size - 1)} : index
    %moved = arith.mul %lane, %step : index
    %i = arith.add %moved, %start : index
    %limit = constant {size // 2} : index
    %low = cmp.{"lt" if guarded else "ge"} %lane, %limit : bool
    %x = load %a[%i,%sg] : {element}
    %av = subview %a[%i:1,%sg] : memref<{element}x1>
    %bv = subview %b[%i,0:{subgroups}] : memref<{element}x{subgroups},strided<{rows}>>
    %zero = constant 0 : index
    if %low {{
      %y = load %av[%zero] : {element}
      %z = arith.add %x, %y : {element}
      store %z, %bv[%sg]
    }} else {{
      store %x, %b[%i,%sg]
    }}
  }}
}}"""
    if size > 1 and step == 0:
        # lanes that share a place and store different numbers have no order
        text = text.replace("store %z, %bv[%sg]", "store %x, %bv[%sg]")
    shape = (rows, subgroups, 3)
    _agree(text, [_matrix(element, shape, 1), _matrix(element, shape, 2)], groups=3)


@given(st.sampled_from(SCALARS), st.sampled_from([4, 16]), st.integers(0, 1 << 30))
def test_lanes_through_groups(element: str, size: int, seed: int) -> None:
    text = f"""
func @k(%G: group<memref<{element}x?x?>x?>, %W: memref<indexx?>, %B: memref<{element}x{size}>) {_head(size, 1)} {{
  parallel {{{ITEM}
    %w = load %W[%lane] : index
    %m = load %G[%w] : memref<{element}x?x?>
    %c1 = constant 1 : index
    %n = size %m[0] : index
    %last = arith.sub %n, %c1 : index
    %x = load %m[%last,%c1] : {element}
    store %x, %B[%lane]
    store %x, %m[%w,%w]
  }}
}}"""
    generator = np.random.default_rng(seed)
    members = [_matrix(element, (int(rows), 5), 3) for rows in generator.integers(4, 9, 4)]
    # one lane for each member, else stores meet
    which = np.concatenate([np.arange(4)] * (size // 4))
    _agree(text, [members, which, _matrix(element, (size,), 4)])


@given(
    st.sampled_from(["i32", "i64", "f32", "i8", "bf16"]),
    st.sampled_from(["add", "max", "min"]),
    st.sampled_from(FORMS),
    SIZES,
)
def test_scans_and_broadcasts(element: str, function: str, form: str, sizes: tuple[int, int]) -> None:
    size, subgroups = sizes
    text = f"""
func @k(%A: memref<{element}x{size}x{subgroups}>, %B: memref<{element}x{size}x{subgroups}>) {_head(*sizes)} {{
  parallel {{{ITEM}
    %x = load %A[%lane,%sg] : {element}
    %s = subgroup_{function}.{form} %x : {element}
    %which = constant {size - 1} : i32
    %y = subgroup_broadcast %s, %which : {element}
    %z = arith.sub %s, %y : {element}
    store %z, %B[%lane,%sg]
  }}
}}"""
    _agree(text, [_matrix(element, sizes, 1), _matrix(element, sizes, 2)])


@given(st.sampled_from(ATOMIC), SIZES, st.booleans())
def test_atomic_additions_of_all_work_items(element: str, sizes: tuple[int, int], spread: bool) -> None:
    text = f"""
func @k(%A: memref<{element}x{sizes[0]}>, %B: memref<{element}x4>) {_head(*sizes)} {{
  %c0 = constant 0 : index
  %v = load %A[%c0] : {element}
  store.atomic_add %v, %B[%c0]
  parallel {{{ITEM}
    %four = constant 4 : index
    %i = arith.rem %lane, %four : index
    %c1 = constant 1 : index
    %x = load %A[%lane] : {element}
    store.atomic_add %x, %B[{"%i" if spread else "%c1"}]
    %some = cmp.gt %lane, %four : bool
    if %some {{
      store.atomic_add %x, %B[{"%i" if spread else "%c1"}]
    }}
  }}
}}"""
    _agree(text, [_matrix(element, (sizes[0],), 1), _matrix(element, (4,), 2)], groups=3)


@pytest.mark.parametrize("sizes", [(4, 4), (16, 2), (1, 8)])
def test_subgroups_meet_in_local_memory(sizes: tuple[int, int]) -> None:
    size, subgroups = sizes
    text = f"""
func @k(%A: memref<f32x{size}x{subgroups}x?>, %B: memref<f32x{subgroups}x{size}x?>) {_head(*sizes)} {{
  %t = alloca : memref<f32x{size}x{subgroups},local>
  parallel {{{ITEM}
    %x = load %A[%lane,%sg,%g] : f32
    store %x, %t[%lane,%sg]
    barrier.local
    %n = constant {subgroups} : index
    %c1 = constant 1 : index
    %up = arith.add %sg, %c1 : index
    %next = arith.rem %up, %n : index
    %y = load %t[%lane,%next] : f32
    %z = arith.sub %x, %y : f32
    store %z, %B[%sg,%lane,%g]
  }}
}}"""
    _agree(text, [_matrix("f32", (*sizes, 3), 1), _matrix("f32", (subgroups, size, 3), 2)], groups=3)
