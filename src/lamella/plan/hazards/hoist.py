"""Moves that do the same in every iteration and could stand before their loop."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.plan.hazards.accesses import Access, Accesses
from lamella.plan.hazards.within import MOVES
from lamella.plan.hazards.writes import Touched, Writes
from lamella.plan.order import Extent, Order, Site


def find_hoistable(order: Order, accesses: Accesses) -> Iterator[tuple[Site, Extent]]:
    """Moves, with their innermost loop, whose source and target the loop neither moves nor touches otherwise.

    The source is not written in the loop; the target is written by nothing else in it and not read before the move;
    the move waits for no task of the loop.
    """
    for extent in order.loops:
        if extent.loop.trips < 2:
            continue
        own = [
            site
            for site in order.sites[extent.first : extent.end]
            if len(site.loops) == extent.depth + 1 and site.task.opcode in MOVES
        ]
        inside = [access for touched in accesses.of[extent.first : extent.end] for access in touched]
        fixed = [site for site in own if _is_fixed(accesses.of[site.index], extent.depth)]
        if fixed:
            yield from _without_conflict(fixed, inside, order, accesses, extent)


def _is_fixed(touched: tuple[Access, ...], depth: int) -> bool:
    return len(touched) == 2 and all(depth not in access.footprint.offset.loops() for access in touched)


def _without_conflict(
    fixed: list[Site], inside: list[Access], order: Order, accesses: Accesses, extent: Extent
) -> Iterator[tuple[Site, Extent]]:
    writes, touched = Writes(inside), Touched(inside)
    numbers = {site.task.number for site in order.sites[extent.first : extent.end]}
    for site in fixed:
        source, target = accesses.of[site.index]
        if writes.reach(source) or writes.reach(target, but=target) or numbers & set(site.task.deps):
            continue
        if not any(access.site.index < site.index for access in touched.meeting(target)):
            yield site, extent
