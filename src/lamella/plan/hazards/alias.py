"""Imported buffers of one memory may be the same bytes: accesses to two of them need an order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from lamella.base.diagnostic import Diagnostic, Label
from lamella.lang.nem.resolved import Plan
from lamella.lang.nem.rules import IMPORTED_ALIAS
from lamella.plan.hazards.accesses import Access, Accesses, Point
from lamella.plan.hazards.neighbours import members
from lamella.plan.hazards.within import MOVES
from lamella.plan.hazards.words import show_iterations
from lamella.plan.hazards.writes import may_alias
from lamella.plan.order import Extent, Order, Site

Clash = tuple[Access, Point, Access, Point]


class Aliases:
    """Finds one clash per pair of imported buffers; accesses to @readonly regions take no part."""

    def __init__(self, plan: Plan, order: Order, accesses: Accesses) -> None:
        self._order = order
        imported = [buffer for buffer in plan.buffers if buffer.imported]
        pairs = [(a.name, b.name) for a, b in combinations(imported, 2) if may_alias(a, b)]
        names = {name for pair in pairs for name in pair}
        self._others: dict[str, list[str]] = {}
        for one, other in pairs:
            self._others.setdefault(one, []).append(other)
            self._others.setdefault(other, []).append(one)
        self._of = [_taking_part(touched, names) for touched in accesses.of] if pairs else []
        self._masks: dict[tuple[str, bool], int] = {}
        for access in (access for touched in self._of for access in touched):
            for key in {(access.region.buffer.name, access.write), (access.region.buffer.name, False)}:
                self._masks[key] = self._masks.get(key, 0) | 1 << access.site.index
        self._found: dict[frozenset[str], Clash] = {}

    def look_at(self, site: Site, unordered: int) -> None:
        """Compare a site with itself and with the earlier ones that are not always before it."""
        if not self._of:
            return
        start = (0,) * len(site.loops)
        moves = site.task.opcode in MOVES and site.task.memmove
        for access in self._of[site.index]:
            for name in self._others[access.region.buffer.name]:
                near = 0 if moves else 1 << site.index
                mask = (unordered | near) & self._masks.get((name, not access.write), 0)
                self._take(access, start, name, mask)

    def look_across(self) -> None:
        """Compare what several iterations of a loop in flight access."""
        for extent in self._order.loops if self._of else ():
            if extent.loop.window > 1 and extent.loop.trips > 1:
                self._across(extent)

    def _across(self, extent: Extent) -> None:
        inside = (1 << extent.end) - (1 << extent.first)
        for touched in self._of[extent.first : extent.end]:
            for access in touched:
                later = [0] * len(access.site.loops)
                later[extent.depth] = 1
                for name in self._others[access.region.buffer.name]:
                    mask = inside & self._masks.get((name, not access.write), 0)
                    self._take(access, tuple(later), name, mask)

    def _take(self, access: Access, point: Point, name: str, mask: int) -> None:
        """Keep the first site of a set as the other side of a clash."""
        pair = frozenset((access.region.buffer.name, name))
        index = next(members(mask), None)
        if index is None or pair in self._found:
            return
        other = next(
            item
            for item in self._of[index]
            if item.region.buffer.name == name and (item.write or access.write)
        )
        self._found[pair] = access, point, other, (0,) * len(other.site.loops)

    def findings(self) -> Iterator[Diagnostic]:
        """One finding per pair of buffers."""
        for access, point, other, other_point in self._found.values():
            yield IMPORTED_ALIAS.at(
                access.span,
                labels=[Label(other.span, f"'{other.region.buffer.name}' is accessed here")],
                first=access.region.buffer.name,
                second=other.region.buffer.name,
                iterations=show_iterations((access.site, point), (other.site, other_point)),
            )


def _taking_part(touched: Sequence[Access], names: set[str]) -> list[Access]:
    return [access for access in touched if access.region.buffer.name in names and not access.region.readonly]
