"""Arrays of any stride are taken by kernels and updated in place; what copies would change is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella import LamellaError
from lamella.backend.named import NamedKernels
from lamella.base.arrays import Array

KERNELS = """func @sum(%a: memref<f32x4x3>, %b: memref<f32x4x3,strided<1,?>>, %y: memref<f32x4x3,strided<2,9>>) {
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  axpby.n %one, %a, %zero, %y
  axpby.n %one, %b, %one, %y
}
func @pick(%A: group<memref<f32x4x3>x?>, %y: memref<f32x4x3>) {
  %one = constant 1.0 : f32
  %two = constant 2 : index
  %m = load %A[%two] : memref<f32x4x3>
  axpby.n %one, %m, %one, %y
}
"""


@pytest.fixture(params=["interpreter", "cpu"])
def kernels(request: pytest.FixtureRequest, tmp_path: Path) -> NamedKernels:
    (tmp_path / "k.tensor").write_text(KERNELS, encoding="utf-8")
    compiled = lamella.compile(tmp_path / "k.tensor", backend=str(request.param))
    assert isinstance(compiled, NamedKernels)
    return compiled


def _room(fill: float) -> Array:
    return np.full((12, 14), fill, np.float32)


@pytest.mark.parametrize(
    "lay",
    [
        lambda array: array,
        np.asfortranarray,
        lambda array: np.repeat(np.repeat(array, 3, 0), 4, 1)[::3, ::4],
        lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
        lambda array: array.T.copy().T,
    ],
    ids=["rows", "columns", "steps", "backwards", "turned"],
)
def test_arrays_of_any_stride(kernels: NamedKernels, lay: Callable[[Array], Array]) -> None:
    random = np.random.default_rng(3)
    a, b = (lay(random.integers(-9, 9, (4, 3)).astype(np.float32)) for _ in range(2))
    room = _room(7)
    y = room[1:9:2, 2:14:4]
    kernels.sum(a, b, y)
    np.testing.assert_array_equal(y, a + b)
    y[...] = 7
    np.testing.assert_array_equal(room, _room(7))  # nothing beside it was written


def test_groups_of_any_stride(kernels: NamedKernels) -> None:
    items = [np.full((4, 3), 1, np.float32), np.full((4, 3), 2, np.float32, order="F"), _room(5)[::3, ::5]]
    y = np.ones((4, 3), np.float32)
    kernels.pick(items, y, groups=1)
    np.testing.assert_array_equal(y, np.full((4, 3), 6))


def test_what_copies_would_change_is_refused(kernels: NamedKernels) -> None:
    a = np.ones((4, 3), np.float32)
    with pytest.raises(LamellaError, match="TEN208"):
        kernels.sum(a, a, a)  # they share memory
    twice = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (4, 3), (4, 4))
    with pytest.raises(LamellaError, match="TEN208"):
        kernels.sum(a, a.copy(), twice)
    frozen = np.zeros((4, 3), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(LamellaError, match="TEN219"):
        kernels.sum(a, a.copy(), frozen)
    kernels.sum(frozen, np.broadcast_to(np.float32(2), (4, 3)), a)
    np.testing.assert_array_equal(a, np.full((4, 3), 2))
