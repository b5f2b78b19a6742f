"""Several threads of Python with one GPU: what one of them does is no part of what another one records."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend import cuda
from lamella.backend.cuda.arrays import DeviceMemory
from lamella.backend.cuda.driver import LaunchGraph, own_stream
from lamella.backend.cuda.kernels import CudaKernels
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from tests.backend.cuda.test_cuda_errors import SCALE
from tests.support.backend.fake_driver import FakeDriver, fake_device
from tests.support.differential.running import read

SUMS = """
import math, nn;
graph Sums {
    @input { x: real[4, 64]; }
    @variable { w: real[64, 64]; }
    @output { y: real[4, 64]; }
    @compose { h = nn.linear(x, w); y = math.add(h, NUMBER); }
}
"""


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "objects"))
    with fake_device() as found:
        yield found


def test_other_threads_wait_while_launches_are_recorded(device: FakeDriver) -> None:
    memory, stream, is_done = DeviceMemory(64), own_stream(), threading.Event()
    kernels = cuda.compile_program(read(SCALE))

    def work() -> None:
        memory.fill(own_stream())
        kernels.scale(2.0, np.zeros(40, np.float32))
        is_done.set()

    other = threading.Thread(target=work)

    def record() -> None:
        other.start()
        assert not is_done.wait(0.2)
        memory.fill(stream)

    LaunchGraph(stream, record)
    other.join()
    assert is_done.is_set()
    assert device.filled == 128
    assert len(device.launches) == 1  # which is no part of the graph


def test_all_threads_have_one_stream(device: FakeDriver) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: own_stream(), range(64)))
    assert len(set(map(id, found))) == 1


def test_a_thread_that_comes_new_has_the_device(device: FakeDriver, tmp_path: Path) -> None:
    """Whatever it does first: the context of a device is that of a thread."""
    x = np.zeros((4, 64), np.float32)
    array, kernels = cuda.to_device(x), cuda.compile_program(read(SCALE))
    path = tmp_path / "sums.sknd"
    launch = kernels.bind("scale", [2.0, cuda.to_device(np.zeros(40, np.float32))])
    path.write_text(SUMS.replace("NUMBER", "1.0"))
    run: Any = lamella.compile(path, backend="cuda")
    run(x=x)
    works: list[Any] = [
        array.numpy, array.__dlpack__, launch.launch, launch.wait, lambda: cuda.to_device(x), lambda: run(x=array),
        lambda: run.state, lambda: run.profile({"x": x}), lambda: kernels.scale(2.0, np.zeros(40, np.float32)),
        lambda: cuda.to_device(SimpleNamespace(__cuda_array_interface__=array.__cuda_array_interface__)),
    ]  # fmt: skip
    for work in works:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(work).result()


def test_memory_is_given_back_by_whichever_thread_drops_it(device: FakeDriver) -> None:
    held = [DeviceMemory(64)]
    address = held[0].address
    assert address in device._memory
    with ThreadPoolExecutor(1) as pool:
        pool.submit(held.clear).result()
    assert address not in device._memory


def test_launches_keep_the_arrays_that_they_have(device: FakeDriver) -> None:
    kernels: CudaKernels = cuda.compile_program(read(SCALE))
    array = cuda.to_device(np.zeros(40, np.float32))
    kept = weakref.ref(array)
    launch = kernels.bind("scale", [2.0, array])
    del array
    gc.collect()
    assert kept() is not None
    launch.launch()
    launch.wait()
    del launch
    gc.collect()
    assert kept() is None


def test_what_cannot_be_launched_again_and_again_is_refused(device: FakeDriver) -> None:
    kernels: CudaKernels = cuda.compile_program(read(SCALE))
    array = cuda.to_device(np.zeros(40, np.float32))
    with pytest.raises(InputError, match="is to write an array of the host whenever it is launched"):
        kernels.bind("scale", [2.0, np.zeros(40, np.float32)])
    for name, arguments, groups in (("scal", [2.0, array], 1), ("scale", [], 1), ("scale", [2.0, array], -1)):
        with pytest.raises(LamellaError, match="kernel"):
            kernels.bind(name, arguments, groups)
    kernels.bind("scale", [2.0, array], 0).launch()
    assert not device.launches
    kernels.bind("scale", [2.0, array], (2, 1, 1)).launch()
    assert len(device.launches) == 1


def test_more_work_groups_than_a_device_takes_are_refused(device: FakeDriver) -> None:
    """The grid has 31 bits: a larger number would be cut to what is left of it."""
    kernels = cuda.compile_program(
        read(SCALE.replace("{\n  %0", "attributes{work_group_size=[128,1]} {\n  %0", 1))
    )
    with pytest.raises(InputError, match=r"has 4294967297 work-groups, and a GPU takes 2147483647"):
        kernels.scale(2.0, np.zeros(40, np.float32), groups=(1 << 32) + 1)
    assert not device.launches


# --- numbers, on a GPU ---------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_models_of_several_threads_give_their_own_numbers(tmp_path: Path) -> None:
    """Each thread has a model of its own; some record their graphs while others run."""
    x = np.linspace(-1, 1, 256, dtype=np.float32).reshape(4, 64)

    def run(number: int) -> bool:
        path = tmp_path / f"sums{number}.sknd"
        path.write_text(SUMS.replace("NUMBER", f"{number}.0"))
        model: Any = lamella.compile(path, backend="cuda", seed=number)
        judge: Any = lamella.compile(path, backend="reference", seed=number)
        want = judge(x=x)["y"]
        return all(np.allclose(model(x=x)["y"], want, rtol=1e-4, atol=1e-4) for _ in range(40))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(12)))


@pytest.mark.gpu
def test_one_kernel_of_several_threads() -> None:
    kernels = cuda.compile_program(read(SCALE))

    def run(number: int) -> bool:
        array = np.full(40, number, np.float32)
        for _ in range(50):
            kernels.scale(1.0, array)
        return bool((array == number).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(64)))
