"""Loops whose lanes begin, end and step as they like, up to the ends of their types: a model in Python is the judge."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from lamella.backend.cpu import compile_program
from lamella.base.source import Source
from lamella.lang.tensor import parse

LANES = 8
MOST = 300
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}


def wrap(value: int, bits: int) -> int:
    """The number of so many bits that is left of an integer."""
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def count_trips(begin: int, end: int, step: int, bits: int) -> int:
    """How many trips a loop makes; more than MOST where it does not end soon."""
    trips = 0
    while begin < end and trips <= MOST:
        begin, trips = wrap(begin + step, bits), trips + 1
    return trips


def write_loop(kind: str, lane: int, step: int | None, varying_end: bool) -> str:
    """A kernel that counts the trips of each lane and adds its indices up."""
    end = "%own" if varying_end else "%e"
    stride = "%t" if step is None else "%s"
    return f"""func @f(%out: memref<i64x{LANES}x2>, %b: {kind}, %e: {kind}, %t: {kind})
    attributes{{subgroup_size={LANES}, work_group_size=[{LANES},1]}} {{
  %zero = constant 0 : i64
  %one = constant 1 : i64
  %by = constant {lane} : {kind}
  %s = constant {step or 1} : {kind}
  %c0 = constant 0 : index
  %c1 = constant 1 : index
  parallel {{
    %id = builtin.subgroup_local_id : i32
    %lane = cast %id : {kind}
    %ahead = arith.mul %lane, %by : {kind}
    %begin = arith.add %b, %ahead : {kind}
    %own = arith.add %e, %lane : {kind}
    %n,%t2 = for %i:{kind}=%begin,{end},{stride} init(%a=%zero,%x=%zero) -> (i64,i64) {{
      %m = arith.add %a, %one : i64
      %j = cast %i : i64
      %y = arith.add %x, %j : i64
      yield (%m, %y)
    }}
    %at = cast %id : index
    store %n, %out[%at,%c0]
    store %t2, %out[%at,%c1]
  }}
}}"""


def ends_of(kind: str) -> st.SearchStrategy[int]:
    """Numbers of a type, often close to one of its ends."""
    least, most = -(1 << (BITS[kind] - 1)), (1 << (BITS[kind] - 1)) - 1
    near = st.integers(0, 100)
    return st.one_of(
        near.map(lambda item: least + item), near.map(lambda item: most - item), st.integers(-50, 50)
    )


@given(st.data(), st.sampled_from(sorted(BITS)), st.integers(-3, 20), st.integers(1, 9), st.booleans())
def test_loops_near_the_ends_of_their_types(
    data: st.DataObject, kind: str, lane: int, step: int, varying_end: bool
) -> None:
    begin, end = data.draw(ends_of(kind)), data.draw(ends_of(kind))
    known = data.draw(st.booleans())
    bits, items = BITS[kind], range(LANES)
    begins = [wrap(begin + wrap(wrap(item, bits) * lane, bits), bits) for item in items]
    lasts = [wrap(end + item, bits) if varying_end else end for item in items]
    trips = [count_trips(*pair, step, bits) for pair in zip(begins, lasts, strict=True)]
    assume(max(trips) <= MOST)
    program = parse(
        Source("loop.tensor", write_loop(kind, lane, step if known else None, varying_end))
    ).program
    found = np.zeros((LANES, 2), np.int64, order="F")
    compile_program(program).f(found, begin, end, step)
    sums = [
        sum(wrap(first + trip * step, bits) for trip in range(count))
        for first, count in zip(begins, trips, strict=True)
    ]
    assert found[:, 0].tolist() == trips
    assert found[:, 1].tolist() == [wrap(item, 64) for item in sums]
