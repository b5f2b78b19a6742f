"""Greedy decoding on the device (argmax): the token of an output is the input of the next run, without the host.

Two kernels of the tensor language choose: the best of each part of the scores, the first of equals, and the best of
those, which is written to where the next run reads it and behind the numbers that were chosen before.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from lamella.backend.cuda.arrays import DeviceArray, DeviceMemory, PinnedMemory
from lamella.backend.cuda.compile import compile_program
from lamella.backend.cuda.driver import own_stream
from lamella.backend.cuda.kernels import CudaKernels
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.lang.tensor import parse

PART = 1024
"""Scores that one subgroup looks through."""
MOST_STEPS = 64
"""Runs that nobody looks at before they are done."""


def choosing_text(count: int) -> str:
    """The kernels of the argmax over so many scores, in two stages."""
    parts = -(-count // PART)
    return f"""
func @find_parts(%scores: memref<f32x{count}>, %most: memref<f32x{parts}>, %places: memref<i64x{parts}>)
    attributes{{subgroup_size=32, work_group_size=[32,1]}} {{
  %g = builtin.group_id : index
  parallel {{
    %part = constant {PART} : index
    %begin = arith.mul %g, %part : index
    %next = arith.add %begin, %part : index
    %count = constant {count} : index
    %end = arith.min %next, %count : index
    {_best("scores", "%begin", "%end", "%i", "index", count)}
    {_on_first_lane("store %top, %most[%g]", "store %place, %places[%g]")}
  }}
}}
func @choose(%most: memref<f32x{parts}>, %places: memref<i64x{parts}>, %next: memref<i64x1>,
    %chosen: memref<i64x{MOST_STEPS}>, %steps: memref<i64x1>)
    attributes{{subgroup_size=32, work_group_size=[32,1]}} {{
  parallel {{
    %begin = constant 0 : index
    %end = constant {parts} : index
    {_best("most", "%begin", "%end", "%own", "i64", count)}
    {
        _on_first_lane(
            "store %place, %next[%begin]",
            "%done = load %steps[%begin] : i64",
            "%one = constant 1 : i64",
            "%more = arith.add %done, %one : i64",
            "store %more, %steps[%begin]",
            f"%room = constant {MOST_STEPS - 1} : i64",
            "%none = constant 0 : i64",
            "%low = arith.max %done, %none : i64",
            "%kept = arith.min %low, %room : i64",
            "%at = cast %kept : index",
            "store %place, %chosen[%at]",
        )
    }
  }}
}}
"""


def _best(scores: str, begin: str, end: str, place: str, kind: str, count: int) -> str:
    """The largest score from one place to another, and where it stands: %top and %place, the same in all lanes."""
    found = f"{place} = load %places[%i] : i64" if kind == "i64" else ""
    return f"""
    %l = builtin.subgroup_local_id : i32
    %lane = cast %l : index
    %first = arith.add {begin}, %lane : index
    %lanes = constant 32 : index
    %least = constant -0x1.fffffep+127 : f32
    %nowhere = constant 0 : {kind}
    %own_top, %own_place = for %i:index=%first,{end},%lanes init(%t=%least,%p=%nowhere) -> (f32,{kind}) {{
      %v = load %{scores}[%i] : f32
      {found}
      %is_more = cmp.gt %v, %t : bool
      %larger = arith.select %is_more, %v, %t : f32
      %where = arith.select %is_more, {place}, %p : {kind}
      yield (%larger, %where)
    }}
    %top = subgroup_max.reduce %own_top : f32
    %is_top = cmp.eq %own_top, %top : bool
    %last = constant {count - 1} : i64
    %wide = {"cast %own_place : i64" if kind == "index" else "arith.min %own_place, %last : i64"}
    %candidate = arith.select %is_top, %wide, %last : i64
    %place = subgroup_min.reduce %candidate : i64
    """


def _on_first_lane(*lines: str) -> str:
    listed = "\n      ".join(lines)
    return f"""
    %zero = constant 0 : index
    %is_first = cmp.eq %lane, %zero : bool
    if %is_first {{
      {listed}
    }}"""


@cache
def _kernels(count: int) -> CudaKernels:
    return compile_program(parse(Source("choosing", choosing_text(count))).program)


class GreedyChoice:
    """The argmax of scores on the device, as often as it is launched."""

    most = MOST_STEPS
    """How many choices it keeps."""

    def __init__(self, scores: int, count: int, following: int) -> None:
        """Scores and the number of the next run lie at these addresses."""
        parts, integers = -(-count // PART), np.dtype(np.int64)
        sizes = (4 * parts, 8 * parts, 8 * MOST_STEPS, 8)
        self._memory = [DeviceMemory(size) for size in sizes]
        most, places, chosen, steps = (item.address for item in self._memory)
        array = partial(DeviceArray, owner=self._memory)
        made = array(most, (parts,), np.dtype(np.float32)), array(places, (parts,), integers)
        found = array(scores, (count,), np.dtype(np.float32))
        kept = array(chosen, (MOST_STEPS,), integers), array(steps, (1,), integers)
        kernels = _kernels(count)
        self._launches = [
            kernels.bind("find_parts", [found, *made], parts),
            kernels.bind("choose", [*made, array(following, (1,), integers), *kept], 1),
        ]

    def begin(self) -> None:
        """Forget all choices."""
        self._memory[3].fill(own_stream())

    def launch(self) -> None:
        """Choose once more, asynchronously."""
        for item in self._launches:
            item.launch()

    def read(self, count: int) -> Array:
        """The tokens chosen since the beginning; waits for them."""
        pinned = PinnedMemory(8 * count)
        self._memory[2].read(pinned.address, 8 * count, own_stream())
        own_stream().wait("choosing tokens")
        found: Array = pinned.bytes().view(np.int64).copy()
        return found
