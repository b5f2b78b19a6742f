"""Loops of a tiled plan have no more iterations in flight than the tokens of an engine hold."""

from __future__ import annotations

import pytest

from lamella.plan.tiling.program import AffineAddress, Barrier, Bytes, Draft, Repeat, Step, l1_buffer, order

SLOTS, TILE = 4, 64


def _loop(trips: int) -> Repeat:
    """Tiles are loaded into a ring, computed there, and stored."""

    def ring(start: int) -> Bytes:
        return Bytes(l1_buffer(0), AffineAddress(start, slot=TILE, slots=SLOTS), TILE)

    taken, made = ring(0), ring(SLOTS * TILE)
    load = Step("transfer", (Bytes("x", AffineAddress(0, TILE), TILE),), (taken,))
    compute = Step("eltwise", (taken,), (made,))
    store = Step("store", (made,), (Bytes("y", AffineAddress(0, TILE), TILE),))
    return Repeat(trips, SLOTS, [load, compute, store])


def _fetches(count: int) -> list[Step]:
    """Weights of later stages, each of which holds a token until it is used."""
    place = 4 * SLOTS * TILE
    return [
        Step(
            "transfer",
            (Bytes("w", AffineAddress(TILE * number), TILE),),
            (Bytes(l1_buffer(0), AffineAddress(place + TILE * number), TILE),),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("tokens", range(1, 17))
@pytest.mark.parametrize("early", range(4))
def test_a_loop_needs_no_more_tokens_than_there_are(tokens: int, early: int) -> None:
    fetches = _fetches(early)
    loop = _loop(trips=32)
    late = [Step("eltwise", item.outputs, (Bytes("z", AffineAddress(0), TILE),)) for item in fetches]
    lines: list[Draft] = [*fetches, loop, *late]
    found = order(lines, tokens)
    alive = 2  # the load is used by the computation, whose token lives until the store: two at a time
    assert 1 <= loop.window <= SLOTS
    assert loop.window * alive <= max(tokens, alive)
    freed = sum(len(item.steps) for item in found if isinstance(item, Barrier))
    held = early - freed
    assert loop.window == 1 or held + loop.window * alive <= tokens
