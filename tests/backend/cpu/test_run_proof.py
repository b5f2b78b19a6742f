"""What a launch proves with its sizes and integers, before machine code touches any memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from lamella.backend import cpu, interpreter
from lamella.backend.arguments import Arrays
from lamella.backend.cpu.run import launch
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from tests.support.differential.running import read

TEXT = """
func @fill(%x: memref<f32x?>, %y: memref<f32x?,strided<?>>) {
  %n = size %x[0] : index
  %0 = constant 0 : index
  %v = constant 1.0 : f32
  foreach (%i):index=(%0),(%n) {
    store %v, %y[%i]
  }
}
func @far(%x: memref<f32x?>) {
  %c = constant 100000000000 : index
  %v = constant 1.0 : f32
  store %v, %x[%c]
}
func @put(%n: index, %x: memref<f32x?>) {
  %v = constant 1.0 : f32
  store %v, %x[%n]
}
func @pick(%n: index, %g: group<memref<f32x4>x?>) {
  %x = load %g[%n] : memref<f32x4>
  %v = constant 1.0 : f32
  %0 = constant 0 : index
  store %v, %x[%0]
}
"""
MORE = """
func @tiles(%y: memref<f32x?>) {
  %one = constant 1.0 : f32
  %0 = constant 0 : index
  %n = constant 64 : index
  %g = builtin.group_id : index
  %first = arith.mul %g, %n : index
  foreach (%i):index=(%0),(%n) {
    %p = arith.add %first, %i : index
    store %one, %y[%p]
  }
}
func @views(%y: memref<f32x?>) {
  %one = constant 1.0 : f32
  %0 = constant 0 : index
  %n = constant 64 : index
  %g = builtin.group_id : index
  %first = arith.mul %g, %n : index
  %v = subview %y[%first:64] : memref<f32x64>
  foreach (%i):index=(%0),(%n) {
    store %one, %v[%i]
  }
}
func @start(%x: memref<f32x?>) {
  %v = subview %x[0:64] : memref<f32x64>
  %c = constant 63 : index
  %one = constant 1.0 : f32
  store %one, %v[%c]
}
func @plane(%w: index, %y: memref<i32x?x?>) {
  %one = constant 1 : i32
  %g = builtin.group_id : index
  %four = constant 4 : index
  %i = arith.rem %g, %four : index
  %j = arith.div %g, %four : index
  %k = arith.mul %j, %w : index
  store.atomic_add %one, %y[%i,%k]
}
func @lanes(%y: memref<f32x?>) attributes{subgroup_size=16,work_group_size=[64,1]} {
  %one = constant 1.0 : f32
  parallel {
    %s = builtin.subgroup_id : i32
    %l = builtin.subgroup_local_id : i32
    %c = constant 16 : i32
    %a = arith.mul %s, %c : i32
    %b = arith.add %a, %l : i32
    %i = cast %b : index
    store %one, %y[%i]
  }
}
func @scatter(%at: memref<i64x?>, %y: memref<f32x?>) {
  %one = constant 1.0 : f32
  %0 = constant 0 : index
  %n = size %at[0] : index
  foreach (%i):index=(%0),(%n) {
    %k = load %at[%i] : i64
    %p = cast %k : index
    store.atomic_add %one, %y[%p]
  }
}
func @wraps(%at: memref<i64x?>, %y: memref<f32x?>) {
  %one = constant 1.0 : f32
  %0 = constant 0 : index
  %8 = constant 8 : index
  %n = size %y[0] : index
  %k = load %at[%0] : i64
  %p = cast %k : index
  %q = arith.add %p, %8 : index
  %small = cmp.lt %q, %n : bool
  %whole = cmp.ge %p, %0 : bool
  %in = arith.and %small, %whole : bool
  if %in {
    store %one, %y[%p]
  }
}
func @folds(%x: memref<f32x?x?,strided<?,?>>) {
  %one = constant 1.0 : f32
  %n = size %x[0] : index
  %m = size %x[1] : index
  %nm = arith.mul %n, %m : index
  %1 = constant 1 : index
  %last = arith.sub %nm, %1 : index
  %v = fuse %x[0,1] : memref<f32x?,strided<?>>
  store %one, %v[%last]
}
func @sizes(%at: memref<i64x?>, %a: memref<f32x?>, %b: memref<f32x?>) {
  %one = constant 1.0 : f32
  %0 = constant 0 : index
  %k = load %at[%0] : i64
  %n = cast %k : index
  %v = subview %a[%0:%n] : memref<f32x?>
  axpby.n %one, %b, %one, %v
}
func @blocks(%at: memref<i64x?>, %a: memref<f32x?x?>, %b: memref<f32x?x?>) {
  %0 = constant 0 : index
  %k = load %at[%0] : i64
  %n = cast %k : index
  parallel {
    %m = cooperative_matrix_load.n %a[%n,%0] : coopmatrix<f32x4x2,matrix_acc>
    cooperative_matrix_store %m, %b[%0,%n]
  }
}
"""
LEAVES = "TEN140"

THROUGH = """
func @count(%at: memref<i32x2>, %y: memref<i64x?>) {
  %0 = constant 0 : index
  %1 = constant 1 : index
  %p32 = load %at[%0] : i32
  %n32 = load %at[%1] : i32
  %p = cast %p32 : index
  %n = cast %n32 : index
  %one = constant 1 : i64
  %v = subview %y[%p:%n] : memref<i64x?>
  foreach (%i):index=(%0),(%n) {
    %old = atomic_add %one, %v[%i] : i64
  }
}
func @moved(%g: group<memref<f32x4>x?, offset: ?>) {
  %0 = constant 0 : index
  %x = load %g[%0] : memref<f32x4>
  %v = constant 1.0 : f32
  store %v, %x[%0]
}
"""


def codes(error: pytest.ExceptionInfo[LamellaError]) -> set[str]:
    return {item.code for item in error.value.findings}


def zeros(count: int) -> Array:
    return np.zeros(count, np.float32)


@pytest.fixture(scope="module")
def kernels() -> cpu.CompiledKernels:
    return cpu.compile_program(read(TEXT), threads=1)


def test_sizes_that_do_not_fit_are_refused(kernels: cpu.CompiledKernels) -> None:
    with pytest.raises(LamellaError) as error:
        kernels.fill(zeros(1 << 20), zeros(4))
    assert codes(error) == {LEAVES}
    kept = zeros(4)
    kernels.fill(zeros(4), kept)
    assert kept.tolist() == [1.0] * 4


def test_a_constant_beyond_the_end_is_refused(kernels: cpu.CompiledKernels) -> None:
    with pytest.raises(LamellaError) as error:
        kernels.far(zeros(4))
    assert codes(error) == {LEAVES}


@pytest.mark.parametrize("place", [4, -1, 10**8, -(2**62)])
def test_integers_that_leave_the_memory_are_refused(kernels: cpu.CompiledKernels, place: int) -> None:
    array = zeros(4)
    kernels.put(3, array)
    with pytest.raises(LamellaError) as error:
        kernels.put(place, array)
    assert codes(error) == {LEAVES}
    kernels.put(2, array)
    assert array.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_a_group_has_no_more_arrays_than_it_has(kernels: cpu.CompiledKernels) -> None:
    arrays = [zeros(4), zeros(4)]
    kernels.pick(1, arrays)
    assert arrays[1][0] == 1.0
    with pytest.raises(LamellaError):
        kernels.pick(2, arrays)


def test_an_array_that_is_written_is_not_folded_onto_itself(kernels: cpu.CompiledKernels) -> None:
    folded = as_strided(zeros(1), (4,), (0,))
    for compiled in (kernels, interpreter.compile_program(read(TEXT))):
        with pytest.raises(LamellaError) as error:
            compiled.call("fill", [zeros(4), folded])
        assert codes(error) == {"TEN235"}


@pytest.mark.parametrize("threads", [0, -1, 10**9])
def test_a_number_of_threads_that_nobody_has(threads: int) -> None:
    with pytest.raises(InputError, match="threads"):
        cpu.compile_program(read(TEXT), threads=threads)


def test_a_kernel_that_is_not_there_is_an_attribute_that_is_not_there(kernels: cpu.CompiledKernels) -> None:
    assert not hasattr(kernels, "nothing")
    with pytest.raises(LamellaError):
        _ = kernels.nothing


def test_arguments_may_be_named(kernels: cpu.CompiledKernels) -> None:
    array = zeros(4)
    kernels.put(1, x=array)
    kernels.put(x=array, n=0)
    assert array.tolist() == [1.0, 1.0, 0.0, 0.0]
    for wrong in ({"z": array}, {"n": 1, "x": array, "y": 2}, {"x": array}):
        with pytest.raises(InputError):
            kernels.put(**wrong)


# --- positions that the launch and the data decide -----------------------------------------------------------


@pytest.fixture(scope="module")
def more() -> cpu.CompiledKernels:
    return cpu.compile_program(read(MORE), threads=2)


def kept(count: int) -> tuple[Array, Array]:
    """An array inside a larger one, whose other elements nobody may change."""
    whole = zeros(3 * count)
    return whole, whole[count : 2 * count]


@pytest.mark.parametrize("name", ["tiles", "views"])
def test_a_work_group_beyond_the_last_tile_is_refused(more: cpu.CompiledKernels, name: str) -> None:
    whole, inner = kept(128)
    with pytest.raises(LamellaError, match=r"reaches 191 \(with group_id=2") as error:
        more.call(name, [inner], 3)
    assert codes(error) == {LEAVES}
    assert not whole.any()
    more.call(name, [inner], 2)
    assert inner.all()
    assert whole.sum() == 128
    assert not more.findings


def test_a_written_slice_of_a_small_array_is_refused(more: cpu.CompiledKernels) -> None:
    with pytest.raises(LamellaError) as error:
        more.start(zeros(10))
    assert codes(error) == {LEAVES}
    more.start(zeros(64))


@pytest.mark.parametrize(
    ("width", "groups", "inside"), [(1, 12, True), (2, 4, True), (2, 8, True), (3, 12, False)]
)
def test_quotients_of_the_work_group_are_positions(
    more: cpu.CompiledKernels, width: int, groups: int, inside: bool
) -> None:
    whole = np.zeros((4, 9), np.int32, order="F")
    plane = whole[:, 3:6]
    if inside:
        more.plane(width, plane, groups=groups)
        assert plane[:, ::width].sum() == 16 * groups  # a work-group adds for all its work-items
    else:
        with pytest.raises(LamellaError):
            more.plane(width, plane, groups=groups)
    assert not whole[:, :3].any()
    assert not whole[:, 6:].any()


def test_numbers_of_work_items_are_positions(more: cpu.CompiledKernels) -> None:
    more.lanes(zeros(64))
    with pytest.raises(LamellaError, match=r"reaches 63 \(with subgroup_id=3, subgroup_local_id=15"):
        more.lanes(zeros(63))


@pytest.mark.parametrize("wrong", [8, -1, 2**63 - 1, -(2**63), 2**61])
def test_positions_that_data_decide_are_tested(wrong: int) -> None:
    kernels = cpu.compile_program(read(MORE), threads=2)
    whole, inner = kept(8)
    kernels.scatter(np.array([1, 3, 3, 7]), inner)
    assert inner.tolist() == [0, 1, 0, 2, 0, 0, 0, 1]
    for _ in range(2):
        with pytest.raises(LamellaError, match=f"index {wrong} of mode 0 leaves '%y'") as error:
            kernels.scatter(np.array([2, wrong, 2]), inner)
        assert codes(error) == {"TEN215"}
    assert not whole[:8].any()
    assert not whole[16:].any()
    assert [item.code for item in kernels.findings] == ["TEN243"], "it is said once"


def test_sums_that_wrap_prove_nothing(more: cpu.CompiledKernels) -> None:
    _, inner = kept(16)
    more.wraps(np.array([7]), inner)
    assert inner[7] == 1
    more.wraps(np.array([12]), inner)
    with pytest.raises(LamellaError, match=str(2**63 - 1)):
        more.wraps(np.array([2**63 - 1]), inner)


def test_modes_with_gaps_are_not_fused(more: cpu.CompiledKernels) -> None:
    more.folds(np.zeros((4, 5), np.float32, order="F"))
    whole = np.zeros((6, 5), np.float32, order="F")
    with pytest.raises(LamellaError) as error:
        more.folds(whole[:4])
    assert codes(error) == {"TEN222"}
    assert not whole.any()


@pytest.mark.parametrize(
    ("taken", "code"), [(4, ""), (3, "TEN220"), (0, "TEN223"), (9, "TEN216"), (-(2**63), "TEN223")]
)
def test_sizes_that_data_decide_are_tested(more: cpu.CompiledKernels, taken: int, code: str) -> None:
    whole, inner = kept(8)
    if code:
        with pytest.raises(LamellaError) as error:
            more.sizes(np.array([taken]), inner, np.ones(4, np.float32))
        assert codes(error) == {code}
        assert not whole.any()
    else:
        more.sizes(np.array([taken]), inner, np.ones(4, np.float32))
        assert whole.sum() == 4


@pytest.mark.parametrize("place", [0, 1, 2, 3, -1, 2**63 - 1])
def test_blocks_of_matrices_are_tested(more: cpu.CompiledKernels, place: int) -> None:
    source, whole = np.ones((6, 2), np.float32, order="F"), np.zeros((6, 8), np.float32, order="F")
    inner = whole[:4, 2:6]
    if place in (0, 1, 2):
        more.blocks(np.array([place]), source, inner)
        assert whole.sum() == 8
    else:
        with pytest.raises(LamellaError) as error:
            more.blocks(np.array([place]), source, inner)
        assert codes(error) == {"TEN215"}
    assert not whole[4:].any()
    assert not whole[:, :2].any()
    assert not whole[:, 6:].any()


def test_what_is_proved_is_not_proved_again(
    more: cpu.CompiledKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = zeros(256)
    more.tiles(array, groups=4)
    monkeypatch.setattr(launch, "prove", None)
    for groups in (4, 3, 1, 0):
        more.tiles(array, groups=groups)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda array: array[::-1], "TEN209"),
        (lambda array: np.zeros(array.nbytes + 4, np.uint8)[1:-3].view(np.float32), "TEN242"),
        (lambda array: np.broadcast_to(array[:1], array.shape), "TEN208"),
        (lambda array: np.frombuffer(array.tobytes(), np.float32), "TEN219"),
        (lambda array: array.astype(np.float64), "TEN205"),
        (lambda array: array.astype(">f4"), "TEN205"),
        (lambda array: array.reshape(2, -1), "TEN206"),
    ],
)
def test_odd_arrays_are_refused(more: cpu.CompiledKernels, make: Callable[[Array], Array], code: str) -> None:
    with pytest.raises(LamellaError, match=code):
        more.call("tiles", [make(np.ones(128, np.float32))], 2)


@pytest.mark.parametrize("flag", ["", ".atomic"])
def test_the_number_of_a_work_item_is_stored_to_one_place(flag: str) -> None:
    """A number that is kept as its steps alone is one like any other where all lanes share an element."""
    text = f"""func @f(%y: memref<i32x2>) {{
      %0 = constant 0 : index
      parallel {{
        %l = builtin.subgroup_local_id : i32
        store{flag} %l, %y[%0]
      }}
    }}"""
    found = np.full(2, -1, np.int32)
    cpu.compile_program(read(text), threads=1).f(found)
    assert found.tolist() == [15, -1]


def test_atomic_updates_through_a_view_are_tested_with_it() -> None:
    kernels = cpu.compile_program(read(THROUGH), threads=1)
    whole = np.zeros(64, np.int64)
    kernels.count(np.array([2, 3], np.int32), whole[:8])
    assert whole.tolist() == [0, 0, 1, 1, 1, *[0] * 59]
    with pytest.raises(LamellaError, match="elements 2 to 41 of mode 0 leave '%y'"):
        kernels.count(np.array([2, 40], np.int32), whole[:8])
    assert not whole[8:].any()


def test_the_memory_behind_an_offset_is_that_of_each_call() -> None:
    kernels = cpu.compile_program(read(THROUGH), threads=1)
    kernels.moved(Arrays([zeros(32)[:4]], 28))
    with pytest.raises(LamellaError, match="reaches elements 28 to 31 of the 4 that its memory holds"):
        kernels.moved(Arrays([zeros(4)], 28))
    with pytest.raises(LamellaError, match=r"has offset 0\.5"):
        kernels.moved(Arrays([zeros(4)], 0.5))  # type: ignore[arg-type]


def test_a_class_of_arrays_does_not_say_how_large_they_are(kernels: cpu.CompiledKernels) -> None:
    class Boasting(np.ndarray):
        shape = property(lambda _: (100,))

    whole = zeros(100)
    with pytest.raises(LamellaError, match="the mode has 4 elements"):
        kernels.put(50, whole[:4].view(Boasting))
    assert not whole.any()
