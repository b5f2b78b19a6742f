"""Arrays that threads fill have the numbers that they would have without them; uniform ones take no memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from lamella.base.arrays import Array, uniform, uniform_value
from lamella.base.background import Background
from lamella.base.filling import LARGE, PIECE, draw_normal


@pytest.mark.parametrize("shape", [(3, 5), (LARGE // 64, 64), (PIECE // 512 + 1, 512)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_are_those_of_one_draw(shape: tuple[int, int], dtype: type) -> None:
    want = (np.random.default_rng([7, 1]).standard_normal(shape) / np.sqrt(3)).astype(dtype)
    filling = Background()
    found: Array = np.zeros(shape, dtype)
    draw_normal(np.random.default_rng([7, 1]), found, np.sqrt(3), found.dtype.type, filling)
    filling.wait()
    np.testing.assert_array_equal(found, want)


def test_what_a_thread_raises_is_raised_where_somebody_waits() -> None:
    def fail() -> None:
        raise MemoryError("no room")

    filling, done = Background(), list[int]()
    filling.begin(fail)
    filling.begin(lambda: done.append(1))
    with pytest.raises(MemoryError, match="no room"):
        filling.wait()
    assert done == [1]
    filling.wait()
    filling.begin(lambda: done.append(2))
    filling.wait()
    assert done == [1, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16])
def test_a_uniform_array_is_known(dtype: type) -> None:
    found = uniform((1 << 20, 1 << 20), 3, np.dtype(dtype))  # far more than there is memory
    assert found.shape == (1 << 20, 1 << 20)
    value = uniform_value(found)
    assert value is not None
    assert value.dtype == dtype
    assert value == 3
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


def test_others_are_not_uniform() -> None:
    ones = np.ones((4, 4), np.float32)
    assert uniform_value(ones) is None
    assert uniform_value(np.broadcast_to(ones[:1], (4, 4))) is None
    assert uniform_value(np.zeros((), np.float32)) is None
    assert uniform_value(np.zeros((0, 3), np.float32)) is None
