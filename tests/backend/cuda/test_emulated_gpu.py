"""The GPU that is emulated: what it computes, and that it finds what a GPU would do wrong without a word."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.arrays import Array
from tests.support.gpu import mathematics
from tests.support.gpu.code import Code, Launch
from tests.support.gpu.machine import run_launch
from tests.support.gpu.memory import DeviceFault, DeviceMemory
from tests.support.gpu.ptx import read_ptx

HEAD = """
.version 8.3
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 f_param_0, .param .u64 f_param_1)
.maxntid 128
{
    .reg .pred %p<4>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    .shared .align 16 .b8 room[512];
    ld.param.b64 %rd1, [f_param_0];
    ld.param.b64 %rd2, [f_param_1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    mov.b64 %rd4, room;
    add.s64 %rd5, %rd4, %rd3;
    add.s64 %rd6, %rd1, %rd3;
    add.s64 %rd7, %rd2, %rd3;
"""
MEMORY = DeviceMemory()


class Arrays:
    """Two arrays of the device, and kernels on them."""

    def __init__(self, *given: Array) -> None:
        self.memory = MEMORY
        self.addresses = [self.memory.allocate(item.nbytes) for item in given]
        for address, item in zip(self.addresses, given, strict=True):
            self.memory.view(address, item.nbytes)[...] = np.frombuffer(item.tobytes(), np.uint8)

    def launch(self, lines: str, threads: int = 64, grid: int = 1, is_early: bool = False) -> None:
        """Run a kernel of some lines."""
        entry = read_ptx(f"{HEAD}{lines}\nret;\n}}").entries["f"]
        parameters = (self.addresses[0], self.addresses[1])
        launch = Launch(grid, (threads, 1), 0, 1, parameters, is_early)
        run_launch(Code(entry, {}, self.memory), launch, seed=1)

    def read(self, number: int, kind: str, count: int) -> Array:
        """What an array holds."""
        size = np.dtype(kind).itemsize * count
        return np.frombuffer(self.memory.view(self.addresses[number], size).tobytes(), kind)


def words(count: int = 64) -> Array:
    return np.arange(count, dtype=np.uint32)


OTHERS = """
    ld.global.b32 %r2, [%rd6];
    st.shared.b32 [%rd5], %r2;
    {barrier}
    xor.b32 %r3, %r1, 32;
    mul.wide.u32 %rd8, %r3, 4;
    add.s64 %rd8, %rd4, %rd8;
    ld.shared.b32 %r4, [%rd8];
    st.global.b32 [%rd7], %r4;
"""


def test_warps_that_do_not_wait_see_that_others_have_not_written() -> None:
    arrays = Arrays(words(), words())
    arrays.launch(OTHERS.format(barrier="bar.sync 0;"))
    np.testing.assert_array_equal(arrays.read(1, "u4", 64), words() ^ 32)
    arrays.launch(OTHERS.format(barrier=""))
    assert (arrays.read(1, "u4", 64) != words() ^ 32).any()


def test_lanes_that_part_meet_again() -> None:
    arrays = Arrays(words(), words())
    arrays.launch("""
    mov.b32 %r2, 0;
    mov.b32 %r3, 0;
LOOP:
    add.u32 %r2, %r2, %r3;
    add.u32 %r3, %r3, 1;
    setp.le.u32 %p1, %r3, %r1;
    @%p1 bra LOOP;
    shfl.sync.bfly.b32 %r4, %r2, 1, 31, -1;
    add.u32 %r2, %r2, %r4;
    st.global.b32 [%rd7], %r2;""")
    sums = np.array([item * (item + 1) // 2 for item in range(64)])
    np.testing.assert_array_equal(arrays.read(1, "u4", 64), sums + sums[np.arange(64) ^ 1])


FAULTS = {
    "st.global.b32 [%rd7+4], %r1;": "0 bytes behind one of 256 bytes",
    "ld.global.b64 %rd8, [%rd6];": "an access of 8 bytes is not at a multiple of that",
    "ld.shared.b32 %r2, [%rd5+300];": "of local memory, which has 1024 to 1536",
    "setp.eq.u32 %p1, %r1, 0;\n@%p1 bra END;\nbar.sync 0, 64;\nEND:": "threads wait for ever at bar.sync 0, 64",
    "bar.sync 0, 32;": "more threads than were told meet at a barrier",
    "mov.b64 %rd8, 64; ld.global.b32 %r2, [%rd8];": "is no memory of the device",
    "trap;": "a thread stops with a trap",
}


@pytest.mark.parametrize("lines", FAULTS)
def test_what_a_gpu_would_stop_at(lines: str) -> None:
    with pytest.raises(DeviceFault, match=FAULTS[lines].replace(".", r"\.")):
        Arrays(words(), words()).launch(lines)


def test_memory_that_was_given_back_is_nobodys() -> None:
    arrays = Arrays(words(), words())
    arrays.memory.free(arrays.addresses[1])
    with pytest.raises(DeviceFault, match="outside of all allocations"):
        arrays.launch("st.global.b32 [%rd7], %r1;")


def test_what_may_not_have_ended_is_not_read_before_the_wait() -> None:
    store = "griddepcontrol.launch_dependents; griddepcontrol.wait; st.global.b32 [%rd6], %r1;"
    early = "ld.global.b32 %r2, [%rd6]; griddepcontrol.wait; st.global.b32 [%rd7], %r2;"
    late = "griddepcontrol.wait; ld.global.b32 %r2, [%rd6]; st.global.b32 [%rd7], %r2;"
    settled = "griddepcontrol.wait; griddepcontrol.launch_dependents; st.global.b32 [%rd7], %r1;"
    arrays = Arrays(words(), words())
    arrays.launch(store)
    arrays.launch(late, is_early=True)
    arrays.launch(early, is_early=True)  # all have ended: the one in front lets nobody begin before
    arrays.launch(store, is_early=True)
    with pytest.raises(DeviceFault, match=r"read before the wait by launch \d+, and written by launch \d+"):
        arrays.launch(early, is_early=True)
    arrays.launch(store)
    arrays.launch(settled, is_early=True)
    arrays.launch(early, is_early=True)
    arrays.launch(store)
    with pytest.raises(DeviceFault, match="never waits"):
        arrays.launch("ld.param.b64 %rd1, [f_param_0];", is_early=True)
    arrays.launch(store)
    with pytest.raises(DeviceFault, match="written before the wait"):
        arrays.launch("st.global.b32 [%rd7], %r1; griddepcontrol.wait;", is_early=True)


WORD = st.integers(0, 2**32 - 1)
BINARY: dict[str, Callable[[int, int], int]] = {
    "add.s32": operator.add,
    "sub.s32": operator.sub,
    "mul.lo.s32": operator.mul,
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "mul.hi.s32": lambda a, b: _signed(a) * _signed(b) >> 32,
    "min.s32": lambda a, b: min(_signed(a), _signed(b)),
    "max.u32": max,
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
    "shr.s32": lambda a, b: _signed(a) >> min(b, 31),
    "div.s32": lambda a, b: _quotient(_signed(a), _signed(b)),
    "rem.s32": lambda a, b: _signed(a) - _signed(b) * _quotient(_signed(a), _signed(b)),
    "and.b32": operator.and_,
    "xor.b32": operator.xor,
}


def _signed(word: int) -> int:
    return word - (word >> 31 << 32)


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else -1


@pytest.mark.parametrize("name", BINARY)
@given(st.lists(st.tuples(WORD, st.one_of(WORD, st.integers(0, 40))), min_size=32, max_size=32))
def test_integers(name: str, pairs: Sequence[tuple[int, int]]) -> None:
    one, other = np.array(pairs, np.uint32).T
    arrays = Arrays(np.ascontiguousarray(one), np.ascontiguousarray(other))
    arrays.launch(
        f"ld.global.b32 %r2, [%rd6]; ld.global.b32 %r3, [%rd7]; {name} %r4, %r2, %r3; st.global.b32 [%rd7], %r4;",
        threads=32,
    )
    want = [BINARY[name](a, b) % 2**32 for a, b in pairs if b or "rem" not in name]
    found = [
        item
        for item, (_, b) in zip(arrays.read(1, "u4", 32).tolist(), pairs, strict=True)
        if b or "rem" not in name
    ]
    assert found == want


@pytest.mark.parametrize(("name", "sign"), [("add", 1), ("sub", -1)])
@given(st.lists(st.tuples(WORD, WORD), min_size=32, max_size=32))
def test_sums_of_two_words(name: str, sign: int, pairs: Sequence[tuple[int, int]]) -> None:
    """Of a · 2³² + b and b · 2³² + a, whose lower words leave a carry for the upper ones."""
    one, other = np.array(pairs, np.uint32).T
    arrays = Arrays(np.ascontiguousarray(one), np.ascontiguousarray(other))
    arrays.launch(
        f"""
    ld.global.b32 %r2, [%rd6];
    ld.global.b32 %r3, [%rd7];
    {name}.cc.s32 %r4, %r3, %r2;
    {name}c.s32 %r5, %r2, %r3;
    st.global.b32 [%rd6], %r4;
    st.global.b32 [%rd7], %r5;""",
        threads=32,
    )
    lower, upper = (arrays.read(number, "u4", 32).tolist() for number in range(2))
    want = [((a << 32 | b) + sign * (b << 32 | a)) % 2**64 for a, b in pairs]
    assert [high << 32 | low for high, low in zip(upper, lower, strict=True)] == want


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_the_upper_half_of_a_long_product(a: int, b: int) -> None:
    signed = mathematics.mul_high(np.array([a]), np.array([b]))
    unsigned = mathematics.mul_high(np.array([a % 2**64], np.uint64), np.array([b % 2**64], np.uint64))
    assert int(signed[0]) == a * b >> 64
    assert int(unsigned[0]) == (a % 2**64) * (b % 2**64) >> 64


REAL = st.floats(-1e100, 1e100, allow_nan=False)


@given(REAL, REAL)
def test_what_a_product_was_rounded_by_is_found(a: float, b: float) -> None:
    product = np.array([a * b])
    rest = mathematics.fma(np.array([a]), np.array([b]), -product)[0]
    numerator, denominator = _exact(a, b, float(product[0]))
    assert rest == numerator / denominator or abs(a * b) < 1e-290


def _exact(a: float, b: float, product: float) -> tuple[int, int]:
    (an, ad), (bn, bd), (pn, pd) = (item.as_integer_ratio() for item in (a, b, product))
    return an * bn * pd - pn * ad * bd, ad * bd * pd
