"""What goes wrong with a GPU is a sentence with the kernel and its place; a driver that fails shows it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lamella
from lamella.backend import cuda
from lamella.backend.cuda import driver
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.source import Source
from lamella.cli import lamella as command
from lamella.lang.tensor import parse
from tests.support.backend.fake_driver import FakeDriver, fake_device

LAYERS = """\
import nn;
graph Layers {
    @input { x: real[4, 256]; }
    @variable { w: real[256, 256]; v: real[256, 256]; }
    @output { y: real[4, 256]; }
    @compose {
        a = nn.linear(x, w);
        y = nn.linear(a, v);
    }
}
"""
SCALE = """\
func @scale(%a: f32, %x: memref<f32x40>) {
  %0 = constant 0 : index
  %n = constant 40 : index
  foreach (%i):index=(%0),(%n) {
    %v = load %x[%i] : f32
    %w = arith.mul %a, %v : f32
    store %w, %x[%i]
  }
}
"""
X = np.ones((4, 256), np.float32)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "objects"))
    with fake_device() as found:
        yield found


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver that nobody has loaded yet."""
    found, load = FakeDriver(), ctypes.CDLL
    caches = (driver.functions, driver._open, driver._made_stream)
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name, *_: found.bind() if name == driver.LIBRARY else load(name, *_)
    )
    for item in caches:
        item.cache_clear()
    yield found
    for item in caches:
        item.cache_clear()


def written(folder: Path) -> Path:
    path = folder / "layers.sknd"
    path.write_text(LAYERS)
    return path


# --- machines on which nothing can run ---------------------------------------------------------------------------


MACHINES = [
    (
        {"attributes": {16: 80, 75: 7, 76: 0, 97: 98304, 38: 1 << 20}},
        {},
        set(),
        "has capability 7.0, and 7.5 is",
    ),
    ({"version": 11080}, {}, set(), "knows CUDA 11.8, and 12.0 is the oldest that will do"),
    ({"version": 12020}, {}, set(), "knows CUDA 12.2, and 12.3 is the oldest that will do"),  # for Hopper
    ({"devices": 0}, {}, set(), "there is no NVIDIA GPU here"),
    ({}, {"cuInit": 100}, set(), "there is no NVIDIA GPU here"),
    ({}, {"cuInit": 803}, set(), "does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    ({}, {"cuDevicePrimaryCtxRetain": 101}, set(), "failed at 'opening the GPU': CUDA_ERROR_INVALID_DEVICE"),
    (
        {},
        {},
        {"cuLibraryLoadData"},
        "has no 'cuLibraryLoadData': that of CUDA 12.0 is the oldest that will do",
    ),
]


@pytest.mark.parametrize(("facts", "failures", "lacking", "told"), MACHINES, ids=[row[3] for row in MACHINES])
def test_a_machine_without_a_gpu_that_will_do(
    library: FakeDriver,
    tmp_path: Path,
    facts: dict[str, object],
    failures: dict[str, int],
    lacking: set[str],
    told: str,
) -> None:
    """It is said by the API, by commands and by `doctor`, which goes on."""
    for name, value in facts.items():
        setattr(library, name, value)
    library.failures, library.lacking = failures, lacking
    assert told in (cuda.missing() or "")
    with pytest.raises(InputError, match="backend 'cuda' cannot run here") as caught:
        lamella.compile(written(tmp_path), backend="cuda")
    assert told in str(caught.value)
    found = CliRunner().invoke(command, ["run", str(tmp_path / "layers.sknd"), "--backend", "cuda"])
    assert found.exit_code == 1
    assert told in found.output
    found = CliRunner().invoke(command, ["doctor"])
    assert found.exit_code == 0
    assert told in found.output


# --- errors of a device ----------------------------------------------------------------------------------------


def test_too_little_memory_is_a_sentence(device: FakeDriver, tmp_path: Path) -> None:
    run: Any = lamella.compile(written(tmp_path), backend="cuda")
    device.failures["cuMemAlloc_v2"] = 2
    with pytest.raises(
        LamellaError, match=r"failed at 'allocating \d+ bytes': CUDA_ERROR_OUT_OF_MEMORY"
    ) as caught:
        run(x=X)
    assert caught.value.findings[0].hint == "a smaller batch, or a device with more memory"
    device.failures.clear()
    assert run(x=X)["y"].shape == (4, 256)


def test_a_kernel_that_fails_is_named_with_its_line(device: FakeDriver) -> None:
    kernels = cuda.compile_program(parse(Source("scale.tensor", SCALE)).program)
    device.breaks_at = 0
    with pytest.raises(
        LamellaError, match=r"running @scale', after @scale \(scale.tensor:1\): CUDA_ERROR_ILL"
    ):
        kernels.scale(2.0, np.ones(40, np.float32))


@pytest.mark.parametrize("runs", [0, 1, 3])
def test_launches_that_fail_are_named_with_their_lines(device: FakeDriver, tmp_path: Path, runs: int) -> None:
    """The last ones are named, where they are a graph of launches too: the device tells nobody which it was."""
    path = written(tmp_path)
    run: Any = lamella.compile(path, backend="cuda")
    for _ in range(runs):
        run(x=X)
    assert device.graphs == int(runs > 1)
    device.breaks_at = 0
    with pytest.raises(LamellaError) as caught:
        run(x=X)
    words = str(caught.value)
    assert "the GPU failed at 'running a launch list', after @" in words
    assert f"{path}:7" in words
    assert f"{path}:8" in words
    assert "CUDA_LAUNCH_BLOCKING=1 names the one that failed" in caught.value.findings[0].hint


@pytest.mark.parametrize("place", [0, 1])
def test_launches_that_wait_for_each_other_tell_which_failed(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setenv(driver.BLOCKING, "1")
    path = written(tmp_path)
    run: Any = lamella.compile(path, backend="cuda")
    for _ in range(3):
        run(x=X)
    assert not device.graphs
    each = len(device.launches) // 3
    assert each == 2
    device.breaks_at = len(device.launches) + place
    with pytest.raises(LamellaError, match=rf"failed at 'running @\S+ \({path}:{7 + place} "):
        run(x=X)


def test_launches_of_a_kept_graph_are_named_with_lines_of_the_model(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept has words of the origin alone, of the library first."""
    monkeypatch.setenv(driver.BLOCKING, "1")
    path = tmp_path / "softmax.sknd"
    path.write_text(LAYERS.replace("nn.linear(a, v)", "nn.softmax{axes=[1]}(a)"))
    for _ in range(2):
        run: Any = lamella.compile(path, backend="cuda")
        run(x=X)
        device.breaks_at = len(device.launches) + 1
        with pytest.raises(LamellaError, match=rf"failed at 'running @\S+ \({path}:8 "):
            run(x=X)
        device.breaks_at = None


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (2, "the GPU failed at 'assembling PTX': CUDA_ERROR_OUT_OF_MEMORY"),
        (
            222,
            "the driver refuses code that the compiler wrote: the GPU failed at 'assembling PTX': error 222",
        ),
    ],
)
def test_code_that_does_not_come_to_the_device(
    device: FakeDriver, tmp_path: Path, code: int, told: str
) -> None:
    run: Any = lamella.compile(written(tmp_path), backend="cuda")
    device.failures["cuLibraryLoadData"] = code
    with pytest.raises(LamellaError) as caught:
        run(x=X)
    assert caught.value.findings[0].message == told


def test_a_list_that_found_no_room_runs_when_there_is_some(device: FakeDriver, tmp_path: Path) -> None:
    run: Any = lamella.compile(written(tmp_path), backend="cuda")
    device.failures["cuLibraryLoadData"] = 2
    for _ in range(2):
        with pytest.raises(LamellaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
            run(x=X)
    device.failures.clear()
    run(x=X)
    assert len(device.launches) == 2


def test_a_stream_that_cannot_be_made(device: FakeDriver, tmp_path: Path) -> None:
    device.failures["cuStreamCreate"] = 2
    found = CliRunner().invoke(command, ["run", str(written(tmp_path)), "--backend", "cuda"])
    assert found.exit_code == 1
    assert "CUDA_ERROR_OUT_OF_MEMORY" in found.output


def test_what_fails_while_launches_are_recorded_is_told(device: FakeDriver) -> None:
    """The end of the recording fails then, too, and says nothing of why."""
    stream = driver.own_stream()
    stream.launched.append("@before")

    def record() -> None:
        stream.launched.append("@wrong")
        device.failures["cuStreamEndCapture"] = 700
        raise InputError("a launch is wrong")

    with pytest.raises(InputError, match="a launch is wrong"):
        driver.LaunchGraph(stream, record)
    assert (list(stream.launched), stream.is_recording) == (["@before"], False)
    with pytest.raises(InputError, match="failed at 'recording launches', after @last"):
        driver.LaunchGraph(stream, lambda: stream.launched.append("@last"))
