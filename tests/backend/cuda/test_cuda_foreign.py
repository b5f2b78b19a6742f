"""Arrays that other libraries share with a GPU: by DLPack and by `__cuda_array_interface__`, never a copy of them.

A driver that computes nothing is enough to see where arrays lie, what is waited for and what is refused.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import lamella
from lamella.backend import cuda
from lamella.backend.arguments import Arrays
from lamella.backend.cuda import dlpack
from lamella.backend.cuda.arrays import DeviceArray
from lamella.backend.cuda.driver import own_stream
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from tests.support.backend.fake_driver import FakeDriver, fake_device
from tests.support.differential.running import read

SCALE = """
func @scale(%a: f32, %x: memref<f32x?x?,strided<?,?>>, %y: memref<f32x?>) {
  %0 = constant 0 : index
  %n = size %y[0] : index
  foreach (%i):index=(%0),(%n) {
    %v = load %x[%i,%0] : f32
    %w = arith.mul %a, %v : f32
    store %w, %y[%i]
  }
}
"""
SUMS = """
func @sums(%x: group<memref<f32x4>x?>, %y: memref<f32x4>) {
  %0 = constant 0 : index
  %g = load %x[%0] : memref<f32x4>
  %n = constant 4 : index
  foreach (%i):index=(%0),(%n) {
    %v = load %g[%i] : f32
    store %v, %y[%i]
  }
}
"""
TYPES = [
    *map(np.dtype, ("f4", "f8", "f2", "i1", "i4", "i8", "u1", "?", "c8", "c16")),
    *map(np.dtype, (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)),
]


@pytest.fixture
def device() -> Iterator[FakeDriver]:
    with fake_device() as found:
        yield found


def described(shape: tuple[float, ...] = (4,), kind: str = "<f4", **more: Any) -> Any:
    """An array of a library that only describes what it has."""
    told = {"shape": shape, "typestr": kind, "data": (4096, False), "version": 3, "stream": None, **more}
    return SimpleNamespace(__cuda_array_interface__=told)


class Handed:
    """An array of a library that hands it over by DLPack."""

    def __init__(self, array: DeviceArray, where: tuple[int, int] = (2, 0), is_old: bool = False) -> None:
        self.array, self.where, self.is_old = array, where, is_old
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.where

    def __dlpack__(self, *, stream: int, **more: Any) -> object:
        if self.is_old and more:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        layout = dlpack.ArrayLayout(
            self.array.address, self.array.shape, self.array.dtype, self.array.strides, self.array.is_writable,
            self.array, self.where,
        )  # fmt: skip
        return dlpack.make_capsule(layout, bool(more))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("is_old", [False, True])
def test_an_array_comes_back_as_it_went(device: FakeDriver, dtype: np.dtype[Any], is_old: bool) -> None:
    whole = cuda.to_device(np.arange(24).reshape(4, 6).astype(dtype))
    width = dtype.itemsize
    part = DeviceArray(whole.address + 5 * width, (3, 2), dtype, (6 * width, -2 * width), whole)
    handed = Handed(part, is_old=is_old)
    found = cuda.to_device(handed)
    assert (found.address, found.shape, found.strides) == (part.address, part.shape, part.strides)
    assert found.dtype == dtype
    assert found.is_writable
    assert handed.streams == [own_stream().handle]
    np.testing.assert_array_equal(found.numpy(), np.arange(24).reshape(4, 6)[:3, 5:2:-2].astype(dtype))
    np.testing.assert_array_equal(np.asarray(found), found.numpy())


def test_what_is_handed_over_lives_as_long_as_it_is_held(device: FakeDriver) -> None:
    array = cuda.to_device(np.zeros(4, np.float32))
    found: DeviceArray | None = cuda.to_device(Handed(array))
    assert any(item[-1] is array for item in dlpack._handed.held.values())
    found = None
    gc.collect()
    assert found is None
    assert all(item[-1] is not array for item in dlpack._handed.held.values())


def test_arrays_of_others_outlive_python() -> None:
    """What is held by a module goes when all modules have gone, and is given back then."""
    script = """
        import numpy as np
        from lamella.backend.cuda.dlpack import HOST, ArrayLayout, make_capsule

        class Handed:
            def __dlpack__(self, **words):
                return make_capsule(ArrayLayout(room.ctypes.data, (4,), room.dtype, (4,), True, room, (HOST, 0)), True)

            def __dlpack_device__(self):
                return HOST, 0

        room = np.arange(4, dtype="f4")
        np.kept = np.from_dlpack(Handed())
        print(np.kept)
    """
    done = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0. 1. 2. 3.]\n", "")


def test_a_capsule_that_nobody_takes_keeps_nothing(device: FakeDriver) -> None:
    arrays = [cuda.to_device(np.zeros(4, np.float32)) for _ in range(8)]
    kept = arrays[0].__dlpack__()
    for array in arrays[1:]:
        array.__dlpack__()
    held = [item[-1] for item in dlpack._handed.held.values()]
    assert [item in held for item in arrays[:-1]] == [True] + [False] * 6
    del kept


def test_numpy_is_told_that_it_lies_elsewhere(device: FakeDriver) -> None:
    array = cuda.to_device(np.zeros(4, np.float32))
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(cast(Any, array))
    with pytest.raises(BufferError, match="copies it to the host"):
        array.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="copies it to the host"):
        array.__dlpack__(copy=True)
    with pytest.raises(ValueError, match="as a copy"):
        np.asarray(array, copy=False)


def test_a_capsule_of_torch_is_read() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)[1:, ::2]
    for version in (None, (1, 0)):
        capsule = tensor.__dlpack__() if version is None else tensor.__dlpack__(max_version=version)
        found = dlpack.take_capsule(capsule)
        assert (found.address, found.shape, found.strides) == (tensor.data_ptr(), (2, 2), (8, 4))
        assert found.dtype == ml_dtypes.bfloat16
        assert found.device == (1, 0)
        with pytest.raises(InputError, match="that nobody has taken"):
            dlpack.take_capsule(capsule)


def test_read_only_arrays_are_not_written(device: FakeDriver) -> None:
    array = cuda.to_device(np.zeros(4, np.float32))
    fixed = DeviceArray(array.address, (4,), np.dtype(np.float32), owner=array, is_writable=False)
    assert fixed.__cuda_array_interface__["data"] == (array.address, True)
    with pytest.raises(BufferError, match=r"from version 1.0 on"):
        fixed.__dlpack__()
    taken = cuda.to_device(Handed(fixed))
    assert not taken.is_writable
    kernels = cuda.compile_program(read(SCALE))
    x = cuda.to_device(np.zeros((4, 2), np.float32))
    for item in (fixed, taken, described(data=(array.address, True))):
        with pytest.raises(LamellaError, match="written"):
            kernels.scale(2.0, x, item)
    kernels.scale(2.0, described((4, 2), data=(x.address, True)), array)


def test_kernels_take_strides_of_others(device: FakeDriver) -> None:
    """Slots have the address, the sizes and the strides of the array as it lies; nothing is copied."""
    kernels = cuda.compile_program(read(SCALE))
    x = cuda.to_device(np.zeros((8, 4), np.float32))
    y = cuda.to_device(np.zeros(4, np.float32))
    device.to_device = device.to_host = 0
    part = DeviceArray(x.address + 4, (4, 2), x.dtype, (32, 8), x)
    kernels.scale(2.0, Handed(part), y)
    assert device.to_host == 0
    assert device.to_device == 8 * 8  # the slots alone: a, x with two sizes and strides, y with its size
    assert len(device.launches) == 1
    with pytest.raises(LamellaError, match="stride"):
        kernels.scale(2.0, DeviceArray(x.address + 96, (4, 2), x.dtype, (-32, 4), x), y)


def test_groups_hold_arrays_of_the_device(device: FakeDriver) -> None:
    kernels = cuda.compile_program(read(SUMS))
    there = [cuda.to_device(np.zeros(4, np.float32)) for _ in range(3)]
    y = cuda.to_device(np.zeros(4, np.float32))
    for group in (there, tuple(there), Arrays(there), [Handed(there[0]), np.zeros(4, np.float32), there[2]]):  # type: ignore[arg-type]
        device.to_host = 0
        kernels.sums(group, y)
        assert device.to_host == 0
    assert len(device.launches) == 4


@pytest.mark.parametrize(
    ("stream", "waited"), [({}, [None]), ({"stream": None}, []), ({"stream": 1}, [1]), ({"stream": 77}, [77])]
)
def test_what_makes_an_array_is_waited_for(
    device: FakeDriver, stream: dict[str, Any], waited: list[int | None]
) -> None:
    told = described().__cuda_array_interface__
    del told["stream"]
    told.update(stream)
    own_stream()
    device.waits.clear()
    cuda.to_device(SimpleNamespace(__cuda_array_interface__=told))
    assert device.waits == waited


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (described(kind="<q9"), "is no array of the host or of the device"),
        (described(shape=(4, -1)), "sizes below 0"),
        (described(shape=(4,), strides=(4, 4)), "other strides than axes"),
        (described(mask=object()), "a mask"),
        (described(shape=(1,) * 65), "more than 64 axes"),
        (described(shape=(4.0,)), "is no array of the host or of the device"),
        (described(strides=(None,)), "is no array of the host or of the device"),
        (described(stream="first"), "is no array of the host or of the device"),
        (described(kind="|O"), "objects of Python"),
        (described(data=4096), "is no array of the host or of the device"),
        (SimpleNamespace(__cuda_array_interface__=7), "is no array of the host or of the device"),
        (described(data=(8192, False)), "says that it lies on a GPU does not"),
        (described(data=(12288, False)), "lies on device 3, and kernels run on device 0"),
        ([1.0, 2.0], "type 'list' is no array of the host or of the device"),
        (np.array([object()]), "objects of Python"),
    ],
)
def test_what_cannot_be_shared_is_a_sentence(device: FakeDriver, given: Any, told: str) -> None:
    device.elsewhere = {8192: -1, 12288: 3}
    with pytest.raises(InputError, match=told):
        cuda.to_device(given)


def test_arrays_of_other_devices_are_refused(device: FakeDriver) -> None:
    array = cuda.to_device(np.zeros(4, np.float32))
    with pytest.raises(InputError, match="lies on device 1, and kernels run on device 0"):
        cuda.to_device(Handed(array, (2, 1)))
    with pytest.raises(InputError, match="a device of kind 10"):
        cuda.to_device(Handed(array, (10, 0)))
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="type 'Tensor' lies on the host"):
        cuda.to_device(torch.zeros(3))
    with pytest.raises(InputError, match="no array of the host or of the device"):
        cuda.to_device(torch.zeros(3, device="meta"))
    with pytest.raises(LamellaError, match="Tensor"):
        cuda.compile_program(read(SCALE)).scale(2.0, torch.zeros((3, 2)), np.zeros(3, np.float32))


def test_tensors_that_record_gradients_say_so(device: FakeDriver) -> None:
    class Recording(Handed):
        def __dlpack__(self, *, stream: int, **more: Any) -> object:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    array = Recording(cuda.to_device(np.zeros((4, 2), np.float32)))
    with pytest.raises(InputError, match=r"use tensor.detach\(\)"):
        cuda.compile_program(read(SCALE)).scale(2.0, array, np.zeros(4, np.float32))


def test_types_that_dlpack_does_not_have(device: FakeDriver) -> None:
    array = DeviceArray(4096, (4,), np.dtype("V3"))
    with pytest.raises(BufferError, match="no type"):
        array.__dlpack__()
    odd = DeviceArray(4096, (4,), np.dtype(np.float32), (6,))
    with pytest.raises(BufferError, match="strides"):
        odd.__dlpack__()
    capsule = cuda.to_device(np.zeros(2, np.float32)).__dlpack__()
    dlpack._Managed.from_address(dlpack._pointer(capsule, dlpack.PLAIN)).tensor.lanes = 4
    with pytest.raises(InputError, match="no type for: 1 axes, code 2, 32 bits, 4 lanes"):
        dlpack.take_capsule(capsule)


FOLDS = """
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
"""


def test_the_interpreter_reads_no_memory_of_the_device(device: FakeDriver) -> None:
    kernels = cuda.compile_program(read(FOLDS))
    host = np.zeros((4, 4), np.float32)[:, :2]
    there = cuda.to_device(np.zeros((4, 4), np.float32))
    part = DeviceArray(there.address, (4, 2), there.dtype, (16, 4), there)
    for given in (part, host):
        with pytest.raises(LamellaError) as caught:
            kernels.folds(given)
        is_refused = "has arrays of the device" in str(caught.value)
        assert is_refused == (given is part)


# --- inputs of graphs ------------------------------------------------------------------------------------------

LAYERS = """
import nn, layout;
graph Layers {
    @input { x: real[4, 64]; n: int[3]; }
    @variable { w: real[64, 64]; }
    @output { y: real[4, 64]; places: int[~, ~]; m: int[3]; }
    @compose { y = nn.linear(x, w); PLACES m = math.add(n, 1); }
}
"""
X = (np.arange(256, dtype=np.float32).reshape(4, 64) % 7 == 0).astype(np.float32)


def layers(folder: Path, places: str) -> Path:
    path = folder / "layers.sknd"
    text = LAYERS.replace("PLACES", places).replace("import nn", "import math, nn")
    path.write_text(text if places else text.replace("places: int[~, ~]; ", ""))
    return path


@pytest.mark.parametrize("is_kept", [False, True])
def test_inputs_of_graphs_go_from_device_to_device(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "objects"))
    path, numbers = layers(tmp_path, ""), np.arange(3)
    if is_kept:
        lamella.compile(path, backend="cuda")
    run: Any = lamella.compile(path, backend="cuda")
    run(x=X, n=numbers)
    x, n = cuda.to_device(X), cuda.to_device(numbers)
    device.to_device = device.to_host = 0
    run(x=Handed(x), n=n)
    assert device.to_device == 0
    assert device.to_host == X.nbytes + numbers.nbytes  # the outputs
    # What lies otherwise, or is of another type, comes through the host.
    run(x=DeviceArray(x.address, (4, 64), x.dtype, (4, 16), x), n=cuda.to_device(numbers.astype(np.int32)))
    assert device.to_device > X.nbytes
    with pytest.raises(LamellaError, match="x"):
        run(x=cuda.to_device(X[:3]), n=n)


def test_the_host_gets_inputs_that_it_computes_with(device: FakeDriver, tmp_path: Path) -> None:
    run: Any = lamella.compile(layers(tmp_path, "places = layout.nonzero(x);"), backend="cuda")
    for x in (X, cuda.to_device(X), Handed(cuda.to_device(X)), X[::-1].copy(), cuda.to_device(X[::-1])):
        want = np.argwhere(np.asarray(x.array if isinstance(x, Handed) else x)).T
        np.testing.assert_array_equal(run(x=x, n=np.arange(3))["places"], want)


def test_other_backends_copy_arrays_of_a_device(device: FakeDriver, tmp_path: Path) -> None:
    path = layers(tmp_path, "places = layout.nonzero(x);")
    for backend in ("reference", "cpu"):
        run: Any = lamella.compile(path, backend=backend, seed=1)
        found, want = (run(x=x, n=np.arange(3)) for x in (cuda.to_device(X), X))
        np.testing.assert_array_equal(found["y"], want["y"])


@pytest.mark.gpu
def test_a_graph_takes_tensors_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU here")
    run: Any = lamella.compile(layers(tmp_path, ""), backend="cuda", seed=1)
    judge: Any = lamella.compile(layers(tmp_path, ""), backend="reference", seed=1)
    for step in range(6):
        x = torch.randn(4, 64, device="cuda")
        torch.cuda._sleep(50_000_000)
        x += step
        found = run(x=x, n=torch.arange(3, device="cuda"))
        want = judge(x=x.cpu().numpy(), n=np.arange(3))
        np.testing.assert_allclose(found["y"], want["y"], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(found["m"], want["m"])
        wide = run(x=x.double().t().contiguous().t(), n=torch.arange(3, device="cuda", dtype=torch.int32))
        np.testing.assert_array_equal(wide["y"], found["y"])
