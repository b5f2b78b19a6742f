"""Footprints: what a work-group touches, held against the places that the interpreter sees it touch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.backend.interpreter import compile_program
from lamella.base.errors import Unsupported
from lamella.base.source import Source
from lamella.kernels.footprints import Footprint, find_footprints
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import Program

SIZE = 4096


def copying(place: str, group: int) -> Program:
    """A kernel one work-group of which copies, at places that lines compute from all that an index may come from."""
    text = f"""
func @copy(%x: memref<f32x{SIZE}>, %n: memref<i64>, %y: memref<f32x{SIZE}>)
    attributes{{subgroup_size=32, work_group_size=[64,1]}} {{
  %g = builtin.group_id : index
  parallel {{
    %l = builtin.subgroup_local_id : i32
    %lane = cast %l : index
    %s = builtin.subgroup_id : i32
    %sub = cast %s : index
    %loaded = load %n[] : i64
    %any = cast %loaded : index
    %zero = constant 0 : index
    %end = constant 100 : index
    %step = constant 32 : index
    for %i:index=%zero,%end,%step {{
      {place}
      %low = constant 0 : index
      %high = constant {SIZE - 1} : index
      %a = arith.min %p, %high : index
      %q = arith.max %a, %low : index
      %own = constant {group} : index
      %mine = cmp.eq %g, %own : bool
      if %mine {{
        %v = load %x[%q] : f32
        store %v, %y[%q]
      }}
    }}
  }}
}}
"""
    return parse(Source("copy", text)).program


NAMES = ("%g", "%lane", "%sub", "%i", "%any")


@given(
    factors=st.lists(st.integers(0, 40), min_size=5, max_size=5),
    function=st.sampled_from(["", "rem", "div", "min", "max", "sub"]),
    number=st.integers(1, 300),
    group=st.integers(0, 5),
    held=st.integers(0, 9),
)
@settings(deadline=None)
def test_all_places_lie_in_the_footprint(
    factors: list[int], function: str, number: int, group: int, held: int
) -> None:
    lines, total = ["%t0 = constant 0 : index"], "%t0"
    for place, (name, factor) in enumerate(zip(NAMES, factors, strict=True), 1):
        lines += [
            f"%c{place} = constant {factor} : index",
            f"%m{place} = arith.mul {name}, %c{place} : index",
            f"%t{place} = arith.add {total}, %m{place} : index",
        ]
        total = f"%t{place}"
    lines.append(f"%k = constant {number} : index")
    lines.append(
        f"%p = arith.{function} {total}, %k : index" if function else f"%p = arith.add {total}, %t0 : index"
    )
    program = copying("\n      ".join(lines), group)
    found = find_footprints(program.functions[0], group, (32, 2))
    y = np.zeros(SIZE, np.float32)
    kernels = compile_program(program)
    kernels.call("copy", [np.ones(SIZE, np.float32), np.asarray(held), y], group + 1)
    touched = np.flatnonzero(y)
    assert found["y"].is_written
    assert not found["x"].is_written
    for name in "xy":
        assert found[name].first <= touched.min()
        assert touched.max() <= found[name].last


def test_a_known_work_group_has_exact_places() -> None:
    program = copying(
        "%c = constant 128 : index\n %m = arith.mul %g, %c : index\n %b = arith.add %m, %i : index\n"
        " %p = arith.add %b, %lane : index",
        3,
    )
    found = find_footprints(program.functions[0], 3, (32, 2))
    assert found["y"] == Footprint(384, 511, True)
    assert found["x"] == Footprint(384, 511, False)


def test_views_of_parameters_are_not_followed() -> None:
    text = """
func @views(%x: memref<f32x64>) {
  %0 = constant 0 : index
  %v = subview %x[0:32] : memref<f32x32>
}
"""
    with pytest.raises(Unsupported, match="another way"):
        find_footprints(parse(Source("views", text)).program.functions[0], 0, (32, 1))
