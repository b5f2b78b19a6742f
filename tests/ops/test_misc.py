"""The operators of `misc`, judged by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import arrays
from tests.support.judges.harness import one, pack, refuse, same
from tests.support.judges.registry import Refusal, judged

SQUARE = ((6, 6),)
REFUSALS = (
    Refusal("misc.mesh_grid", "at least one vector", ([],)),
    Refusal("misc.all_gather", "below 2", SQUARE, {"axis": 2}),
    Refusal("misc.all_gather", "positive", SQUARE, {"ranks": 0}),
    Refusal("misc.reduce_scatter", "below 2", SQUARE, {"axis": 2}),
    Refusal("misc.reduce_scatter", "positive", SQUARE, {"ranks": -1}),
    Refusal("misc.reduce_scatter", "equal slices", SQUARE, {"ranks": 4}),
    Refusal("misc.all_to_all", "'axis' must be at least", SQUARE, {"axis": 2}),
    Refusal("misc.all_to_all", "'to' must be at least", SQUARE, {"to": 2}),
    Refusal("misc.all_to_all", "must differ", SQUARE, {"axis": 1}),
    Refusal("misc.all_to_all", "positive", SQUARE, {"ranks": -1}),
    Refusal("misc.all_to_all", "equal slices", SQUARE, {"ranks": 4}),
)


@judged("numpy", "misc.mesh_grid")
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.data())
def test_mesh_grid(extents: list[int], data: st.DataObject) -> None:
    vectors = tuple(data.draw(arrays((extent,), ("float32",))) for extent in extents)
    found = pack("misc.mesh_grid", vectors)
    for actual, expected in zip(found, np.meshgrid(*vectors, indexing="ij"), strict=True):
        same(actual, expected)


@judged("numpy", "misc.after", "misc.offload", "misc.call")
@given(st.data())
def test_what_only_moves(data: st.DataObject) -> None:
    value, token = data.draw(arrays((2, 3), ("float32",))), data.draw(arrays((4,), ("float32",)))
    same(one("misc.after", value, token), value)
    same(one("misc.offload", value), value)
    same(one("misc.call", value, number=0), value)


@judged("numpy", "misc.all_reduce", "misc.wait", "misc.all_gather", "misc.reduce_scatter", "misc.all_to_all")
@given(st.data(), st.integers(1, 3), st.integers(0, 1))
def test_exchanges_of_one_rank(data: st.DataObject, ranks: int, axis: int) -> None:
    value = data.draw(arrays((6, 6), ("float32",)))
    same(one("misc.all_reduce", value, number=0), value)
    same(one("misc.wait", value, number=0), value)
    same(one("misc.all_gather", value, axis=axis, ranks=ranks), np.concatenate([value] * ranks, axis))
    same(one("misc.reduce_scatter", value, axis=axis, ranks=ranks), np.split(value, ranks, axis)[0])
    first = np.concatenate([np.split(value, ranks, 1 - axis)[0]] * ranks, axis)
    same(one("misc.all_to_all", value, axis=axis, to=1 - axis, ranks=ranks), first)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
