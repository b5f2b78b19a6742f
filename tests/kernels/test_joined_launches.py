"""Horizontal fusion of launches, and those that stay apart because one multiprocessor would move too much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from lamella.backend import interpreter
from lamella.backend.cpu import compile_program
from lamella.backend.cpu.compile import emit
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.kernels.fuse_launches import fuse_launches
from lamella.kernels.launches import Buffer, BufferView, Launch, LaunchList
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import find_target
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import Function, Program

KERNEL = """
func @NAME(%y: memref<f32xSIZE>, %x: memref<f32xSIZE>)
    attributes{subgroup_size=32, work_group_size=[32,1]} {
  %g = builtin.group_id : index
  %0 = constant 0 : index
  %step = constant 32 : index
  %each = constant EACH : index
  %two = constant 2.0 : f32
  parallel {
    %l = builtin.subgroup_local_id : i32
    %i = cast %l : index
    %first = arith.mul %g, %each : index
    %start = arith.add %first, %i : index
    for %k:index=%0,%each,%step {
      %at = arith.add %start, %k : index
      %a = load %x[%at] : f32
      %b = arith.OPERATION : f32
      store %b, %y[%at]
    }
  }
}
"""
SUMS = """
func @sums(%s: memref<f32x128>, %x: memref<f32xSIZE>) attributes{subgroup_size=32, work_group_size=[32,1]} {
  %g = builtin.group_id : index
  %0 = constant 0 : index
  %each = constant 32 : index
  %row = constant 128 : index
  %steps = constant STEPS : index
  %zero = constant 0.0 : f32
  parallel {
    %l = builtin.subgroup_local_id : i32
    %i = cast %l : index
    %first = arith.mul %g, %each : index
    %at = arith.add %first, %i : index
    %sum = for %k:index=%0,%steps init(%t=%zero) -> (f32) {
      %far = arith.mul %k, %row : index
      %p = arith.add %far, %at : index
      %a = load %x[%p] : f32
      %u = arith.add %t, %a : f32
      yield (%u)
    }
    store %sum, %s[%at]
  }
}
"""
LARGE = """
func @large(%y: memref<f32x65536>, %s: memref<f32x128>) attributes{subgroup_size=32, work_group_size=[32,1]} {
  %g = builtin.group_id : index
  %0 = constant 0 : index
  %step = constant 32 : index
  %each = constant 128 : index
  parallel {
    %l = builtin.subgroup_local_id : i32
    %i = cast %l : index
    %first = arith.mul %g, %each : index
    for %k:index=%0,%each,%step {
      %p = arith.add %i, %k : index
      %a = load %s[%p] : f32
      %at = arith.add %first, %p : index
      store %a, %y[%at]
    }
  }
}
"""
EACH = 64
"""Elements of a work-group."""


def text_of(name: str, size: int, each: int = EACH, operation: str = "mul %a, %two") -> str:
    """Element by element from one array to another."""
    text = KERNEL.replace("NAME", name).replace("SIZE", str(size)).replace("EACH", str(each))
    return text.replace("OPERATION", operation)


def kernel(name: str, groups: int, operation: str = "mul %a, %two") -> Function:
    """Such a kernel for so many work-groups."""
    text = text_of(name, groups * EACH, operation=operation)
    return parse(Source(name, text)).program.functions[0]


def launch(function: Function, groups: int, target: tuple[str, int], source: tuple[str, int]) -> Launch:
    """A launch from a place of a buffer to one of another."""
    views = [
        BufferView(name, "f32", (groups * EACH,), (1,), place * EACH) for name, place in (target, source)
    ]
    return Launch(function.name, tuple(views), (0,), groups)


def make_list(launches: Sequence[Launch], rows: int) -> LaunchList:
    """A list over the buffers a to e, all of them inputs and outputs."""
    views = {name: BufferView(name, "f32", (rows * EACH,), (1,)) for name in "abcde"}
    buffers = {name: Buffer(4 * rows * EACH) for name in "abcde"}
    return LaunchList(buffers, tuple(launches), {"a": views["a"], "b": views["b"]}, views)


def run(whole: LaunchList, functions: Sequence[Function], rows: int) -> dict[str, Array]:
    """What is in the buffers behind a list."""
    random = np.random.default_rng(3)
    memory = {name: random.standard_normal(rows * EACH).astype(np.float32) for name in "abcde"}
    compiled = interpreter.compile_program(Program(tuple(functions)), check_bounds=True)
    for item in whole.launches:
        given = [memory[view.buffer][view.offset : view.offset + view.shape[0]] for view in item.arguments]
        compiled.call(item.kernel, given, item.groups)
    return memory


@pytest.mark.parametrize("seed", range(8))
def test_random_lists_compute_the_same_bits(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, sizes = 24, (1, 3, 8)
    functions = [
        kernel(f"{word}_{size}", size, operation)
        for size in sizes
        for word, operation in (("twice", "mul %a, %two"), ("more", "add %a, %two"))
    ]
    launches = []
    for _ in range(12):
        number = int(random.integers(len(functions)))
        groups = sizes[number // 2]
        source, target = random.choice(list("abcde"), 2, replace=False)
        places = [int(random.integers(rows - groups + 1)) for _ in range(2)]
        launches.append(launch(functions[number], groups, (str(target), places[0]), (str(source), places[1])))
    whole = make_list(launches, rows)
    fewer, made = fuse_launches(whole, {item.name: item for item in functions})
    assert len(fewer.launches) < len(launches)
    found, expected = run(fewer, [*functions, *made], rows), run(whole, functions, rows)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_parts_of_a_stack_run_side_by_side() -> None:
    """Each goes to a place of its own in one buffer: no barrier, and as many work-groups as there is work."""
    twice = kernel("twice", 12)
    launches = [launch(twice, 12, ("c", 12 * place), ("ab"[place % 2], 12 * place)) for place in range(8)]
    whole = make_list(launches, 96)
    fewer, made = fuse_launches(whole, {"twice": twice})
    (joined,), (function,) = fewer.launches, made
    assert joined.groups * default_sizes(function).work_group_size[0] >= 8 * 12 * 32
    emitted = emit(Program((function,)), find_target("sm_90a")).text
    assert "barrier" not in emitted
    np.testing.assert_array_equal(run(fewer, made, 96)["c"], run(whole, [twice], 96)["c"])
    # Every access is proved, so that none is tested while it runs.
    compiled = compile_program(Program(made))
    sizes = [view.shape[0] for view in joined.arguments]
    compiled.call(joined.kernel, [np.zeros(size, np.float32) for size in sizes], joined.groups)
    assert not compiled.findings


@pytest.mark.parametrize(("each", "count"), [(64, 1), (512, 2)])
def test_what_moves_much_is_no_phase_of_one_work_group(each: int, count: int) -> None:
    """One after the other: 33 kB run in one work-group, a quarter of a megabyte would take it longer than a launch."""
    twice = parse(Source("twice", text_of("twice", 64 * each, each))).program.functions[0]
    views = {name: BufferView(name, "f32", (64 * each,), (1,)) for name in "acd"}
    buffers = {name: Buffer(4 * 64 * each) for name in "acd"}
    launches = [Launch("twice", (views[to], views[of]), (0,), 64) for of, to in ("ac", "cd")]
    whole = LaunchList(buffers, tuple(launches), {"a": views["a"]}, views)
    assert len(fuse_launches(whole, {"twice": twice})[0].launches) == count


@pytest.mark.parametrize(("steps", "count"), [(8, 1), (400, 2)])
def test_long_sums_are_not_done_again_by_every_work_group(steps: int, count: int) -> None:
    """A product behind a pool reads a little: what each of its work-groups would read to make that counts."""
    sums = parse(Source("sums", SUMS.replace("SIZE", str(128 * steps)).replace("STEPS", str(steps))))
    large = parse(Source("large", LARGE))
    functions = {item.name: item for found in (sums, large) for item in found.program.functions}
    sizes = {"x": 128 * steps, "s": 128, "y": 512 * 128}
    views = {name: BufferView(name, "f32", (size,), (1,)) for name, size in sizes.items()}
    launches = (
        Launch("sums", (views["s"], views["x"]), (0,), 4),
        Launch("large", (views["y"], views["s"]), (0,), 512),
    )
    buffers = {name: Buffer(4 * size) for name, size in sizes.items()}
    whole = LaunchList(buffers, launches, {"x": views["x"]}, {"y": views["y"]})
    fewer, made = fuse_launches(whole, functions)
    assert len(fewer.launches) == count
    found = []
    for list_, kernels in ((whole, functions.values()), (fewer, (*functions.values(), *made))):
        memory = {name: np.arange(size, dtype=np.float32) % 7 for name, size in sizes.items()}
        compiled = interpreter.compile_program(Program(tuple(kernels)), check_bounds=True)
        for item in list_.launches:
            compiled.call(item.kernel, [memory[view.buffer] for view in item.arguments], item.groups)
        found.append(memory["y"])
    np.testing.assert_array_equal(found[0], found[1])
