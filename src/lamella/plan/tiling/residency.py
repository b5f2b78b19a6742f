"""What stays in L2, by CP-SAT: of the activations that may lie in DDR, those whose way there and back is the cheapest.

The greedy way sends one activation after the other to DDR until the rest fits. A solver sees all of them at once, with
their places: blocks are rectangles of stages and offsets that do not overlap; an activation that goes has none, but
for the rings through which stages read and write it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamella.base.optional import need
from lamella.plan.tiling.memory import ALIGN, LiveBytes

EFFORT = 10.0
"""What the solver may spend, in its own measure of work: about as many seconds, and the same on every machine."""


@dataclass(frozen=True, slots=True)
class Spill:
    """What it takes to have an activation in DDR."""

    cost: int
    """Bytes that move."""
    rings: tuple[LiveBytes, ...]


def cheapest_spills(blocks: Sequence[LiveBytes], spills: Mapping[str, Spill], room: int) -> frozenset[str]:
    """The activations that go to DDR such that all others fit into L2; none where nothing helps."""
    cp_model = need("ortools.sat.python.cp_model")
    model = cp_model.CpModel()
    most = room // ALIGN
    always = model.new_constant(1)
    stays = {name: model.new_bool_var(f"stay_{name}") for name in spills}
    present = [(block, stays.get(block.name, always)) for block in blocks]
    present += [(ring, stays[name].negated()) for name, spill in spills.items() for ring in spill.rings]
    lives, places = [], []
    for number, (block, where) in enumerate(present):
        size, length = -(-block.size // ALIGN), block.last + 1 - block.first
        if size > most:
            model.add(where == 0)
            continue
        offset = model.new_int_var(0, most - size, f"offset{number}")
        places.append(model.new_optional_fixed_size_interval_var(offset, size, where, f"place{number}"))
        lives.append(model.new_optional_fixed_size_interval_var(block.first, length, where, f"life{number}"))
    model.add_no_overlap_2d(lives, places)
    model.minimize(sum(spills[name].cost * stay.negated() for name, stay in stays.items()))
    solver = cp_model.CpSolver()
    limits = solver.parameters
    limits.num_workers, limits.random_seed, limits.max_deterministic_time = 1, 0, EFFORT
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return frozenset()
    return frozenset(name for name, stay in stays.items() if not solver.value(stay))
