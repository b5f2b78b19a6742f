"""Autotuning without a device: its memory is that of the host, and the interpreter runs what is launched."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamella.backend import interpreter
from lamella.backend.cuda import autotune
from lamella.backend.cuda.arrays import DeviceArray
from lamella.backend.cuda.autotune import DIFFERS, DeviceMeasurer
from lamella.base.errors import InputError, Unsupported
from lamella.kernels.candidates import Candidate, Problem
from lamella.kernels.rewrite import rewrite
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Constant, Program, Region, Scalar
from tests.bridge.test_product_variants import CASES, prepared, problems_of

REAL = Scalar("f32")


class HostMemory:
    """Bytes of the host in the place of those of a device."""

    def __init__(self, size: int) -> None:
        self._bytes = np.zeros(size + 256, np.uint8)
        self.size = size
        self.address = -(-self._bytes.ctypes.data // 256) * 256

    def write(self, source: int, size: int, stream: object, offset: int = 0) -> None:
        ctypes.memmove(self.address + offset, source, size)

    def fill(self, stream: object) -> None:
        ctypes.memset(self.address, 0, self.size)


class HostStream:
    handle = 0

    def wait(self, doing: str = "") -> None:
        """Nothing is under way."""


class HostGraph:
    def __init__(self, stream: object, record: Callable[[], None]) -> None:
        self.launch = record


class HostEvent:
    """Each is 10 milliseconds behind the one before: one launch is enough."""

    now = 0

    def record(self, stream: object) -> None:
        HostEvent.now += 1
        self.at = HostEvent.now

    def seconds_since(self, other: HostEvent) -> float:
        return (self.at - other.at) * 1e-2


class HostKernels:
    """Kernels of the interpreter, launched on arrays of the device that is none."""

    def __init__(self, program: Program) -> None:
        self._kernels = interpreter.compile_program(program, check_bounds=True)

    def bring(self) -> None:
        """It is there."""

    def bind(self, name: str, arrays: Sequence[DeviceArray], groups: int) -> Any:
        views = [item.stand_in() for item in arrays]
        bound = type("Bound", (), {})()
        bound.launch = lambda: self._kernels.call(name, views, groups)
        return bound


def copy_inside(name: str, target: int, source: int, size: int, stream: int) -> None:
    assert name == "cuMemcpyDtoDAsync_v2"
    ctypes.memmove(target, source, size)


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> DeviceMeasurer:
    stream = HostStream()
    here = type("Here", (), {"l2_bytes": 1 << 10, "name": "a GPU", "driver": 13000})()
    for name, item in {
        "DeviceMemory": HostMemory,
        "LaunchGraph": HostGraph,
        "Event": HostEvent,
        "own_stream": lambda: stream,
        "device": lambda: here,
        "call_driver": copy_inside,
        "device_target": lambda: find_target("sm_90a"),
        "compile_program": lambda program, target: HostKernels(program),
        "usable_version": lambda: "",
        "LAUNCHES": 2,
        "REPLAYS": 1,
    }.items():
        monkeypatch.setattr(autotune, name, item)
    monkeypatch.setattr(DeviceArray, "numpy", lambda self: self.stand_in().copy())
    return DeviceMeasurer()


def problem_of(name: str, folder: Path) -> Problem:
    text, precision = CASES[name]
    return problems_of(prepared(folder, text, precision), precision)[-1]


@pytest.mark.parametrize("name", ["a plain product", "vectors", "threads"])
def test_ways_are_timed_and_close(name: str, measurer: DeviceMeasurer, tmp_path: Path) -> None:
    problem = problem_of(name, tmp_path)
    first, *_, last = problem.candidates()
    ways = [first, last]
    found = measurer.measure(ways, problem.fixed, float("inf"))
    assert found is not None
    assert [item.name for item in found] == [item.name for item in ways]
    assert all(item.seconds == pytest.approx(1e-2) for item in found), found


def test_a_way_with_other_numbers_is_dropped(measurer: DeviceMeasurer, tmp_path: Path) -> None:
    problem = problem_of("vectors", tmp_path)
    usual, other = list(problem.candidates())[:2]
    found = measurer.measure([usual, _spoiled(other)], problem.fixed, float("inf"))
    assert found is not None
    assert found[0].seconds is not None
    assert (found[1].seconds, found[1].reason) == (None, DIFFERS)


def _spoiled(way: Candidate) -> Candidate:
    """A way whose sums begin with a number."""

    def change(region: Region, _: bool) -> Region:
        statements = [
            replace(item, instruction=replace(node, value=100.0))
            if isinstance(node := item.instruction, Constant) and node.value == 0.0 and node.type == REAL
            else item
            for item in region.statements
        ]
        return replace(region, statements=tuple(statements))

    last = way.functions[-1]
    spoiled = replace(last, body=rewrite(last.body, change))
    assert spoiled != last
    return replace(way, functions=(*way.functions[:-1], spoiled))


def test_a_way_that_cannot_run_is_told(
    measurer: DeviceMeasurer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of("vectors", tmp_path)
    usual, other = list(problem.candidates())[:2]

    def refuse(program: Program, target: object) -> HostKernels:
        if any(item.body == other.functions[-1].body for item in program.functions):
            raise Unsupported("it has too many registers")
        return HostKernels(program)

    monkeypatch.setattr(autotune, "compile_program", refuse)
    found = measurer.measure([usual, other], problem.fixed, float("inf"))
    assert found is not None
    assert str(found[1]) == f"{other.name} cannot run (it has too many registers)"


def test_nothing_is_said_where_the_time_was_up(measurer: DeviceMeasurer, tmp_path: Path) -> None:
    problem = problem_of("vectors", tmp_path)
    assert measurer.measure(list(problem.candidates()), problem.fixed, 0.0) is None


def test_the_machine_is_what_times_depend_on(measurer: DeviceMeasurer) -> None:
    assert measurer.machine == "a GPU, CUDA 13000, cuBLASLt "
    assert not measurer.has_library


def test_where_there_is_no_room_nothing_is_measured(
    measurer: DeviceMeasurer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of("vectors", tmp_path)
    ways = list(problem.candidates())

    def refuse(size: int) -> HostMemory:
        raise InputError("the GPU failed at 'allocating': out of memory")

    monkeypatch.setattr(autotune, "DeviceMemory", refuse)
    found = measurer.measure(ways, problem.fixed, float("inf"))
    assert found is not None
    assert {item.seconds for item in found} == {None}
    assert "out of memory" in str(found[0])
