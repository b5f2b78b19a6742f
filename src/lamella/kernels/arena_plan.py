"""Buffer allocation for launch lists: buffers that are never live together share their bytes in one arena."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from lamella.base.arena import Allocation, LiveBlock, aligned, allocate, allocate_in_line
from lamella.base.liveness import LiveRange, live_ranges
from lamella.base.packing import pack_large_first
from lamella.base.records import dataclass
from lamella.kernels.launches import Launch, LaunchList

ALIGNMENT = 64
MOST_PACKED = 1000
"""The most blocks that are placed the large ones first, which takes the square of their number."""


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Where the buffers of a list lie: in an arena that lists share, in memory that stays theirs, or outside."""

    shared: Mapping[str, int]
    own: Mapping[str, int]
    outside: Mapping[str, int]
    shared_bytes: int
    own_bytes: int
    outside_bytes: int
    blocks: tuple[LiveBlock, ...]
    """What shares the arena, and when it is alive."""


def place_buffers(whole: LaunchList, given: Collection[str]) -> ArenaPlan:
    """Offsets for all buffers but those that are given; no two that are live at once share a byte."""
    names = [name for name in whole.buffers if name not in given]
    ranges = live_ranges(_steps(whole.launches))
    end = len(whole.launches)
    for view in whole.outputs.values():  # read behind the last launch
        if view.buffer in ranges:
            ranges[view.buffer] = ranges[view.buffer].until(end)
    kept = [name for name in names if whole.buffers[name].zeroed]
    moved = [name for name in names if whole.buffers[name].outside]
    stay = {*kept, *moved}
    blocks = tuple(_block(name, whole, ranges) for name in names if name not in stay)
    shared = _share(blocks, is_packed=bool(whole.overwritten))
    own = _place_halos([(whole.buffers[name].zeroed, _block(name, whole, ranges)) for name in kept])
    outside = allocate((_block(name, whole, ranges) for name in moved), ALIGNMENT)
    return ArenaPlan(
        _offsets(shared), _offsets(own), _offsets(outside),
        _total(shared.total), _total(own.total), _total(outside.total),
        blocks,
    )  # fmt: skip


def _share(blocks: Sequence[LiveBlock], is_packed: bool) -> Allocation:
    """Arena allocation: in the order of launches, which reuses what the cache holds, or as small as possible.

    Lists that overwrite states are training steps: what lives from the forward to the backward pass fills them.
    """
    found = allocate(blocks, ALIGNMENT)
    if is_packed and len(blocks) <= MOST_PACKED:
        other = pack_large_first(blocks, ALIGNMENT)
        return other if _total(other.total) < _total(found.total) else found
    return found


def _offsets(found: Allocation) -> dict[str, int]:
    return {name: int(offset) for name, offset in found.offsets.items() if isinstance(offset, int)}


def _place_halos(blocks: Sequence[tuple[int, LiveBlock]]) -> Allocation:
    """Buffers with halos: those of one number that are never live together share their bytes.

    Launches write all of a tensor, and never its halo: what another one leaves there is written over or zero.
    """
    slots: dict[str, LiveBlock] = {}
    places: dict[str, str] = {}
    free: dict[int, list[str]] = {}
    for number, block in sorted(blocks, key=lambda item: item[1].first):
        ended = (name for name in free.get(number, ()) if slots[name].last < block.first)
        slot = next(ended, block.name)
        places[block.name] = slot
        slots[slot] = block._replace(name=slot)
        if slot == block.name:
            free.setdefault(number, []).append(slot)
    found = allocate_in_line(slots.values(), ALIGNMENT)
    return Allocation({name: found.offsets[slot] for name, slot in places.items()}, found.total)


def _steps(launches: Sequence[Launch]) -> Iterator[tuple[list[str], list[str]]]:
    for launch in launches:
        used = [item.buffer for item in launch.arguments]
        yield used, [used[place] for place in launch.writes]


def _block(name: str, whole: LaunchList, ranges: Mapping[str, LiveRange]) -> LiveBlock:
    alive = ranges.get(name, LiveRange(0, 0))
    return LiveBlock(name, whole.buffers[name].size, alive.first, alive.last)


def _total(size: object) -> int:
    return aligned(size, ALIGNMENT) if isinstance(size, int) else 0
