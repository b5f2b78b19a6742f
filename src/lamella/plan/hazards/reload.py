"""Idempotent reload: unordered writes that all put the same bytes in the same place do no harm.

A hazard is only a reload when each of its writers is a transfer or store, what they read is written by nothing in the
program, the bytes in question get the same value from each, and a reader has such a write before it. A task is a
reloader when this holds for every hazard it writes in; then they are one warning, else errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from lamella.plan.hazards.accesses import Access, Accesses
from lamella.plan.hazards.find import Found, Hazard
from lamella.plan.hazards.within import MOVES
from lamella.plan.hazards.writes import Writes
from lamella.plan.order import Order, Site


class Reloads:
    """Sorts hazards into errors and reloads."""

    def __init__(self, order: Order, accesses: Accesses, writes: Writes, found: Found) -> None:
        self._accesses, self._writes = accesses, writes
        self._hazards = list(found.hazards.values())
        self._unordered = self._sets(order)
        harmless = {id(hazard): self._harmless(hazard) for hazard in self._hazards}
        faulty = {
            writer.site.index
            for hazard in self._hazards
            for writer in _writers(hazard)
            if not harmless[id(hazard)]
        }
        self.reloads = [
            hazard
            for hazard in self._hazards
            if harmless[id(hazard)] and all(writer.site.index not in faulty for writer in _writers(hazard))
        ]
        kept = {id(hazard) for hazard in self.reloads}
        self.errors = [hazard for hazard in self._hazards if id(hazard) not in kept]

    def _sets(self, order: Order) -> dict[int, int]:
        """The unordered earlier sites of each reader in a hazard with a move."""
        readers = {
            reader.site.index
            for hazard in self._hazards
            for reader in _readers(hazard)
            if all(writer.site.task.opcode in MOVES for writer in _writers(hazard))
        }
        if not readers:
            return {}
        return {site.index: mask for site, mask in order.sweep() if site.index in readers}

    def _harmless(self, hazard: Hazard) -> bool:
        writers = list(_writers(hazard))
        sources = [self._source(writer) for writer in writers]
        first = sources[0]
        if first is None or any(source is None for source in sources) or self._writes.reach(first):
            return False
        if len(writers) == 2:
            return sources[1] is not None and _same_bytes(writers, [first, sources[1]])
        (reader,) = _readers(hazard)
        if not _same_bytes([writers[0]] * 2, [first] * 2):
            return False
        return any(
            self._loads_before(target, reader, writers[0], first) for target in self._writes.meeting(reader)
        )

    def _source(self, writer: Access) -> Access | None:
        """What a move reads; None for other tasks."""
        touched = self._accesses.of[writer.site.index]
        if writer.site.task.opcode not in MOVES:
            return None
        return next((access for access in touched if not access.write), None)

    def _loads_before(self, target: Access, reader: Access, writer: Access, source: Access) -> bool:
        """Whether a move always comes before a reader and gives it the same bytes as the writer does."""
        other = self._source(target)
        if other is None or not self._always_before(target.site, reader.site):
            return False
        if not _same_bytes([target, writer], [other, source]):
            return False
        distance = reader.footprint.offset.plus(target.footprint.offset, -1)
        covers = 0 <= distance.constant <= target.footprint.extent - reader.footprint.extent
        same = target.footprint.offset == writer.footprint.offset and target.footprint.offset.is_constant
        longer = target.footprint.extent >= writer.footprint.extent
        return (distance.is_constant and covers) or (same and longer)

    def _always_before(self, early: Site, late: Site) -> bool:
        """Whether a site earlier in the text is complete before another starts, in one common iteration."""
        if early.index >= late.index:
            return False
        around = [loop.number for loop in late.loops]
        own = [loop.number for loop in early.loops]
        if own != around[: len(own)]:
            return True
        return not self._unordered.get(late.index, -1) >> early.index & 1


def _writers(hazard: Hazard) -> Iterator[Access]:
    return (access for access in (hazard.early, hazard.late) if access.write)


def _readers(hazard: Hazard) -> Iterator[Access]:
    return (access for access in (hazard.early, hazard.late) if not access.write)


def _same_bytes(targets: Iterable[Access], sources: Iterable[Access]) -> bool:
    """Whether two moves give the same value to each byte that both write, in any two iterations."""
    (one, two), (from_one, from_two) = targets, sources
    if from_one.footprint.buffer.name != from_two.footprint.buffer.name:
        return False
    if one.footprint.buffer.name != two.footprint.buffer.name:
        return False
    shift = from_one.footprint.offset.plus(one.footprint.offset, -1)
    other = from_two.footprint.offset.plus(two.footprint.offset, -1)
    if shift.is_constant and shift == other:
        return True
    fixed = from_one.footprint.offset.is_constant and from_one.footprint.offset == from_two.footprint.offset
    return fixed and _never_partly(one, two)


def _never_partly(one: Access, two: Access) -> bool:
    """Whether two ranges are identical whenever they overlap: slots that are at least as far apart as long."""
    first, second = one.footprint, two.footprint
    slot = gcd(*(factor for item in (first, second) for _, factor in item.offset.terms))
    aligned = slot > 0 and (first.offset.constant - second.offset.constant) % slot == 0
    return aligned and max(first.extent, second.extent) <= slot
