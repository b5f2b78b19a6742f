"""PTX of kernels, run by the driver of a GPU and judged by NumPy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella

pytestmark = pytest.mark.gpu
KERNELS = Path(__file__).with_name("kernels.tensor")
ROWS = 100


class Device:
    """A GPU that runs the kernels of the file."""

    def __init__(self, cupy: Any, folder: Path) -> None:
        lowered: Any = lamella.lower(KERNELS, to="ptx")
        path = folder / "kernels.ptx"
        path.write_text(lowered.text)
        self._cupy = cupy
        self._module = cupy.RawModule(path=str(path))
        told = re.findall(r"// kernel_\d+ is .*: block \((\d+), (\d+), 1\)", lowered.text)
        self._blocks = [(int(rows), int(columns)) for rows, columns in told]

    def run(self, kernel: int, slots: list[Any], groups: int) -> None:
        """Launch a kernel; its slots are numbers, and arrays that are copied there and back."""
        held = {place: self._cupy.asarray(item, order="F") for place, item in _arrays(slots)}
        words = [held[place].data.ptr if place in held else item for place, item in enumerate(slots)]
        given = self._cupy.asarray(np.array(words, np.int64))
        function = self._module.get_function(f"kernel_{kernel}")
        together = self._blocks[kernel][1]  # the work-groups of these kernels have one column
        function((-(-groups // together),), self._blocks[kernel], (given, np.int64(groups)))
        for place, item in _arrays(slots):
            item[...] = held[place].get()


def _arrays(slots: list[Any]) -> list[tuple[int, Any]]:
    return [(place, item) for place, item in enumerate(slots) if isinstance(item, np.ndarray)]


@pytest.fixture
def device(tmp_path: Path) -> Device:
    cupy = pytest.importorskip("cupy", reason="needs an NVIDIA GPU")
    if not cupy.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    return Device(cupy, tmp_path)


def draw(*shape: int) -> Any:
    numbers = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return np.asfortranarray(numbers)


def test_foreach_and_exp(device: Device) -> None:
    x, y = draw(1000), draw(1000)
    want = np.exp(2 * x) + y
    two = int(np.array([2.0], np.float32).view(np.int32)[0])
    device.run(0, [two, x, 1000, y, 1000], groups=1)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


def test_gemm(device: Device) -> None:
    a, b, c = draw(48, 40), draw(40, 24), draw(48, 24)
    want = a @ b + 0.5 * c
    device.run(1, [a, b, c], groups=1)
    np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-5)


def test_subgroups_meet_at_a_barrier(device: Device) -> None:
    x, sums = draw(ROWS, 7), np.zeros(7, np.float32)
    device.run(2, [x, 7, sums, 7], groups=7)
    np.testing.assert_allclose(sums, x.sum(0), rtol=1e-4, atol=1e-4)
