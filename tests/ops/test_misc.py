"""The operators of `misc`, judged by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import arrays
from tests.support.judges.harness import one, pack, refuse, same
from tests.support.judges.registry import Refusal, judged

REFUSALS = (Refusal("misc.mesh_grid", "at least one vector", ([],)),)


@judged("numpy", "misc.mesh_grid")
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.data())
def test_mesh_grid(extents: list[int], data: st.DataObject) -> None:
    vectors = tuple(data.draw(arrays((extent,), ("float32",))) for extent in extents)
    found = pack("misc.mesh_grid", vectors)
    for actual, expected in zip(found, np.meshgrid(*vectors, indexing="ij"), strict=True):
        same(actual, expected)


@judged("numpy", "misc.after", "misc.offload")
@given(st.data())
def test_what_only_moves(data: st.DataObject) -> None:
    value, token = data.draw(arrays((2, 3), ("float32",))), data.draw(arrays((4,), ("float32",)))
    same(one("misc.after", value, token), value)
    same(one("misc.offload", value), value)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
