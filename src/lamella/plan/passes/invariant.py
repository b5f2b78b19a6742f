"""Moves that do the same in every iteration of loops around them, and what they come after inside those loops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem.resolved import Item, Loop, Plan, Task
from lamella.lang.nem.words import MOVES
from lamella.plan.hazards import budget_of
from lamella.plan.hazards.accesses import Access, Accesses
from lamella.plan.hazards.writes import Touched, Writes
from lamella.plan.order import Extent, Order, Site


@dataclass(frozen=True, slots=True)
class Hoist:
    """A move and the loops it can leave, outermost first; `depth` loops stay around it."""

    task: Task
    loops: tuple[Loop, ...]
    depth: int

    @property
    def trips(self) -> int:
        """How often the move is executed for each time it would be executed outside."""
        return prod(loop.trips for loop in self.loops)

    def leaves(self, loop: Loop) -> bool:
        """Whether this loop is among those left."""
        return any(item.number == loop.number for item in self.loops)


def find_invariant(
    plan: Plan, limits: Limits = DEFAULT, accept: Callable[[Hoist], bool] = bool
) -> list[Hoist]:
    """In textual order, the moves that can leave a loop of several iterations, given that those accepted do."""
    search, found = _Search(plan, limits), []
    for site in search.order.sites:
        if site.task.opcode in MOVES and site.loops:
            depth = search.outermost(site)
            item = Hoist(site.task, site.loops[depth:], depth)
            if item.trips > 1 and accept(item):
                search.left[site.index] = depth
                found.append(item)
    return found


class _Search:
    """Asks for one loop after the other, from the innermost outwards; `left` has the depth each site moves to."""

    def __init__(self, plan: Plan, limits: Limits) -> None:
        self.order = Order(plan)
        self.left: dict[int, int] = {}
        self._accesses = Accesses(self.order, budget_of(limits))
        self._extents = {extent.loop.number: extent for extent in self.order.loops}
        self._inside: dict[int, tuple[Touched, Writes]] = {}

    def outermost(self, site: Site) -> int:
        """The depth at which the move can stand; its own where it can leave no loop."""
        depth = len(site.loops)
        if len(self._accesses.of[site.index]) == 2:
            while depth and self._may_leave(site, self._extents[site.loops[depth - 1].number]):
                depth -= 1
        return depth

    def _may_leave(self, site: Site, extent: Extent) -> bool:
        source, target = self._accesses.of[site.index]
        if any(extent.depth in access.footprint.offset.loops() for access in (source, target)):
            return False
        touched, writes = self._touched(extent)
        if writes.aliasing(source) or touched.aliasing(target):
            return False
        # Another task that writes the target, or one that sees it as it was before the first iteration.
        others = (access for access in self._staying(touched, target, extent) if access.site is not site)
        if any(access.write or access.site.index < site.index for access in others):
            return False
        return not any(True for _ in self._staying(writes, source, extent))

    def _touched(self, extent: Extent) -> tuple[Touched, Writes]:
        number = extent.loop.number
        if number not in self._inside:
            accesses = [access for of in self._accesses.of[extent.first : extent.end] for access in of]
            self._inside[number] = Touched(accesses), Writes(accesses)
        return self._inside[number]

    def _staying(self, touched: Touched, access: Access, extent: Extent) -> Iterator[Access]:
        """Accesses to the same bytes by tasks that stay inside the loop."""
        for other in touched.meeting(access):
            if self.left.get(other.site.index, extent.depth + 1) > extent.depth:
                yield other


# --- order inside a loop ------------------------------------------------------------------------------------


class Precedence:
    """What each task of a loop directly comes after, through deps, waits, `.sync` and the ends of inner loops."""

    def __init__(self, loop: Loop) -> None:
        self._before: dict[int, frozenset[int]] = {}
        self._collect(loop.body, frozenset())

    def _collect(self, body: tuple[Item, ...], gate: frozenset[int]) -> frozenset[int]:
        """Walk one list behind a gate; all its tasks."""
        made: set[int] = set()
        for item in body:
            if isinstance(item, Loop):
                inside = self._collect(item.body, gate)
                made |= inside
                gate = inside or gate
            elif isinstance(item, Task):
                self._before[item.number] = gate.union(item.deps)
                made.add(item.number)
                gate = gate | {item.number} if item.sync else gate
            else:
                gate = gate.union(item.deps)
        return frozenset(made)

    def outside(self, task: Task, gone: set[int]) -> list[int]:
        """The tasks outside the loop, or `gone` from it, that a task comes after by way of tasks inside."""
        todo, seen, found = list(self._before[task.number]), set[int](), []
        while todo:
            number = todo.pop()
            if number in seen:
                continue
            seen.add(number)
            if number in gone or number not in self._before:
                found.append(number)
            else:
                todo += self._before[number]
        return sorted(found)


def waited_for(task: Task, loop: Loop, hoisted: Mapping[int, Collection[int]]) -> bool:
    """Whether something executed in a loop waits for a task; of those hoisted, only what they need outside counts."""
    todo: list[Item] = list(loop.body)
    while todo:
        item = todo.pop()
        if isinstance(item, Loop):
            todo += item.body if item.trips > 0 else ()
            continue
        deps: Collection[int] = item.deps
        if isinstance(item, Task) and item.number in hoisted:
            deps = hoisted[item.number]
        if task.number in deps:
            return True
    return False
