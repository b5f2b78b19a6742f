"""Arguments as machine code reads them: the slots of the calling convention, and what is refused before."""

from __future__ import annotations

import ctypes
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.arguments import Arrays, dtype_of
from lamella.backend.cpu.run.launch import ArgumentPacker, may_share, pack_arguments
from lamella.backend.interpreter.arithmetic import convert
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.source import Source
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import Function


def function_of(parameters: str, body: str = "") -> Function:
    """A kernel with these parameters."""
    parsed = parse(Source("test.tensor", f"func @f({parameters}) {{\n{body}\n}}"))
    assert not [item for item in parsed.findings if item.severity == "error"], parsed.findings
    return parsed.program.functions[0]


def slots_of(parameters: str, *arguments: object) -> list[int]:
    """The slots that a call would pass, as integers."""
    packed = pack_arguments(function_of(parameters), arguments)
    return list(struct.unpack(f"<{len(packed.slots) // 8}q", packed.slots))


def codes(function: Function, *arguments: object) -> list[str]:
    """What is found wrong with arguments."""
    try:
        ArgumentPacker(function).pack(arguments)
    except LamellaError as error:
        return [item.code for item in error.findings]
    return []


def column_major(element: str, *shape: int) -> Array:
    """An empty array, first mode fastest."""
    return np.zeros(shape, dtype_of(element), order="F")


@pytest.mark.parametrize(
    ("kind", "element", "shape", "entries"),
    [
        ("memref<f32x5x10>", "f32", (5, 10), []),
        ("memref<f32x?x?>", "f32", (3, 4), [3, 4, 3]),
        ("memref<f64x5x?,strided<1,5>>", "f64", (5, 7), [7]),
        ("memref<i64x5x?x6>", "i64", (5, 4, 6), [4, 20]),
        ("memref<i16x?x5x?,strided<1,20,100>>", "i16", (20, 5, 3), [20, 3]),
        ("memref<f32>", "f32", (), []),
        ("memref<bf16x?,strided<?>>", "bf16", (9,), [9, 1]),
    ],
)
def test_memrefs(kind: str, element: str, shape: tuple[int, ...], entries: list[int]) -> None:
    """The open sizes, then the open strides, behind the address."""
    array = column_major(element, *shape)
    assert slots_of(f"%a: {kind}", array) == [array.ctypes.data, *entries]


def test_strides_are_read_off_the_array() -> None:
    array = np.zeros((12, 10), np.float32)[::2, ::3]
    assert slots_of("%a: memref<f32x?x?,strided<?,?>>", array) == [array.ctypes.data, 6, 4, 20, 3]


def read_integers(address: int, count: int) -> list[int]:
    """Integers at an address."""
    return list((ctypes.c_int64 * count).from_address(address))


@pytest.mark.parametrize(
    ("kind", "shapes", "tables", "ends"),
    [
        ("group<memref<i32x5x?x6>x?>", [(5, 2, 6), (5, 3, 6), (5, 1, 6)], [[2, 3, 1], [10, 15, 5]], [3]),
        ("group<memref<i32x?>x?, offset: ?>", [(4,), (7,)], [[4, 7]], [2, 0]),
        ("group<memref<i32x42>x2, offset: ?>", [(42,), (42,)], [], [0]),
        ("group<memref<i32x?>x2>", [(4,), (7,)], [[4, 7]], []),
        ("group<memref<i32x?x?>x?>", [], [[], [], []], [0]),
    ],
)
def test_groups(kind: str, shapes: list[tuple[int, ...]], tables: list[list[int]], ends: list[int]) -> None:
    """Addresses, then a table for each open size and stride, then the open size and offset of the group."""
    arrays = [column_major("i32", *shape) for shape in shapes]
    packed = pack_arguments(function_of(f"%a: {kind}"), [arrays])
    first, *others = struct.unpack(f"<{len(packed.slots) // 8}q", packed.slots)
    assert read_integers(first, len(arrays)) == [array.ctypes.data for array in arrays]
    assert [read_integers(slot, len(arrays)) for slot in others[: len(tables)]] == tables
    assert others[len(tables) :] == ends


def test_the_offset_of_a_group_is_passed() -> None:
    arrays = [np.zeros(8, np.int32)[:4]]
    assert slots_of("%a: group<memref<i32x4>x1, offset: ?>", Arrays(arrays, 3))[1:] == [3]


INTEGERS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}


@given(st.sampled_from(sorted(INTEGERS)), st.data())
def test_integers(element: str, data: st.DataObject) -> None:
    bits = INTEGERS[element]
    value = data.draw(st.integers(-(1 << bits - 1), (1 << bits - 1) - 1))
    assert slots_of(f"%a: {element}", value) == [value]
    assert slots_of(f"%a: {element}", np.int64(value)) == [value]


@given(st.sampled_from(["bf16", "f16", "f32", "f64", "c32", "c64"]), st.floats(), st.floats())
def test_floats_are_rounded_once(element: str, real: float, imaginary: float) -> None:
    """The bits are those of the interpreter's cast."""
    value = complex(real, imaginary) if element[0] == "c" else real
    with np.errstate(all="ignore"):
        wanted = np.asarray(convert(np.asarray(value)[()], element)).tobytes()
    packed = pack_arguments(function_of(f"%a: {element}"), [value]).slots
    if not np.isnan(value):
        assert packed == wanted.ljust(len(packed), b"\0")
    assert len(packed) == (16 if element == "c64" else 8)
    again = np.frombuffer(packed, dtype_of(element), 1)[0]
    assert np.isnan(again) == np.isnan(np.frombuffer(wanted, dtype_of(element), 1)[0])


def test_numbers_of_any_python_type() -> None:
    assert slots_of("%a: bool, %b: bool", True, np.bool_(False)) == [1, 0]
    assert slots_of("%a: f64", 3) == slots_of("%a: f64", np.float32(3)) == slots_of("%a: f64", 3.0)
    packed = pack_arguments(function_of("%a: c32"), [2]).slots
    assert struct.unpack("<ff", packed) == (2.0, 0.0)
    half = pack_arguments(function_of("%a: bf16"), [np.float32(1.5)]).slots
    assert np.frombuffer(half, ml_dtypes.bfloat16, 1)[0] == 1.5


def test_a_plan_serves_calls_of_one_layout_only() -> None:
    packer = ArgumentPacker(function_of("%n: i8, %a: memref<f32x?> {alignment=4}"))
    one, two = np.zeros(4, np.float32), np.zeros(9, np.float32)
    for number, array in [(1, one), (-128, one), (127, two), (5, one[1:3])]:
        slots = struct.unpack("<3q", packer.pack((number, array)).slots)
        assert slots == (number, array.ctypes.data, len(array))
    wrong: list[tuple[object, Array, str]] = [(128, one, "TEN204"), (1.5, one, "TEN204")]
    for value, array, code in [*wrong, (1, one.astype("f8"), "TEN205")]:
        with pytest.raises(LamellaError, match=code):
            packer.pack((value, array))
    moved = np.zeros(17, np.uint8)[1:].view(np.float32)
    if moved.ctypes.data % 4:
        with pytest.raises(LamellaError, match="TEN212"):
            packer.pack((1, moved))


def test_more_layouts_than_plans() -> None:
    packer = ArgumentPacker(function_of("%a: memref<i8x?>"))
    for size in [*range(300), *range(300)]:
        array = np.zeros(size, np.int8)
        assert struct.unpack("<2q", packer.pack((array,)).slots)[1] == size


WRITES = "  %one = constant 1.0 : f32\n  axpby.n %one, %x, %one, %y"
PAIR = "%x: memref<f32x?,strided<?>>, %y: memref<f32x?,strided<?>>"


def test_memory_is_compared_at_each_call() -> None:
    packer = ArgumentPacker(function_of(PAIR, WRITES))
    memory = np.zeros(40, np.float32)
    packer.pack((memory[:10], memory[10:20]))
    packer.pack((memory[0:20:2], memory[1:20:2]))
    packer.pack((memory[0:20:2], memory[21:40:2]))
    for low in (0, 5, 9):
        with pytest.raises(LamellaError, match="TEN235"):
            packer.pack((memory[:10], memory[low : low + 10]))
    with pytest.raises(LamellaError, match="TEN235"):
        packer.pack((memory[0:20:2], memory[2:22:2]))


def test_what_is_only_read_may_be_shared() -> None:
    body = "  %one = constant 1.0 : f32\n  hadamard %one, %x, %y, %one, %z"
    packer = ArgumentPacker(function_of(f"{PAIR}, %z: memref<f32x?>", body))
    x, z = np.zeros(10, np.float32), np.zeros(10, np.float32)
    packer.pack((x, x, z))
    with pytest.raises(LamellaError, match=r"'%z' and '%[xy]' share memory"):
        packer.pack((x, x, x))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10), st.booleans()), max_size=6))
def test_sharing_is_found_by_brute_force(given_blocks: list[tuple[int, int, bool]]) -> None:
    extents = [(low, low + size, written) for low, size, written in given_blocks]
    places = [(set(range(low, high)), written) for low, high, written in extents]
    wanted = any(
        places[i][0] & places[j][0] and (places[i][1] or places[j][1])
        for i in range(len(places))
        for j in range(i)
    )
    assert may_share(list(extents)) == wanted


def test_groups_share_too() -> None:
    body = """  %zero = constant 0 : index
  %one = constant 1.0 : f32
  %c = load %y[%zero] : memref<f32x4>
  axpby.n %one, %x, %one, %c"""
    function = function_of("%x: memref<f32x4>, %y: group<memref<f32x4>x?>", body)
    x, c = np.zeros(4, np.float32), np.zeros(4, np.float32)
    assert codes(function, x, [c, c.copy()]) == []
    assert codes(function, x, [c, c]) == []
    assert codes(function, x, [c, x]) == ["TEN235"]


def test_read_only_arrays_are_not_written() -> None:
    function = function_of(PAIR, WRITES)
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    x.flags.writeable = False
    assert codes(function, x, y) == []
    assert codes(function, y, x) == ["TEN219"]


def test_an_offset_stays_in_memory() -> None:
    function = function_of("%a: group<memref<f32x?>x?, offset: ?>")
    memory = np.zeros(16, np.float32)
    items = [memory[:4], memory[4:8]]
    assert codes(function, Arrays(items, 8)) == []
    assert codes(function, Arrays(items, 9)) == ["TEN217"]
    assert codes(function, Arrays(items, 13)) == ["TEN217", "TEN217"]
    assert codes(function, Arrays(items, -1)) == ["TEN211"]


GEMM = """  %one = constant 1.0 : f32
  gemm.n.n %one, %A, %B, %one, %C"""
MATRICES = "%A: memref<f32x?x?>, %B: memref<f32x?x?>, %C: memref<f32x?x?>"
VIEWS = """  %one = constant 1.0 : f32
  %z = constant 0 : index
  %n = size %A[1] : index
  %a = subview %A[0:4,0:%n] : memref<f32x4x?,strided<1,?>>
  %e = expand %B[1->2 x 3] : memref<f32x?x2x3>
  %f = fuse %e[1,2] : memref<f32x?x6,strided<1,?>>
  %t = alloca : memref<f32x4x6,local>
  for %i=%z,%n {
    gemm.n.n %one, %a, %f, %one, %t
  }"""


def matrices(*shapes: tuple[int, int]) -> list[Array]:
    """Matrices of these shapes."""
    return [column_major("f32", *shape) for shape in shapes]


def test_open_sizes_agree() -> None:
    function = function_of(MATRICES, GEMM)
    assert codes(function, *matrices((3, 4), (4, 5), (3, 5))) == []
    assert codes(function, *matrices((3, 4), (5, 5), (3, 5))) == ["TEN220"]
    assert codes(function, *matrices((3, 4), (4, 5), (5, 3))) == ["TEN220"]


def test_open_sizes_agree_behind_views() -> None:
    function = function_of("%A: memref<f32x?x?>, %B: memref<f32x?x?>", VIEWS)
    assert codes(function, *matrices((5, 7), (7, 6))) == []
    assert codes(function, *matrices((5, 7), (8, 6))) == ["TEN220"]
    assert codes(function, *matrices((5, 7), (7, 5))) == ["TEN221"]


def test_branches_are_not_judged() -> None:
    body = f"  if %c {{\n{GEMM}\n  }}"
    function = function_of(f"%c: bool, {MATRICES}", body)
    assert codes(function, False, *matrices((3, 4), (5, 5), (3, 5))) == []


BOUNDED = """  %i = builtin.group_id : index
  %z = constant 0 : index
  %n = size %g[0] : index
  %b = load %g[%i] : memref<f32x?>
  %a = subview %A[0:4,%i] : memref<f32x4>
  %c = subview %A[%i:3,0] : memref<f32x3>
  parallel {
    %v = load %A[%z,%i] : f32
    store %v, %b[%i]
  }"""


@pytest.mark.parametrize(
    ("shape", "lengths", "groups", "words"),
    [
        ((9, 5), [7] * 5, 5, []),
        (
            (9, 5),
            [7] * 5,
            6,
            ["index %i of mode 0 of '%g' reaches 5", "slice %i of mode 1", "index %i of mode 1"],
        ),
        ((9, 5), [7] * 6, 6, ["slice %i of mode 1 of '%A' reaches 5", "index %i of mode 1 of '%A'"]),
        ((9, 8), [7] * 8, 7, []),
        (
            (9, 8),
            [7] * 8,
            8,
            ["slice %i:3 of mode 0 of '%A' reaches 9", "index %i of mode 0 of '%b' reaches 7"],
        ),
        ((9, 8), [], 0, []),
        ((9, 8), [], 1, ["of '%g' reaches 0"]),
    ],
)
def test_groups_that_index_are_bounded(
    shape: tuple[int, int], lengths: list[int], groups: int, words: list[str]
) -> None:
    """By the length of the group, the modes of views and those of elements, each with the numbers that leave."""
    packer = ArgumentPacker(function_of("%A: memref<f32x?x?>, %g: group<memref<f32x?>x?>", BOUNDED))
    arguments = (column_major("f32", *shape), [np.zeros(length, np.float32) for length in lengths])
    packer.pack(arguments, 0)
    if not words:
        assert packer.pack(arguments, groups).doubts is None
        return
    with pytest.raises(LamellaError) as error:
        packer.pack(arguments, groups)
    assert {item.code for item in error.value.findings} == {"TEN140"}
    told = " ".join(item.message for item in error.value.findings)
    assert all(word in told for word in words), told


def test_sizes_that_differ_within_a_group_are_tested() -> None:
    """Which of the arrays a work-group gets is not followed, so that nothing is refused for certain."""
    packer = ArgumentPacker(function_of("%A: memref<f32x?x?>, %g: group<memref<f32x?>x?>", BOUNDED))
    arguments = (column_major("f32", 12, 8), [np.zeros(length, np.float32) for length in [9, 7] * 4])
    doubts = packer.pack(arguments, 8).doubts
    assert doubts is not None
    assert [item.span.text for item in doubts.open] == ["store %v, %b[%i]"]
    assert packer.pack(arguments, 7).doubts is None


def test_groups_in_loops_and_branches_are_free() -> None:
    body = """  %i = builtin.group_id : index
  %n = size %a[0] : index
  %in = cmp.lt %i, %n : bool
  if %in {
    %v = load %a[%i] : f32
  }
  for %k=%i,%n {
    %v = load %a[%i] : f32
  }"""
    ArgumentPacker(function_of("%a: memref<f32x?>", body)).pack((np.zeros(3, np.float32),), 100)


def test_unhashable_and_odd_arguments_are_findings() -> None:
    function = function_of("%a: group<memref<f32x4>x?>, %b: f32")
    for odd in ({}, [{}], [[1], [2]], "text", None, [None], object()):
        assert set(codes(function, odd, 1.0)) == {"TEN203"}
    assert codes(function, [], np.zeros(3)) == ["TEN203"]
    assert codes(function, []) == ["TEN201"]
