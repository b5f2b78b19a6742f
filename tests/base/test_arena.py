"""Live ranges and the addresses they get: nothing that is alive at once shares a byte."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.base.arena import Arena, LiveBlock, allocate, allocate_in_line
from lamella.base.dim import symbol
from lamella.base.liveness import BEFORE, LiveRange, changes, last_uses, live_ranges

BLOCKS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9), st.integers(0, 5)), max_size=12).map(
    lambda rows: [
        LiveBlock(f"b{number}", size, first, first + more) for number, (size, first, more) in enumerate(rows)
    ]
)


@settings(max_examples=100, deadline=None)
@given(BLOCKS)
def test_blocks_that_are_alive_at_once_are_apart_and_aligned(blocks: list[LiveBlock]) -> None:
    found = allocate(blocks, 64)
    ends = [0]
    for block in blocks:
        start, size = found.offsets[block.name], block.size
        assert isinstance(start, int)
        assert isinstance(size, int)
        assert start % 64 == 0
        ends.append(start + -(-size // 64) * 64 if size else 0)
        for other in blocks:
            if other is block or not size or not other.size:
                continue
            if block.first <= other.last and other.first <= block.last:
                begin, length = found.offsets[other.name], other.size
                assert isinstance(begin, int)
                assert isinstance(length, int)
                assert start + size <= begin or begin + length <= start
    assert found.total == max(ends)


def test_a_dead_block_gives_its_bytes_to_the_next_and_the_smallest_gap_is_taken() -> None:
    blocks = [
        LiveBlock("a", 256, 0, 1),
        LiveBlock("b", 64, 0, 9),
        LiveBlock("c", 64, 0, 1),
        LiveBlock("d", 64, 0, 9),
    ]
    late = LiveBlock("e", 64, 2, 3)
    found = allocate([*blocks, late], 64)
    assert found.offsets["e"] == found.offsets["c"]
    assert allocate_in_line(blocks, 64).total == 448


def test_blocks_of_symbolic_size_share_a_slot_where_one_is_never_larger() -> None:
    rows = symbol("n", 10)
    found = allocate([LiveBlock("a", rows, 0, 1), LiveBlock("b", rows, 2, 3), LiveBlock("c", rows, 3, 3)], 1)
    assert found.offsets["a"] == found.offsets["b"] == 0
    assert found.offsets["c"] == rows


def test_freed_bytes_become_one_gap_again() -> None:
    arena = Arena()
    starts = [arena.first_fit(size, 8) for size in (8, 16, 8)]
    assert starts == [0, 8, 24]
    arena.free(8, 24)
    arena.free(0, 8)
    assert arena.first_fit(24, 8) == 0
    arena.free(0, 24)
    assert arena.best_fit(8, 16) == 0


def test_an_arena_of_few_gaps_forgets_what_padding_leaves() -> None:
    arena = Arena(most_gaps=1)
    assert [arena.first_fit(1, 16) for _ in range(3)] == [0, 16, 32]
    assert len(arena.gaps) <= 2
    assert arena.first_fit(15, 1) == 1


def test_live_ranges_go_from_definition_to_last_use() -> None:
    steps = [(["x", "w"], ["a"]), (["a"], ["b"]), (["a", "outside"], ["c"])]
    assert live_ranges(steps, before=["x", "w", "idle"]) == {
        "x": LiveRange(BEFORE, 0),
        "w": LiveRange(BEFORE, 0),
        "idle": LiveRange(BEFORE, BEFORE),
        "a": LiveRange(0, 2),
        "b": LiveRange(1, 1),
        "c": LiveRange(2, 2),
    }
    assert LiveRange(1, 2).joined(LiveRange(4, 6)) == LiveRange(1, 6)
    assert LiveRange(1, 4).until(2) == LiveRange(1, 4)
    uses = [names for names, _ in steps]
    assert last_uses(uses)["a"] == 2


def test_changes_come_in_order_with_what_begins_and_ends() -> None:
    ranges = [("a", 0, 3), ("b", 2, 3), ("c", 3, 5)]
    assert list(changes(ranges)) == [(0, ["a"], []), (2, ["b"], []), (3, ["c"], ["a", "b"]), (5, [], ["c"])]
