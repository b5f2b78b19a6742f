"""Arenas by search: blocks that live together share no byte, and small cases are as small as any order makes them."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.base.arena import Allocation, LiveBlock, allocate
from lamella.base.packing import least_bytes, pack, pack_exactly, pack_large_first

ALIGNMENT = 64


def blocks_of(drawn: list[tuple[int, int, int]]) -> list[LiveBlock]:
    return [
        LiveBlock(f"b{number}", size, first, first + life) for number, (size, first, life) in enumerate(drawn)
    ]


def smallest(blocks: list[LiveBlock]) -> int:
    """The smallest arena of all: an optimal one, taken from below, is what placing in its order comes to."""
    best = 1 << 60
    for order in permutations(blocks):
        placed: list[tuple[int, int, LiveBlock]] = []
        for item in order:
            length = -(-int(str(item.size)) // ALIGNMENT) * ALIGNMENT
            taken = [
                (a, b) for a, b, other in placed if other.first <= item.last and item.first <= other.last
            ]
            starts = sorted({0, *(end for _, end in taken)})
            start = next(at for at in starts if all(at + length <= a or b <= at for a, b in taken))
            placed.append((start, start + length, item))
        best = min(best, max((end for _, end, _ in placed), default=0))
    return best


def assert_apart(blocks: list[LiveBlock], found: Allocation) -> None:
    """Blocks that live together share no byte of an arena, and none leaves it."""
    places = {item.name: int(str(found.offsets[item.name])) for item in blocks}
    for item in blocks:
        begin, size = places[item.name], int(str(item.size))
        assert begin % ALIGNMENT == 0
        assert begin + size <= int(str(found.total))
        for other in blocks:
            together = item.first <= other.last and other.first <= item.last
            if other.name != item.name and together and size and other.size:
                end = places[other.name] + int(str(other.size))
                assert begin + size <= places[other.name] or end <= begin


DRAWN = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6), st.integers(0, 4)), max_size=5)


@settings(max_examples=60, deadline=None)
@given(DRAWN)
def test_small_arenas_are_the_smallest(drawn: list[tuple[int, int, int]]) -> None:
    blocks = blocks_of(drawn)
    found = pack(blocks, ALIGNMENT)
    assert least_bytes(blocks, ALIGNMENT) <= smallest(blocks) == found.total


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 20), st.integers(0, 9)), max_size=40))
def test_blocks_that_live_together_share_nothing(drawn: list[tuple[int, int, int]]) -> None:
    blocks = blocks_of(drawn)
    for found in (pack(blocks, ALIGNMENT), pack_large_first(blocks, ALIGNMENT)):
        assert_apart(blocks, found)
    whole, greedy = pack(blocks, ALIGNMENT).total, allocate(blocks, ALIGNMENT).total
    assert int(str(whole)) <= int(str(greedy))


@settings(max_examples=10, deadline=None)
@given(DRAWN)
def test_a_solver_proves_the_smallest(drawn: list[tuple[int, int, int]]) -> None:
    """From an arena in which every block has bytes of its own."""
    blocks = blocks_of(drawn)
    apart = [LiveBlock(item.name, item.size, 0, 1) for item in blocks]
    found, least = pack_exactly(blocks, ALIGNMENT, pack(apart, ALIGNMENT))
    assert found.total == least == smallest(blocks)
    assert_apart(blocks, found)
