"""Batches that are copied beside launches: the same numbers as one run after the other, and what waits for what.

The driver copies as late as it may, so that a wait that lacks gives other numbers, and its launches compute what a
test says.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lamella
from lamella.backend import cuda
from lamella.backend.cuda.arrays import DeviceArray
from lamella.backend.cuda.driver import own_stream
from lamella.backend.cuda.transfers import DeviceTransfers
from lamella.backend.executor.results import RunResult
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from tests.support.backend.lazy_driver import LazyDriver, lazy_device

SCALE = """
import math;
graph Scale {
    @input { x: real[4, 64]; }
    @output { y: real[4, 64]; }
    @compose { t = math.mul(x, 3.0); y = math.add(t, 1.0); }
}
"""
SUMS = """
import math;
graph Sums {
    @input { x: real[4, 64]; }
    @variable { s: real[4, 64]; }
    @output { y: real[4, 64]; }
    @compose { next = math.add(s, x); y = math.mul(next, 3.0); }
    @update { s = next; }
}
"""
PICKED = """
import layout, math;
graph Picked {
    @input { x: real[4, 64]; i: int[4]; }
    @variable { s: real[4, 64]; w: real[8, 64]; }
    @output { y: real[4, 64]; }
    @compose {
        rows = layout.gather{axis=0}(w, i);
        scaled = math.mul(rows, x);
        next = math.add(s, scaled);
        y = math.mul(next, 3.0);
    }
    @update { s = next; }
}
"""
ROWS = """
import layout;
graph Rows {
    @input { x: int[4]; }
    @variable { w: real[8, 64]; }
    @output { y: real[4, 64]; }
    @compose { y = layout.gather{axis=0}(w, x); }
}
"""
PLACES = """
import layout, math;
graph Places {
    @input { x: real[4, 64]; }
    @output { y: real[4, 64]; places: int[~, ~]; }
    @compose { y = math.mul(x, 3.0); places = layout.nonzero(x); }
}
"""
SHAPE = (4, 64)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LazyDriver]:
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "objects"))
    with lazy_device() as found:
        yield found


def compiled(folder: Path, text: str, **options: Any) -> Any:
    path = folder / "model.sknd"
    path.write_text(text)
    return lamella.compile(path, backend="cuda", **options)


def numbers(count: int) -> list[Array]:
    return [
        np.random.default_rng(number).standard_normal(SHAPE).astype(np.float32) for number in range(count)
    ]


def seen(run: Any, name: str) -> Array:
    """What a buffer of the device holds for an input or an output of the launches, as an array of the host."""
    each = run.only_segment().each if hasattr(run, "only_segment") else run.whole_segment().each
    view = each.whole.inputs[name] if name in each.whole.inputs else each.whole.outputs[name]
    place = each._buffers.address(view)
    return np.ctypeslib.as_array((ctypes.c_float * 256).from_address(place)).reshape(SHAPE)


def scaled(run: Any) -> Callable[[], None]:
    """What the launches of SCALE compute."""

    def compute() -> None:
        seen(run, "y")[...] = seen(run, "x") * 3 + 1

    return compute


def test_numbers_are_those_of_one_run_after_the_other(device: LazyDriver, tmp_path: Path) -> None:
    run = compiled(tmp_path, SCALE)
    device.compute = scaled(run)
    want = [x * 3 + 1 for x in numbers(7)]
    room = np.zeros(SHAPE, np.float32)

    def refilled() -> Iterator[dict[str, Array]]:
        for x in numbers(7):
            room[...] = x
            yield {"x": room}

    batches: list[Any] = [
        ({"x": x} for x in numbers(7)),
        refilled(),
        [{"x": x.astype(float)} for x in numbers(7)],
    ]
    for source in batches:
        found = [item["y"] for item in run.map(source)]
        np.testing.assert_array_equal(found, want)
    found = list(run.map(refilled(), out="device"))
    assert all(isinstance(item["y"], DeviceArray) for item in found)
    np.testing.assert_array_equal([item["y"].numpy() for item in found], want)
    assert list(run.map([])) == []


def test_a_run_does_not_wait_for_copies_beside_it(device: LazyDriver, tmp_path: Path) -> None:
    """The next batch is copied while one runs, outputs while the next one does; each stream waits for the other."""
    run = compiled(tmp_path, SCALE)
    list(run.map({"x": x} for x in numbers(3)))
    device.log.clear()
    assert len(list(run.map({"x": x} for x in numbers(3)))) == 3
    own = own_stream().handle
    coming, leaving = (item.handle for item in run._device.transfers._both())
    assert len({own, coming, leaving}) == 3
    arrive = [("to device", coming), ("record", coming)]
    begin = [("wait for", own), ("inside", own), ("launch", own)]
    end = [("inside", own), ("host waits for", own)]
    leave = [("record", own), ("wait for", leaving), ("to host", leaving), ("record", leaving)]
    home = [("host waits for event of", leaving)]
    assert device.log == [
        *arrive, *begin,
        *arrive, *end, *leave, *begin, *home,
        *arrive, *end, *leave, *begin, *home,
        *end, *leave, *home,
    ]  # fmt: skip


@pytest.mark.parametrize("lacking", ["cuStreamWaitEvent", "cuEventSynchronize"])
def test_a_wait_that_lacks_gives_other_numbers(device: LazyDriver, tmp_path: Path, lacking: str) -> None:
    """The judge of the tests above has teeth."""
    run = compiled(tmp_path, SCALE)
    device.compute = scaled(run)
    device.skipped = lacking
    found = [item["y"] for item in run.map({"x": x} for x in numbers(7))]
    assert not np.array_equal(found, [x * 3 + 1 for x in numbers(7)])


def test_memory_is_used_again_and_given_back(device: LazyDriver, tmp_path: Path) -> None:
    run = compiled(tmp_path, SCALE)
    run(x=numbers(1)[0])
    before = len(device._memory)
    counts = [len(device._memory) - before for _ in run.map({"x": x} for x in numbers(20))]
    assert max(counts) <= 8  # two of each: pinned and not, for the input and for the output
    gc.collect()
    assert len(device._memory) == before


def test_states_are_those_of_the_batches_that_were_handed_out(device: LazyDriver, tmp_path: Path) -> None:
    run = compiled(tmp_path, SUMS, seed=1)
    for _ in range(2):
        run(x=numbers(1)[0])  # from now on the launches are one
    start = np.array(run.state["s"])

    def compute() -> None:
        seen(run, "s")[...] += seen(run, "x")
        seen(run, "y")[...] = seen(run, "s") * 3

    device.compute = compute
    want = start
    for number, found in enumerate(run.map({"x": x} for x in numbers(6))):
        want = want + numbers(6)[number]
        np.testing.assert_array_equal(found["y"], want * 3)
        np.testing.assert_array_equal(run.state["s"], want)
        if number == 4:
            break
    gc.collect()
    np.testing.assert_array_equal(run.state["s"], want)


def test_who_asks_for_a_state_meanwhile_waits_for_it(
    device: LazyDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are asked for while a run is under way, whose last launches change the state."""
    run = compiled(tmp_path, PICKED, seed=1)
    batch: dict[str, Array] = {"x": np.ones(SHAPE, np.float32), "i": np.arange(4)}
    run(**batch)
    each, one = run.only_segment().each, np.ones(SHAPE, np.float32)
    assert len(each._ranges()) == 2
    launch = each._run_range

    def count() -> None:
        seen(run, "s")[...] += 1

    def launch_and_count(number: int, times: Any) -> None:
        launch(number, times)
        if number == 1:
            device._give("count", own_stream().handle, count)

    monkeypatch.setattr(each, "_run_range", launch_and_count)
    run.state = {**run.state, "s": 0 * one}
    told: list[float] = []

    def source() -> Iterator[dict[str, Array]]:
        for _ in range(4):
            told.append(float(run.state["s"][0, 0]))
            yield batch

    assert len(list(run.map(source()))) == 4
    assert told == [0, 1, 2, 3]
    np.testing.assert_array_equal(run.state["s"], 4 * one)

    def starting_again() -> Iterator[dict[str, Array]]:
        yield batch
        yield batch
        run.restart({"s": 0 * one})
        yield batch

    assert len(list(run.map(starting_again()))) == 3
    np.testing.assert_array_equal(run.state["s"], one)


def test_streams_go_with_their_executable(device: LazyDriver, tmp_path: Path) -> None:
    run = compiled(tmp_path, SCALE)
    before = set(device.streams)
    list(run.map({"x": x} for x in numbers(3)))
    assert len(device.streams - before) == 2
    del run
    gc.collect()
    assert device.streams == before


@pytest.mark.parametrize("backend", ["cuda", "cpu", "reference"])
def test_what_is_no_batch_is_a_sentence(device: LazyDriver, tmp_path: Path, backend: str) -> None:
    path, x = tmp_path / "model.sknd", numbers(1)[0]
    path.write_text(SCALE)
    run: Any = lamella.compile(path, backend=backend)
    run(x=x)
    for wrong in (x, [x], None, "x"):
        found = []
        with pytest.raises(InputError, match=f"by their names, not as '{type(wrong).__name__}'"):
            found.extend(run.map([{"x": x}, wrong, {"x": x}]))
        assert len(found) == 1
        with pytest.raises(InputError, match="by their names"):
            run.run(wrong)
    for no_batches in ({"x": x}, 5, None):
        kind = type(no_batches).__name__
        with pytest.raises(InputError, match=f"after the other, and this is a single '{kind}'"):
            run.map(no_batches)
    with pytest.raises(InputError, match="cannot go to what is of type 'dict'"):
        run.map([{"x": x}], out={"y": x})


def bad_rows(run: Any) -> Callable[[], None]:
    """Says what a kernel would of indices outside of the table."""

    def compute() -> None:
        each = run.only_segment().each if hasattr(run, "only_segment") else run.whole_segment().each
        places = (ctypes.c_int64 * 4).from_address(each._buffers.address(each.whole.inputs["x"]))
        if max(places) >= 8:
            ctypes.memset(each._flags._held[0].address, 1, 1)

    return compute


def test_a_fault_is_raised_for_its_batch(
    device: LazyDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launches of the batch behind it have not begun, and the formulas are given what it was given."""

    def refuse(run: Any, taken: Any, extents: object) -> RunResult:
        run._settle()
        raise InputError(f"{taken['x'].tolist()} leaves, after {len(device.launches)} launches")

    run = compiled(tmp_path, ROWS, seed=1)
    run(x=np.arange(4))
    monkeypatch.setattr(type(run), "_run_nodes", refuse)
    device.compute = bad_rows(run)
    device.launches.clear()
    batches = [np.array(row) for row in ([0, 1, 2, 3], [4, 5, 6, 7], [1, 1, 9, 1], [0, 0, 0, 0])]
    taken: list[int] = []

    def source() -> Iterator[dict[str, Array]]:
        for number, row in enumerate(batches):
            taken.append(number)
            yield {"x": row}

    found: list[dict[str, Array]] = []
    with pytest.raises(InputError, match=r"\[1, 1, 9, 1\] leaves, after 3 launches"):
        found.extend(iter(run.map(source())))
    assert len(found) == 2
    assert taken == [0, 1, 2, 3]
    assert run(x=np.arange(4))["y"].shape == SHAPE


def test_wrong_inputs_are_told_in_their_turn(device: LazyDriver, tmp_path: Path) -> None:
    run = compiled(tmp_path, SCALE)
    device.compute = scaled(run)
    x = numbers(1)[0]
    for wrong in ({"x": x[:3]}, {"x": "abc"}, {"z": x}, {"x": x.astype(int)}):
        found = []
        with pytest.raises(LamellaError):
            found.extend(run.map([{"x": x}, {"x": x + 1}, wrong, {"x": x}]))
        np.testing.assert_array_equal([item["y"] for item in found], [x * 3 + 1, (x + 1) * 3 + 1])
    np.testing.assert_array_equal(run(x=x)["y"], x * 3 + 1)


def test_what_batches_raise_comes_behind_the_last_outputs(device: LazyDriver, tmp_path: Path) -> None:
    run = compiled(tmp_path, SCALE)
    device.compute = scaled(run)

    def source() -> Iterator[dict[str, Array]]:
        for x in numbers(3):
            yield {"x": x}
        raise OSError("no more")

    run(x=numbers(1)[0])
    before = len(device._memory)
    found: list[Array] = []
    with pytest.raises(OSError, match="no more"):
        found.extend(item["y"] for item in run.map(source()))
    np.testing.assert_array_equal(found, [x * 3 + 1 for x in numbers(3)])
    gc.collect()
    assert len(device._memory) == before


def test_a_device_that_fails_says_so(device: LazyDriver, tmp_path: Path) -> None:
    run = compiled(tmp_path, SCALE)
    found = run.map({"x": x} for x in numbers(5))
    next(found)
    device.breaks_at = 0
    with pytest.raises(InputError, match="running a launch list"):
        next(found)
    device.breaks_at, device.failures["cuEventSynchronize"] = None, 700
    with pytest.raises(InputError, match="copying outputs to the host"):
        list(run.map({"x": x} for x in numbers(5)))


def test_other_runs_may_come_between(device: LazyDriver, tmp_path: Path) -> None:
    run = compiled(tmp_path, SCALE)
    device.compute = scaled(run)
    for number, found in enumerate(run.map({"x": x} for x in numbers(5))):
        other = numbers(9)[8]
        np.testing.assert_array_equal(run(x=other)["y"], other * 3 + 1)
        np.testing.assert_array_equal(found["y"], numbers(5)[number] * 3 + 1)
        inner = [item["y"] for item in run.map([{"x": other}] * 2)]
        np.testing.assert_array_equal(inner, [other * 3 + 1] * 2)
        if number == 3:
            break
    np.testing.assert_array_equal(run(x=other)["y"], other * 3 + 1)


def test_arrays_of_the_device_are_batches_too(device: LazyDriver, tmp_path: Path) -> None:
    run = compiled(tmp_path, SCALE)
    device.compute = scaled(run)
    found = [item["y"] for item in run.map({"x": cuda.to_device(x)} for x in numbers(4))]
    np.testing.assert_array_equal(found, [x * 3 + 1 for x in numbers(4)])


def test_what_the_host_computes_is_no_way_around(device: LazyDriver, tmp_path: Path) -> None:
    run = compiled(tmp_path, PLACES)
    batches = [(x > 1).astype(np.float32) for x in numbers(4)]
    for place in (None, "device"):
        for x, found in zip(batches, run.map(({"x": x} for x in batches), out=place), strict=True):
            np.testing.assert_array_equal(np.asarray(found["places"]), np.argwhere(x).T)


def test_narrow_outputs_come_as_outsiders_read_them(device: LazyDriver) -> None:
    transfers = DeviceTransfers()
    array = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    upload = transfers.upload({"x": array, "none": array[:0]})
    upload.enter()
    download = transfers.download(dict(upload.arrays))  # type: ignore[arg-type]
    found = download.outputs()
    assert found["x"].dtype == np.float32
    np.testing.assert_array_equal(found["x"], np.arange(6).reshape(2, 3))
    assert found["none"].shape == (0, 3)


def test_other_backends_run_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "model.sknd"
    path.write_text(SUMS)
    for backend in ("reference", "cpu"):
        run: Any = lamella.compile(path, backend=backend, seed=1)
        judge: Any = lamella.compile(path, backend=backend, seed=1)
        taken: list[int] = []

        def source(taken: list[int] = taken) -> Iterator[dict[str, Array]]:
            for number, x in enumerate(numbers(4)):
                taken.append(number)
                yield {"x": x}

        for number, found in enumerate(run.map(source())):
            np.testing.assert_array_equal(found["y"], judge(x=numbers(4)[number])["y"])
            assert taken[-1] == number
        with pytest.raises(InputError, match="this backend has none"):
            run.map([], out="device")
        with pytest.raises(InputError, match="cannot go to 'there'"):
            run.map([], out="there")


@pytest.mark.gpu
@pytest.mark.parametrize("text", [SCALE, SUMS])
def test_batches_on_a_gpu(tmp_path: Path, text: str) -> None:
    wide = text.replace("[4, 64]", "[512, 4096]")
    batches = [
        np.random.default_rng(number).standard_normal((512, 4096)).astype(np.float32) for number in range(24)
    ]
    run, judge = (compiled(tmp_path, wide, seed=1) for _ in range(2))
    for place in (None, "device"):
        for number, found in enumerate(run.map(({"x": x} for x in batches), out=place)):
            want = judge(x=batches[number])["y"]
            np.testing.assert_array_equal(np.asarray(found["y"]), want)


@pytest.mark.gpu
def test_faults_of_batches_on_a_gpu(tmp_path: Path) -> None:
    run = compiled(tmp_path, ROWS, seed=1)
    rows = [np.array(row) for row in ([0, 1, 2, 3], [4, 5, 6, 7], [1, 1, 9, 1], [0, 0, 0, 0])]
    for _ in range(3):
        found = []
        with pytest.raises(LamellaError):
            found.extend(run.map({"x": row} for row in rows))
        table = run.state["w"]
        np.testing.assert_array_equal([item["y"] for item in found], [table[row] for row in rows[:2]])
