"""Dynamic storage allocation by search: the smallest arena that some orders of placing blocks come to.

Finding the smallest is NP-hard. No arena is smaller than what is alive at once, so where the search comes to that its
result is proved to be the smallest; where it does not, a solver may prove more, or find a smaller one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from lamella.base.arena import Allocation, LiveBlock, aligned
from lamella.base.dim import Extent
from lamella.base.liveness import changes
from lamella.base.optional import need

MOST_PAIRS = 20_000_000
"""Pairs of blocks that a search compares; more blocks have fewer tries."""
MOST_TRIES = 400
EFFORT = 20.0
"""What a solver may spend, in its own measure of work, which does not depend on the machine: about as many seconds."""


def least_bytes(blocks: Sequence[LiveBlock], alignment: int) -> int:
    """The most bytes that are alive at once, each block as long as its alignment makes it: a lower bound."""
    sizes = {item.name: _length(item, alignment) for item in blocks}
    total, most = 0, 0
    for _, begun, ended in changes((item.name, item.first, item.last + 1) for item in blocks):
        total += sum(sizes[name] for name in begun) - sum(sizes[name] for name in ended)
        most = max(most, total)
    return most


def pack_large_first(blocks: Sequence[LiveBlock], alignment: int) -> Allocation:
    """Offsets of blocks that are placed one by one, the large ones first, where nothing else lies while they live."""
    return _place(sorted(blocks, key=lambda item: -_length(item, alignment)), alignment)


def pack(blocks: Sequence[LiveBlock], alignment: int) -> Allocation:
    """Offsets in the smallest arena that the search finds, the same ones whenever it is asked.

    Blocks are placed one by one at the lowest offset that is free while they live: the large ones first, then in orders
    in which what stuck out at the top of the last arena comes earlier.
    """
    least = least_bytes(blocks, alignment)
    orders = (
        sorted(blocks, key=lambda item: -_length(item, alignment)),
        sorted(blocks, key=lambda item: -_length(item, alignment) * (item.last - item.first + 1)),
        sorted(blocks, key=lambda item: (item.first, -_length(item, alignment))),
    )
    best, order = min(
        ((_place(order, alignment), order) for order in orders), key=lambda found: _total(found[0])
    )
    tries = min(MOST_TRIES, MOST_PAIRS // max(1, len(blocks)) ** 2)
    draw = random.Random(0)
    for _ in range(tries):
        if _total(best) <= least:
            break
        changed = _raised(order, best, alignment, draw)
        found = _place(changed, alignment)
        if _total(found) <= _total(best):
            best, order = found, changed
    return best


def pack_exactly(
    blocks: Sequence[LiveBlock], alignment: int, known: Allocation, effort: float = EFFORT
) -> tuple[Allocation, int]:
    """The smallest arena that CP-SAT finds from a known one on, and what it proves that none is smaller than.

    Blocks are rectangles of lifetimes and offsets that do not overlap. One worker, a fixed seed and a limit of work
    instead of time give the same answer on every machine.
    """
    cp_model = need("ortools.sat.python.cp_model")
    units = {item.name: _length(item, alignment) // alignment for item in blocks}
    most = _total(known) // alignment
    model = cp_model.CpModel()
    top = model.new_int_var(least_bytes(blocks, alignment) // alignment, most, "top")
    offsets, lives, places = {}, [], []
    for number, item in enumerate(blocks):
        size = units[item.name]
        if not size:
            continue
        offset = offsets[item.name] = model.new_int_var(0, most - size, f"offset{number}")
        model.add(offset + size <= top)
        model.add_hint(offset, _offset(known, item) // alignment)
        places.append(model.new_fixed_size_interval_var(offset, size, f"place{number}"))
        lives.append(
            model.new_fixed_size_interval_var(item.first, item.last + 1 - item.first, f"life{number}")
        )
    model.add_no_overlap_2d(lives, places)
    model.minimize(top)
    solver = cp_model.CpSolver()
    limits = solver.parameters
    limits.num_workers, limits.random_seed, limits.max_deterministic_time = 1, 0, effort
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return known, least_bytes(blocks, alignment)
    found: dict[str, Extent] = {item.name: 0 for item in blocks}
    found |= {name: solver.value(offset) * alignment for name, offset in offsets.items()}
    return Allocation(found, solver.value(top) * alignment), math.ceil(
        solver.best_objective_bound
    ) * alignment


def _raised(
    order: Sequence[LiveBlock], placed: Allocation, alignment: int, draw: random.Random
) -> list[LiveBlock]:
    """An order in which a block at the top comes earlier."""
    total = _total(placed)
    top = [
        number
        for number, item in enumerate(order)
        if _offset(placed, item) + _length(item, alignment) == total
    ]
    chosen = draw.choice(top)
    changed = list(order)
    changed.insert(draw.randrange(chosen + 1), changed.pop(chosen))
    return changed


def _place(order: Sequence[LiveBlock], alignment: int) -> Allocation:
    """Each block at the lowest offset that no block before it in the order has while both live."""
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, int, int]] = []
    total = 0
    for item in order:
        length, start = _length(item, alignment), 0
        inside = sorted(
            (begin, end)
            for begin, end, first, last in placed
            if first <= item.last and item.first <= last and begin < end
        )
        for begin, end in inside:
            if start + length <= begin:
                break
            start = max(start, end)
        offsets[item.name] = start
        placed.append((start, start + length, item.first, item.last))
        total = max(total, start + length)
    return Allocation(dict(offsets), total)


def _length(block: LiveBlock, alignment: int) -> int:
    return aligned(block.size, alignment) if isinstance(block.size, int) else 0


def _offset(placed: Allocation, block: LiveBlock) -> int:
    found = placed.offsets[block.name]
    return found if isinstance(found, int) else 0


def _total(found: Allocation) -> int:
    return found.total if isinstance(found.total, int) else 0
