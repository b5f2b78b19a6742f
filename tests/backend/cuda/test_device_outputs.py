"""Outputs of graphs that go to arrays of the device, and outputs that stay there.

The driver computes nothing, but copies: what is the input under another shape is judged by its numbers.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend import cuda
from lamella.backend.cuda.arrays import DeviceArray
from lamella.backend.cuda.driver import own_stream
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from tests.backend.cuda.test_cuda_foreign import Handed, described
from tests.support.backend.fake_driver import FakeDriver, fake_device

LAYERS = """
import nn, layout;
graph Layers {
    @input { x: real[4, 64]; }
    @variable { w: real[64, 64]; }
    @output { y: real[4, 64]; z: real[256]; OUTPUT }
    @compose { y = nn.linear(x, w); z = layout.reshape{shape=[256]}(x); STEP }
}
"""
SUMS = """
import math;
graph Sums {
    @input { x: real[4, 64]; }
    @variable { s: real[4, 64]; }
    @output { next: real[4, 64]; y: real[4, 64]; }
    @compose { next = math.add(s, x); y = math.mul(x, 3.0); }
    @update { s = next; }
}
"""
X = (np.arange(256, dtype=np.float32).reshape(4, 64) % 7 == 0).astype(np.float32)


@pytest.fixture
def device() -> Iterator[FakeDriver]:
    with fake_device() as found:
        yield found


def layers(folder: Path, output: str = "", step: str = "") -> Path:
    path = folder / "layers.sknd"
    path.write_text(LAYERS.replace("OUTPUT", output).replace("STEP", step))
    return path


def empty(*shape: int, dtype: Any = np.float32) -> DeviceArray:
    return cuda.to_device(np.zeros(shape, dtype))


@pytest.mark.parametrize("is_kept", [False, True])
def test_outputs_are_written_where_the_caller_wants_them(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "objects"))
    path = layers(tmp_path)
    if is_kept:
        lamella.compile(path, backend="cuda")
    run: Any = lamella.compile(path, backend="cuda")
    for number in range(3):
        y, z = empty(4, 64), empty(256)
        handed, x = Handed(z), cuda.to_device(X + number)
        if number:
            device.to_device = device.to_host = 0
        found = run.run({"x": x}, out={"y": y, "z": handed})
        assert handed.streams == [own_stream().handle]
        assert (found["y"].address, found["z"].address) == (y.address, z.address)
        np.testing.assert_array_equal(z.numpy(), (X + number).reshape(256))
    assert device.to_device == 0
    assert device.to_host == z.nbytes  # what the test itself looks at
    device.to_host = 0
    found = run.run({"x": x}, out={"z": z})
    assert isinstance(found["y"], np.ndarray)
    assert device.to_host == y.nbytes


def test_outputs_stay_on_the_device_in_memory_of_their_own(device: FakeDriver, tmp_path: Path) -> None:
    run: Any = lamella.compile(layers(tmp_path), backend="cuda")
    run(x=X)
    device.to_host = 0
    found = [run.run({"x": X + number}, out="device") for number in range(3)]
    assert device.to_host == 0
    assert all(isinstance(item, DeviceArray) for row in found for item in row.values())
    for number, row in enumerate(found):
        assert row["y"].shape == (4, 64)
        np.testing.assert_array_equal(row["z"].numpy(), (X + number).reshape(256))
    assert cuda.to_device(Handed(found[1]["z"])).address == found[1]["z"].address
    places = [item.address for row in found for item in row.values()]
    assert len(set(places)) == 6
    del found, row, run
    gc.collect()
    assert not any(place in device._memory for place in places)


def test_what_the_host_computes_goes_to_the_device(device: FakeDriver, tmp_path: Path) -> None:
    """Some operations have no kernel: their outputs come from the host, wherever they are wanted."""
    path = layers(tmp_path, "places: int[~, ~];", "places = layout.nonzero(x);")
    run: Any = lamella.compile(path, backend="cuda")
    want = np.argwhere(X).T
    room = empty(*want.shape, dtype=np.int64)
    for out in ({"places": room}, "device"):
        found = run.run({"x": X}, out=out)
        np.testing.assert_array_equal(found["places"].numpy(), want)
    np.testing.assert_array_equal(room.numpy(), want)
    np.testing.assert_array_equal(found["z"].numpy(), X.reshape(256))


def test_an_output_that_is_also_a_state_is_on_both_sides(device: FakeDriver, tmp_path: Path) -> None:
    path = tmp_path / "sums.sknd"
    path.write_text(SUMS)
    run: Any = lamella.compile(path, backend="cuda")
    for out in ({"next": empty(4, 64), "y": empty(4, 64)}, "device"):
        found = run.run({"x": X}, out=out)
        np.testing.assert_array_equal(found["next"].numpy(), run.state["s"])
        assert isinstance(found["y"], DeviceArray)


def fixed() -> DeviceArray:
    array = empty(4, 64)
    return DeviceArray(array.address, (4, 64), array.dtype, owner=array, is_writable=False)


def turned() -> DeviceArray:
    array = empty(64, 4)
    return DeviceArray(array.address, (4, 64), array.dtype, (4, 16), array)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (fixed, "the array for output 'y' must not be written"),
        (turned, "the array for output 'y' does not lie row by row"),
        (lambda: empty(4, 63), r"output 'y' is float32\[4, 64\], its array float32\[4, 63\]"),
        (
            lambda: empty(4, 64, dtype=np.float64),
            r"output 'y' is float32\[4, 64\], its array float64\[4, 64\]",
        ),
        (lambda: described((4, 64), data=(8192, False)), "says that it lies on a GPU does not"),
        (lambda: Handed(empty(4, 64), (2, 1)), "lies on device 1, and kernels run on device 0"),
        (lambda: [1.0], "what is given for output 'y' is no array that can be written"),
    ],
)
def test_what_cannot_be_written_is_a_sentence(
    device: FakeDriver, tmp_path: Path, make: Any, told: str
) -> None:
    device.elsewhere = {8192: -1}
    run: Any = lamella.compile(layers(tmp_path), backend="cuda")
    with pytest.raises(InputError, match=told):
        run.run({"x": X}, out={"y": make()})
    assert not device.launches


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
def test_places_of_outputs_have_names(device: FakeDriver, tmp_path: Path, backend: str) -> None:
    run: Any = lamella.compile(layers(tmp_path), backend=backend, seed=1)
    for out in (X.copy(), [X.copy()], empty(4, 64), True):
        with pytest.raises(InputError, match=f"of type '{type(out).__name__}' is no place for outputs"):
            run.run({"x": X}, out=out)
    with pytest.raises(InputError, match="there is no output '0'"):
        run.run({"x": X}, out={0: X.copy()})


def test_outputs_do_not_share_memory_of_the_device(device: FakeDriver, tmp_path: Path) -> None:
    run: Any = lamella.compile(layers(tmp_path), backend="cuda")
    y = empty(4, 64)
    whole = DeviceArray(y.address, (256,), y.dtype, owner=y)
    with pytest.raises(InputError, match="outputs 'y' and 'z' share memory"):
        run.run({"x": X}, out={"y": y, "z": Handed(whole)})


def test_a_run_that_fails_gives_nothing_back(device: FakeDriver, tmp_path: Path) -> None:
    run: Any = lamella.compile(layers(tmp_path), backend="cuda")
    run(x=X)
    device.breaks_at = 0
    with pytest.raises(LamellaError, match="running a launch list"):
        run.run({"x": X}, out="device")


def test_other_backends_have_no_device(tmp_path: Path) -> None:
    run: Any = lamella.compile(layers(tmp_path), backend="reference")
    with pytest.raises(InputError, match="this backend has none"):
        run.run({"x": X}, out="device")
    with pytest.raises(InputError, match="'host' is no place for outputs"):
        run.run({"x": X}, out="host")


@pytest.mark.gpu
def test_tensors_of_torch_are_written_behind_what_torch_has_begun(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU here")
    run: Any = lamella.compile(layers(tmp_path), backend="cuda", seed=1)
    judge: Any = lamella.compile(layers(tmp_path), backend="reference", seed=1)
    y = torch.zeros(4, 64, device="cuda")
    kept = []
    for step in range(6):
        want = judge(x=X + step)["y"]
        torch.cuda._sleep(50_000_000)
        y.fill_(-1)  # is done before the run writes
        run.run({"x": torch.from_numpy(X + step).cuda()}, out={"y": y})
        np.testing.assert_allclose(y.cpu().numpy(), want, rtol=1e-4, atol=1e-4)
        found = run.run({"x": X + step}, out="device")
        kept.append((torch.from_dlpack(found["y"]), found["y"].address, want))
    for tensor, address, want in kept:
        assert tensor.is_cuda
        assert tensor.data_ptr() == address
        np.testing.assert_allclose(tensor.cpu().numpy(), want, rtol=1e-4, atol=1e-4)
