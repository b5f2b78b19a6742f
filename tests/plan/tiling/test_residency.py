"""What a solver sends to DDR: what stays fits, and no cheaper choice would."""

from __future__ import annotations

from itertools import combinations, permutations

from hypothesis import given
from hypothesis import strategies as st

from lamella.plan.tiling.memory import ALIGN, LiveBytes, lowest
from lamella.plan.tiling.residency import Spill, cheapest_spills

ROOM = 6 * ALIGN
"""So little that most draws do not fit."""


def fits(blocks: list[LiveBytes]) -> bool:
    """Whether blocks find places, in whatever order: an arena that is the smallest is found by one of them."""
    for order in permutations(blocks):
        placed: list[LiveBytes] = []
        for item in order:
            block = LiveBytes(item.name, item.size, item.first, item.last)
            block.offset = lowest(block, placed)
            placed.append(block)
        if all(item.offset + item.size <= ROOM for item in placed):
            return True
    return False


def remaining(blocks: list[LiveBytes], spills: dict[str, Spill], gone: frozenset[str]) -> list[LiveBytes]:
    """What L2 holds when some activations are in DDR."""
    rings = [ring for name in sorted(gone) for ring in spills[name].rings]
    return [item for item in blocks if item.name not in gone] + rings


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 2), st.integers(1, 9), st.booleans()),
        max_size=4,
    )
)
def test_no_other_choice_is_cheaper(drawn: list[tuple[int, int, int, int, bool]]) -> None:
    blocks = [
        LiveBytes(f"b{number}", size * ALIGN, first, first + life)
        for number, (size, first, life, _, _) in enumerate(drawn)
    ]
    spills = {
        block.name: Spill(cost, (LiveBytes(f"{block.name}_ring", ALIGN, block.first, block.first),))
        for block, (_, _, _, cost, may) in zip(blocks, drawn, strict=True)
        if may
    }
    choices = [frozenset(some) for count in range(len(spills) + 1) for some in combinations(spills, count)]
    legal = [some for some in choices if fits(remaining(blocks, spills, some))]
    found = cheapest_spills(blocks, spills, ROOM)
    if not legal:
        assert not found
        return
    assert found in legal
    least = min(sum(spills[name].cost for name in some) for some in legal)
    assert sum(spills[name].cost for name in found) == least
