"""What happens before what, without unrolling loops.

Let s and t be two tasks, and look at the loops around both.

* Different iterations: let j be the outermost common loop in which the two instances differ. Tokens never leave an
  iteration, so only the window orders them: they are ordered if and only if their distance is at least window(j).
* The same iteration of all common loops: let A and B be the items of the innermost common list that hold s and t,
  A first. If A is a loop, its join orders s before t. Otherwise A is s itself, and t may stand inside loops
  b1 … bk. s is before t if a chain of deps, waits, `.sync` and joins leads from s to t, looking only at the first
  iterations of b1 … bk; or if some bm is past its window, that is its iteration number, from 0, is at least
  window(bm), and anything inside bm is after s: then a whole iteration that ends after s lies before.

So two instances in the same common iteration are unordered exactly when no chain exists and t is in the first
window(bm) iterations of every bm whose end is after s. The chains are kept as bit sets over the tasks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from lamella.lang.nem.resolved import Item, Loop, Plan, Task, Wait


@dataclass(frozen=True, slots=True)
class Site:
    """A task that is executed at least once, with the loops around it; `index` counts such tasks."""

    index: int
    task: Task
    loops: tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class LoopExtent:
    """A loop that is executed, at its depth, and the sites inside: first <= index < end."""

    loop: Loop
    depth: int
    first: int
    end: int


class Order:
    """The sites of a plan, its loops (inner before outer), and the order of the sites."""

    def __init__(self, plan: Plan) -> None:
        self._body = plan.body
        self.sites: list[Site] = []
        self.loops: list[LoopExtent] = []
        self._last_use: dict[int, int] = {}
        self._collect(plan.body, ())
        self._index = {site.task.number: site.index for site in self.sites}
        self._expiring = self._expire()
        self._ends: dict[int, int] = {}
        for _ in self.sweep():
            pass

    def _collect(self, body: tuple[Item, ...], around: tuple[Loop, ...]) -> None:
        for item in body:
            if isinstance(item, Loop):
                if item.trips > 0:
                    first = len(self.sites)
                    self._collect(item.body, (*around, item))
                    self.loops.append(LoopExtent(item, len(around), first, len(self.sites)))
                continue
            self._last_use.update(dict.fromkeys(item.deps, len(self.sites)))
            if isinstance(item, Task):
                self.sites.append(Site(len(self.sites), item, around))

    def _expire(self) -> dict[int, list[int]]:
        """The sites whose chains nobody asks for once a site is done: long chains stay small in memory."""
        found: dict[int, list[int]] = {}
        for number, user in self._last_use.items():
            if number in self._index:
                found.setdefault(user, []).append(self._index[number])
        return found

    def sweep(self) -> Iterator[tuple[Site, int]]:
        """Every site with the set of earlier sites that are not always before it in the same iteration.

        Only sites of the lists around it are in the set: all others are ordered by a loop's join.
        """
        yield from self._sweep(self._body, 0, 0, {})

    def first_iterations(self, early: Site, late: Site) -> dict[int, int]:
        """For a pair of `sweep`: the depths at which `late` is unordered only in so many first iterations."""
        return {
            depth: loop.window
            for depth, loop in enumerate(late.loops)
            if depth >= len(early.loops) and self._ends.get(loop.number, 0) >> early.index & 1
        }

    def _sweep(
        self, body: tuple[Item, ...], gate: int, around: int, closed: dict[int, int]
    ) -> Generator[tuple[Site, int], None, int]:
        """Walk a list; `gate` is complete before it, `around` are the earlier sites of the lists around.

        `closed` has, for sites that are still asked for, all that is complete when the site is. Returns what is
        complete when the whole list is.
        """
        everything = gate
        for item in body:
            if isinstance(item, Task):
                site = self.sites[self._index[item.number]]
                before = gate | self._complete(item.deps, closed)
                yield site, around & ~before
                around |= 1 << site.index
                done = before | 1 << site.index
                self._keep(site.index, done, closed)
                everything |= done
                gate = done if item.sync else gate
            elif isinstance(item, Wait):
                gate |= self._complete(item.deps, closed)
            elif item.trips > 0:
                end = yield from self._sweep(item.body, gate, around, closed)
                self._note_end(item, end & around & ~gate)
                gate |= end
            everything |= gate
        return everything

    def _complete(self, deps: tuple[int, ...], closed: dict[int, int]) -> int:
        found = 0
        for dep in deps:
            # A task in error is not in the plan, and nobody else may stumble over that.
            if dep in self._index:
                found |= closed[self._index[dep]]
        return found

    def _keep(self, index: int, done: int, closed: dict[int, int]) -> None:
        for expired in self._expiring.get(index, ()):
            closed.pop(expired, None)
        if self.sites[index].task.number in self._last_use:
            closed[index] = done

    def _note_end(self, loop: Loop, end: int) -> None:
        if end:
            self._ends[loop.number] = end
