"""Arrays, errors and graphs on a GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend import cuda, interpreter
from tests.support.differential.running import read

pytestmark = pytest.mark.gpu
SCALE = """
func @scale(%a: f32, %x: memref<f32x?>) {
  %0 = constant 0 : index
  %n = size %x[0] : index
  foreach (%i):index=(%0),(%n) {
    %v = load %x[%i] : f32
    %w = arith.mul %a, %v : f32
    store %w, %x[%i]
  }
}
"""
GATHER = """
func @gather(%x: memref<f32x?>, %at: memref<i32x?>, %y: memref<f32x?>) {
  %0 = constant 0 : index
  %n = size %y[0] : index
  foreach (%i):index=(%0),(%n) {
    %place = load %at[%i] : i32
    %p = cast %place : index
    %v = load %x[%p] : f32
    store %v, %y[%i]
  }
}
"""
LAYERS = """
import nn, math, layout;
graph Layers {
    @input { x: real[2, 3, 16, 16]; }
    @variable { w: real[8, 3, 3, 3]; b: real[8]; v: real[10, 8]; c: real[10]; }
    @output { y: real[2, 10]; }
    @compose {
        t = nn.conv{padding=1}(x, w, b); r = nn.relu(t); m = math.mean_reduce{axes=[2, 3]}(r);
        s = layout.reshape{shape=[2, 8]}(m); z = nn.linear(s, v, c); y = nn.softmax{axes=[1]}(z);
    }
}
"""

BETWEEN = """
func @f(%x: memref<f32x8,strided<?>>, %y: memref<f32x8,strided<?>>) {
  %0 = constant 0 : index
  %n = constant 8 : index
  %two = constant 2.0 : f32
  foreach (%i)=(%0),(%n) {
    %a = load %x[%i] : f32
    %b = load %y[%i] : f32
    %c = arith.add %a, %b : f32
    %d = arith.mul %a, %two : f32
    store %c, %y[%i]
    store %d, %x[%i]
  }
}
"""
MEMBERS = """
func @f(%x: group<memref<f32x?x?>x?>, %y: group<memref<f32x?>x?>) {
  %g = builtin.group_id : index
  %A = load %x[%g] : memref<f32x?x?>
  %b = load %y[%g] : memref<f32x?>
  %one = constant 1.0 : f32
  sum.n.atomic %one, %A, %one, %b
}
"""


@pytest.mark.parametrize("starts", [(0, 1), (3, 2), (2, 3)])
def test_arrays_of_the_host_that_lie_between_each_other(starts: tuple[int, int]) -> None:
    memory = np.arange(20, dtype=np.float32)
    want = memory.copy()
    x, y = (want[start : start + 15 : 2] for start in starts)
    y += x
    x *= 2
    cuda.compile_program(read(BETWEEN)).call("f", [memory[start : start + 15 : 2] for start in starts])
    np.testing.assert_array_equal(memory, want)


def test_members_of_a_group_that_share_memory_of_the_host() -> None:
    """Each work-group adds to a part of one array, as on the processor."""
    items = [np.full((3, count), count, np.float32, order="F") for count in (2, 0, 3, 1)]
    found = []
    for backend in (interpreter, cuda):
        memory = np.arange(6, dtype=np.float32)
        members = [memory[:3], memory[1:4], memory[1:4], memory[3:]]
        backend.compile_program(read(MEMBERS)).call("f", [items, members], 4)
        found.append(memory)
    np.testing.assert_array_equal(found[1], found[0])


def test_arrays_of_host_and_device() -> None:
    kernels = cuda.compile_program(read(SCALE))
    host = np.arange(1000, dtype=np.float32)
    there = cuda.to_device(host)
    kernels.scale(2.0, host)
    np.testing.assert_array_equal(host, 2 * np.arange(1000, dtype=np.float32))
    kernels.scale(3.0, there)
    np.testing.assert_array_equal(there.numpy(), 3 * np.arange(1000, dtype=np.float32))


def torch_with_gpu() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU here")
    return torch


def test_torch_shares_memory() -> None:
    torch = torch_with_gpu()
    kernels = cuda.compile_program(read(SCALE))
    tensor = torch.arange(100, dtype=torch.float32, device="cuda")
    kernels.scale(2.0, tensor)
    assert (tensor.cpu().numpy() == 2 * np.arange(100)).all()
    kernels.scale(3.0, tensor[10:20])  # at an offset, and nothing else
    want = np.arange(100) * np.where((np.arange(100) >= 10) & (np.arange(100) < 20), 6, 2)
    assert (tensor.cpu().numpy() == want).all()
    with pytest.raises(lamella.LamellaError, match="detach"):
        kernels.scale(2.0, torch.zeros(4, device="cuda", requires_grad=True))
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        narrow = torch.arange(8, device="cuda", dtype=torch.float32).to(dtype)
        assert (cuda.to_device(narrow).numpy().astype(np.float32) == np.arange(8)).all()
    shared = torch.from_dlpack(cuda.to_device(np.arange(6, dtype=np.float32).reshape(2, 3)))
    assert shared.is_cuda
    assert shared.cpu().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_torch_has_begun_is_waited_for() -> None:
    """A tensor that a stream of torch still makes is there when a kernel reads it, and the other way round."""
    torch = torch_with_gpu()
    kernels = cuda.compile_program(read(SCALE))
    tensor = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            tensor.zero_()
            torch.cuda._sleep(200_000_000)
            tensor += 5
            kernels.scale(2.0, tensor)
            assert float((tensor - 10).abs().max()) == 0
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        told = {**cuda.to_device(tensor).__cuda_array_interface__, "stream": stream.cuda_stream}
        tensor.fill_(7)
    kernels.scale(2.0, SimpleNamespace(__cuda_array_interface__=told))
    assert float((tensor - 14).abs().max()) == 0


def test_cupy_shares_memory() -> None:
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    kernels = cuda.compile_program(read(SCALE))
    array = cupy.arange(100, dtype=cupy.float32)
    kernels.scale(2.0, array[50:])
    assert (array.get() == np.arange(100) * np.where(np.arange(100) < 50, 1, 2)).all()
    assert cupy.from_dlpack(cuda.to_device(np.arange(3, dtype=np.float32))).get().tolist() == [0, 1, 2]
    with pytest.raises(lamella.LamellaError, match="stride"):
        kernels.scale(2.0, array[::-1])


def test_addresses_of_the_host_are_refused() -> None:
    host = np.zeros(8, np.float32)
    told = {"shape": (8,), "typestr": "<f4", "data": (host.ctypes.data, False), "version": 3, "stream": None}
    with pytest.raises(lamella.LamellaError, match="says that it lies on a GPU does not"):
        cuda.to_device(SimpleNamespace(__cuda_array_interface__=told))


def test_accesses_that_data_decide_are_tested() -> None:
    kernels = cuda.compile_program(read(GATHER))
    x, y = np.arange(4, dtype=np.float32), np.zeros(2, np.float32)
    kernels.gather(x, np.array([3, 1], np.int32), y)
    assert y.tolist() == [3, 1]
    with pytest.raises(lamella.LamellaError, match="leaves"):
        kernels.gather(x, np.array([3, 4], np.int32), y)


def test_a_graph(tmp_path: Path) -> None:
    path = tmp_path / "layers.sknd"
    path.write_text(LAYERS)
    x = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
    run: Any = lamella.compile(path, backend="cuda")
    want = lamella.compile(path, backend="reference")(x=x)["y"]
    for _ in range(3):
        np.testing.assert_allclose(run(x=x)["y"], want, rtol=1e-4, atol=1e-6)
    assert all(item.where == "kernel" for item in run.placement)
    np.testing.assert_allclose(
        run(x=-x)["y"], lamella.compile(path, backend="reference")(x=-x)["y"], rtol=1e-4
    )
