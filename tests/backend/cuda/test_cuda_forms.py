"""Generated kernels with forms of a newer version, and those that were once compiled wrong, on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lamella.backend import cuda
from tests.differential import test_found as found
from tests.differential import test_newer_forms as forms

pytestmark = pytest.mark.gpu
TESTS: tuple[Callable[[], None], ...] = (
    forms.test_tiles_cover_each_index_once,
    forms.test_an_atomic_update_gives_what_stood_there,
    forms.test_components_of_matrices,
    forms.test_an_axis_that_a_kernel_does_not_read_is_refused,
    found.test_what_a_folded_value_stands_for_may_be_folded_itself,
    found.test_each_subgroup_keeps_what_it_yields_round_a_barrier,
    found.test_what_a_loop_round_a_barrier_hands_on_unchanged,
)


def on_device(text: str) -> Iterator[Any]:
    """The kernels of a text."""
    yield cuda.compile_program(forms.read(text))


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "ways", on_device)
    monkeypatch.setattr(found, "cpu", cuda)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_it_holds_on_a_gpu(test: Callable[[], None]) -> None:
    test()


@pytest.mark.parametrize("grid", [(3, 2, 4), (1, 5, 1), (4, 1, 2), (4, 3), 6])
def test_axes_of_a_launch(grid: Any) -> None:
    forms.test_axes_of_a_launch(grid)


@pytest.mark.parametrize("groups", [(1, 2, 3, 4), (), (2, -1), (2, 1.5), "22", (1 << 40, 1 << 40)])
def test_what_is_no_number_of_work_groups(groups: Any) -> None:
    forms.test_what_is_no_number_of_work_groups(groups)


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64", "bf16", "f16", "f32", "f64"])
@pytest.mark.parametrize("size", [2, 32])
def test_one_lane_writes_one_element(element: str, size: int) -> None:
    found.test_one_lane_writes_one_element(element, size, 1)
