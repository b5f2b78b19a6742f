"""Threads that share out work-groups: each group runs once, whatever the threads, and nobody spins or hangs."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu.jit import LoadedCode, build
from lamella.backend.cpu.run.kernels import (
    ALIGNMENT,
    Arena,
    FutexPool,
    KernelLauncher,
    ThreadPool,
    WorkGroupPool,
    chunk_of,
    count_threads,
    shared_pool,
)
from lamella.base.errors import InputError
from tests.support.backend.cpu.texts import COUNT_TEXT, load_slots, write_kernel
from tests.support.repository import ROOT, environment

SCRATCH_TEXT = write_kernel(
    "kernel_0",
    load_slots("ptr"),
    """  %here = ptrtoint ptr %scratch to i64
  %end = getelementptr i8, ptr %scratch, i64 4096
  store i64 %i, ptr %scratch
  store i64 %i, ptr %end
  %at = getelementptr i64, ptr %a0, i64 %i
  store i64 %here, ptr %at""",
)
SLOW_TEXT = """
declare i32 @usleep(i32)
""" + write_kernel(
    "kernel_0",
    load_slots("ptr"),
    """  %slept = call i32 @usleep(i32 2000)
  %at = getelementptr i64, ptr %a0, i64 %i
  %old = atomicrmw add ptr %at, i64 1 monotonic""",
)


@cache
def code(text: str) -> LoadedCode:
    """The machine code of a kernel."""
    return build(text, ["kernel_0"])


def address(text: str) -> int:
    """Where the machine code of a kernel begins."""
    return code(text).address("kernel_0")


def slots(array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> bytes:
    """The slots of an array."""
    return int(array.ctypes.data).to_bytes(8, "little") + len(array).to_bytes(8, "little")


@pytest.fixture(params=[FutexPool, ThreadPool], ids=["sleeping", "turns"])
def pool(request: pytest.FixtureRequest) -> Iterator[WorkGroupPool]:
    """A pool of three threads of each kind."""
    made = FutexPool(3, None) if request.param is FutexPool else ThreadPool(3)
    yield made
    made.stop()


@pytest.mark.parametrize("groups", [1, 2, 3, 5, 64, 1000, 100_003])
def test_each_group_runs_once(pool: WorkGroupPool, groups: int) -> None:
    out = np.zeros(groups + 8, np.int64)
    for _ in range(20):
        assert pool.run(address(COUNT_TEXT), slots(out), groups, 0)
    assert (out[:groups] == 20).all()
    assert not out[groups:].any()


def test_it_works_after_sleep(pool: WorkGroupPool) -> None:
    out = np.zeros(100, np.int64)
    for _ in range(5):
        time.sleep(0.005)
        assert pool.run(address(COUNT_TEXT), slots(out), 100, 0)
    assert (out == 5).all()


STEP_TEXT = write_kernel(
    "kernel_0",
    load_slots("ptr", "ptr"),
    """  %next = add i64 %i, 1
  %around = urem i64 %next, %groups
  %here = getelementptr i64, ptr %a0, i64 %i
  %there = getelementptr i64, ptr %a0, i64 %around
  %one = load i64, ptr %here
  %two = load i64, ptr %there
  %sum = sub i64 %two, %one
  %at = getelementptr i64, ptr %a1, i64 %i
  store i64 %sum, ptr %at""",
)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_the_launches_of_a_list_follow_each_other(threads: int) -> None:
    """Each reads what its neighbours wrote in the one before: there are more threads than cores, and all meet."""
    pool = FutexPool(threads, None)
    random = np.random.default_rng(threads)
    for groups in (1, 2, 5, 64, 1000):
        arrays = random.integers(-9, 9, (2, groups))
        words = np.array([arrays[0].ctypes.data, arrays[1].ctypes.data, arrays[0].ctypes.data], np.int64)
        count = 60
        rows = np.zeros((count, 4), np.int64)
        rows[:, 0], rows[:, 2] = address(STEP_TEXT), groups
        rows[:, 1] = words.ctypes.data + 8 * (np.arange(count) % 2)
        rows[:, 3] = random.integers(0, 4, count) > 0
        expected = arrays[0].copy()
        times = np.zeros((count + 1, 2), np.int64)
        for number in range(10):
            assert pool.walk(rows.ctypes.data, count, 64, times.ctypes.data if number % 2 else 0)
            for _ in range(count):
                expected = np.roll(expected, -1) - expected
            np.testing.assert_array_equal(arrays[0], expected)
            if number % 3 == 0:
                time.sleep(0.001)  # long enough for the others to fall asleep
        moments = times @ np.array([1.0, 1e-9])
        assert (np.diff(moments) >= 0).all()
        assert 0 < moments[0] <= time.monotonic()
    pool.stop()


def states() -> set[str]:
    """What the threads of pools are doing: R is running, S is sleeping."""
    found = [thread.native_id for thread in threading.enumerate() if thread.name == "lamella"]
    texts = [Path(f"/proc/self/task/{number}/stat").read_text(encoding="ascii") for number in found]
    return {text.rpartition(")")[2].split()[0] for text in texts}


def test_idle_threads_fall_asleep(pool: WorkGroupPool) -> None:
    pool.run(address(COUNT_TEXT), slots(np.zeros(64, np.int64)), 64, 0)
    patience = 1000
    while states() != {"S"} and patience:
        time.sleep(0.005)
        patience -= 1
    assert states() == {"S"}


def test_threads_have_their_own_local_memory(pool: WorkGroupPool) -> None:
    out = np.zeros(500, np.int64)
    for size in (4104, 9000, 4104):
        assert pool.run(address(SCRATCH_TEXT), slots(out), 500, size)
        places = np.unique(out)
        assert 1 <= len(places) <= 3
        assert not (places % ALIGNMENT).any()
        assert len(places) < 2 or np.diff(places).min() >= size


def test_a_busy_pool_says_so(pool: WorkGroupPool) -> None:
    out, runs = np.zeros(20, np.int64), 0
    thread = threading.Thread(target=pool.run, args=(address(SLOW_TEXT), slots(out), 20, 0))
    thread.start()
    other = np.zeros(20, np.int64)
    while thread.is_alive():
        runs += pool.run(address(COUNT_TEXT), slots(other), 20, 0)
    assert (out == 1).all()
    assert (other == runs).all()


def test_many_callers_at_once() -> None:
    runner = KernelLauncher(address(COUNT_TEXT), 64, threads=2)
    out = np.zeros(300, np.int64)

    def call() -> None:
        for _ in range(50):
            runner.run(slots(out), 300)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert (out == 200).all()


def test_a_stopped_pool_still_runs() -> None:
    made, out = FutexPool(2, None), np.zeros(30, np.int64)
    made.stop()
    made.stop()
    assert made.run(address(COUNT_TEXT), slots(out), 30, 0)
    assert (out == 1).all()


def test_no_groups_run_nothing() -> None:
    KernelLauncher(0, 0, threads=2).run(b"", 0)


@given(st.integers(1, 1 << 62), st.integers(1, 1024))
def test_chunks_cover_the_groups(groups: int, threads: int) -> None:
    chunk = chunk_of(groups, threads)
    assert 1 <= chunk <= groups
    assert groups + threads * chunk < 1 << 63


def test_how_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMELLA_THREADS", "3")
    assert count_threads() == 3
    monkeypatch.setenv("LAMELLA_THREADS", "999999")
    assert count_threads() == 1024
    monkeypatch.setenv("LAMELLA_THREADS", "")
    assert count_threads() == len(os.sched_getaffinity(0))
    for wrong in ("0", "-1", "two", "1.5", "9" * 5000):
        monkeypatch.setenv("LAMELLA_THREADS", wrong)
        with pytest.raises(InputError, match="LAMELLA_THREADS"):
            count_threads()
    assert shared_pool(1) is None


def test_arenas_grow_and_are_aligned() -> None:
    arena = Arena()
    assert arena.reserve(0) == 0
    first = arena.reserve(100)
    assert first % ALIGNMENT == 0
    assert arena.reserve(50) == first
    ctypes.memset(arena.reserve(1 << 20), 1, 1 << 20)
    with pytest.raises(InputError, match="bytes for the local memory"):
        arena.reserve(1 << 60)


SCRIPT = """
import os, sys, threading, time, signal
import numpy as np
from tests.backend.cpu.test_run_pool import KernelLauncher, address, slots, COUNT_TEXT, SLOW_TEXT
runner = KernelLauncher(address(COUNT_TEXT), 0, threads=2)
out = np.zeros(100, np.int64)
runner.run(slots(out), 100)
"""


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    """Run a script that uses a pool in a process of its own."""
    command = [sys.executable, "-c", SCRIPT + textwrap.dedent(text)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=60
    )


def test_a_process_with_a_pool_ends() -> None:
    done = run_script("print(out.sum())")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "100", "")


def test_a_fork_makes_its_own_pool() -> None:
    done = run_script(
        """
        child = os.fork()
        if not child:
            for _ in range(20):
                runner.run(slots(out), 100)
            sys.exit(0 if (out == 21).all() else 1)
        status = os.waitpid(child, 0)[1]
        runner.run(slots(out), 100)
        print(status, out.sum())
        """
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0 200"), done.stderr


def test_an_interrupt_is_heard_when_the_kernel_returns() -> None:
    done = run_script(
        """
        # A shell lets what it runs in the background ignore interrupts, and Python inherits that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        slow = KernelLauncher(address(SLOW_TEXT), 0, threads=2)
        threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            end = time.monotonic() + 30  # a busy machine may send the signal late
            while time.monotonic() < end:
                slow.run(slots(out), 100)
        except KeyboardInterrupt:
            whole = out.min() == out.max()
            runner.run(slots(out), 100)
            print("heard", whole, out.min() == out.max())
        """
    )
    assert (done.returncode, done.stdout.strip()) == (0, "heard True True"), done.stderr
