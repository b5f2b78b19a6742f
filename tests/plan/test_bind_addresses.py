"""Addresses are aligned, disjoint and inside their memory."""

from __future__ import annotations

from itertools import combinations, permutations

from hypothesis import given
from hypothesis import strategies as st

from lamella.lang.nem.device import ResolvedTopology
from lamella.lang.nem.resolved import Buffer
from lamella.plan.bind import assign_addresses, end_of
from tests.support.plan.build import buffer

TOPOLOGY = ResolvedTopology(2, 4096, 8192, {"DMA": 1}, {"sDMA": 1}, "test")
BUFFERS = st.lists(
    st.tuples(
        st.integers(1, 3000),
        st.sampled_from([1, 2, 64, 512, 4096]),
        st.sampled_from(["L1[0]", "L1[1]", "L2", "DDR"]),
    ),
    max_size=8,
)


def make(items: list[tuple[int, int, str]]) -> list[Buffer]:
    return [buffer(f"b{i}", size, level, align) for i, (size, align, level) in enumerate(items)]


@given(BUFFERS)
def test_buffers_have_their_own_aligned_bytes(items: list[tuple[int, int, str]]) -> None:
    buffers = make(items)
    placed, findings = assign_addresses(buffers, TOPOLOGY)
    assert placed.keys() == {item.name for item in buffers}
    assert all(placed[item.name] % item.align == 0 for item in buffers)
    for one, other in combinations(buffers, 2):
        if one.level == other.level:
            first, second = placed[one.name], placed[other.name]
            assert first + one.size <= second or second + other.size <= first
    full = {
        level
        for level, limit in (("L1[0]", 4096), ("L1[1]", 4096), ("L2", 8192))
        if end(buffers, placed, level) > limit
    }
    assert {finding.message.split(" into ")[1].split(":")[0] for finding in findings} == full


def end(buffers: list[Buffer], placed: object, level: str) -> int:
    assert isinstance(placed, dict)
    return end_of([item for item in buffers if item.level == level], placed)


@given(st.lists(st.tuples(st.integers(1, 300), st.sampled_from([1, 16, 64])), min_size=1, max_size=5))
def test_the_memory_is_nearly_as_small_as_any_order_makes_it(items: list[tuple[int, int]]) -> None:
    """No order of plain stacking does better, as these sizes and alignments leave gaps that first fit uses."""
    buffers = make([(size, align, "L2") for size, align in items])
    placed, _ = assign_addresses(buffers, TOPOLOGY)
    assert end_of(buffers, placed) <= min(map(stack, permutations(buffers))) + 64


def stack(buffers: tuple[Buffer, ...]) -> int:
    place = 0
    for item in buffers:
        place = -(-place // item.align) * item.align + item.size
    return place


def test_the_stricter_alignment_first_where_that_is_smaller() -> None:
    topology = ResolvedTopology(1, 200, 200, {"DMA": 1}, {"sDMA": 1}, "test")
    buffers = make([(100, 1, "L2"), (96, 64, "L2")])
    placed, findings = assign_addresses(buffers, topology)
    assert placed == {"b0": 96, "b1": 0}
    assert not findings
