"""Proposals: every pass on every place where it may help, the most promising first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem.nodes import Document
from lamella.lang.nem.resolved import Loop, Plan, Task
from lamella.plan.passes.balance import balance, unpin
from lamella.plan.passes.deepen import deepen
from lamella.plan.passes.hoist import find_hoists, hoist
from lamella.plan.passes.invariant import Hoist
from lamella.plan.passes.rings import Ring, find_rings
from lamella.plan.timing.cost import cost_of
from lamella.plan.timing.machine import Machine

DEEPER = 4
"""How many more iterations in flight are tried."""
MOST_ALONE = 8
"""How many moves are also hoisted one by one."""
MOST_NAMES = 3

Place: TypeAlias = tuple[str, int]
"""A pass and the number of the loop or task it works on."""
Key: TypeAlias = tuple[str, int, int]
"""A place and how far the pass goes there."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A changed document that may be better; `key` tells it from the others, also after other changes."""

    key: Key
    title: str
    why: str
    line: int
    document: Document

    @property
    def place(self) -> Place:
        """What is changed, however far."""
        return self.key[:2]


def propose(document: Document, plan: Plan, limits: Limits = DEFAULT) -> Iterator[Proposal]:
    """Hoisting, deeper windows (the loops with the most work first), DMA balancing; made one by one."""
    yield from _propose_hoists(document, plan, limits)
    for loop in _by_work(plan):
        yield from _propose_windows(document, plan, loop)
    yield from _propose_balance(document, plan)


def _listed(names: list[str]) -> str:
    """Names as a sentence lists them; of many the first ones."""
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


# --- hoisting -----------------------------------------------------------------------------------------------


def _propose_hoists(document: Document, plan: Plan, limits: Limits) -> Iterator[Proposal]:
    """All moves together, then each alone, for one may spoil the others."""
    found = find_hoists(document, plan, limits)
    made = hoist(document, plan, limits) if found else None
    if made is not None:
        yield _describe_hoists(found, made, -1)
    if len(found) > 1:
        for item in found[:MOST_ALONE]:
            made = hoist(document, plan, limits, frozenset([item.task.number]))
            if made is not None:
                yield _describe_hoists([item], made, item.task.number)


def _describe_hoists(found: list[Hoist], made: Document, number: int) -> Proposal:
    names = _listed([item.task.title for item in found])
    loops = list(dict.fromkeys(item.loops[0].variable for item in found))
    saved = sum(item.task.inputs[0].extent * (item.trips - 1) for item in found)
    verb = "moves" if len(found) == 1 else "move"
    why = f"{names} {verb} the same bytes in every iteration; {saved} bytes less are moved"
    title = f"hoist {names} before loop {_listed(loops)}"
    return Proposal(("hoist", number, 0), title, why, found[0].task.span.line, made)


# --- windows ------------------------------------------------------------------------------------------------


def _by_work(plan: Plan) -> list[Loop]:
    """The loops that run tasks, those first in which most cycles are spent."""
    machine = Machine(plan.device)
    work: dict[int, int] = {}
    loops: dict[int, Loop] = {}
    for item, around in plan.walk():
        if isinstance(item, Task):
            cycles = cost_of(item, machine).cycles * prod(loop.trips for loop in around)
            for loop in around:
                loops[loop.number] = loop
                work[loop.number] = work.get(loop.number, 0) + cycles
    return sorted(loops.values(), key=lambda loop: (-work[loop.number], loop.number))


def _propose_windows(document: Document, plan: Plan, loop: Loop) -> Iterator[Proposal]:
    rings = find_rings(plan, loop)
    for window in range(loop.window + 1, min(loop.window + DEEPER, loop.trips) + 1):
        made = deepen(document, plan, loop, window, rings)
        if made is not None:
            why = _describe_rings([ring for ring in rings if ring.modulus < window], window)
            title = f"keep {window} iterations of loop {loop.variable} in flight"
            key = ("deepen", loop.number, window)
            yield Proposal(key, title, f"more tasks overlap; {why}", loop.span.line, made)


def _describe_rings(rings: list[Ring], window: int) -> str:
    if not rings:
        return "the buffers have slots enough"
    levels = dict.fromkeys(ring.buffer.memory for ring in rings)
    slots = " and ".join(
        _describe_slots([ring for ring in rings if ring.buffer.memory == level], window) for level in levels
    )
    return f"{slots}; at the end L2 holds the last {window} tiles of its rings" if "L2" in levels else slots


def _describe_slots(rings: list[Ring], window: int) -> str:
    """The slots of the rings of one memory, and what they cost."""
    names = _listed([ring.buffer.name for ring in rings])
    total = sum(window * ring.slot for ring in rings)
    verb = "gets" if len(rings) == 1 else "get"
    return f"{names} {verb} {window} slots, {total} bytes of {rings[0].buffer.memory}"


# --- balance ------------------------------------------------------------------------------------------------


def _propose_balance(document: Document, plan: Plan) -> Iterator[Proposal]:
    pinned = [task for task in plan.tasks() if task.opcode == "transfer" and task.resource is not None]
    line = min((task.span.line for task in pinned), default=1)
    made = unpin(document, plan)
    if made is not None:
        why = "each takes whichever DMA is free"
        yield Proposal(("unpin", 0, 0), "let transfers choose their DMA", why, line, made)
    made = balance(document, plan)
    if made is not None:
        why = "each DMA of an engine gets about the same number of cycles"
        yield Proposal(("balance", 0, 0), "spread transfers over the DMAs", why, line, made)
