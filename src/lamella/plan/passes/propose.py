"""Proposals: every pass on every place where it may help, the most promising first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from lamella.base.errors import Found
from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem import nodes
from lamella.lang.nem.evaluate import evaluate
from lamella.lang.nem.nodes import Document
from lamella.lang.nem.resolved import Loop, Plan, Task
from lamella.lang.nem.rules import UNDEFINED
from lamella.plan.passes.hoist import Hoist, find_hoists, hoist
from lamella.plan.passes.rewrite import Edits, loops_of, names_in, walk
from lamella.plan.passes.ring_buffers import Ring, RingUse, find_rings
from lamella.plan.timing.cost import Cost, cost_of
from lamella.plan.timing.machine import MachineModel

# --- deepening: `@max_in_flight(N)` = `@max_in_flight(M)` with M > N, when rings of fewer than M ------------


WINDOW = "max_in_flight"


def widen_window(
    document: nodes.Document, plan: Plan, loop: Loop, window: int, rings: Sequence[Ring] | None = None
) -> nodes.Document | None:
    """The document with so many iterations of a loop in flight; None where its text cannot be changed so.

    `rings` are those of the loop, if they are known already.
    """
    rings = find_rings(plan, loop) if rings is None else rings
    rings = [ring for ring in rings if ring.modulus < window]
    if loop.window >= window or (loop.first < 0 and not all(ring.turns for ring in rings)):
        return None
    return _WindowWidening(document, loops_of(document)[loop.number], window).apply(rings)


class _WindowWidening:
    """Collects the expressions that count slots, and the offsets that need a slot."""

    def __init__(self, document: nodes.Document, loop: nodes.Loop, window: int) -> None:
        self._document, self._loop, self._window = document, loop, window
        self._edits = Edits()
        self._counts: dict[int, nodes.Expr] = {}
        self._offsets: dict[int, nodes.Expr] = {}
        self._lets: dict[str, nodes.Let] = {}
        self._consts: dict[str, nodes.Const] = {}
        self._values: dict[str, int] = {}
        self._regions: dict[tuple[int, int], tuple[nodes.RegionDef, bool]] = {}
        for statement, around in walk(document):
            self._note(statement, inside=any(item is loop for item in around))

    def _note(self, statement: nodes.Statement, inside: bool) -> None:
        if isinstance(statement, nodes.RegionDef):
            span = statement.region.span
            self._regions[span.start, span.end] = statement, inside
        elif isinstance(statement, nodes.Let):
            self._lets[statement.name.id] = statement
        elif isinstance(statement, nodes.Const):
            self._consts[statement.name.id] = statement
            value = self._value(statement.value)
            if value is not None:
                self._values[statement.name.id] = value

    def _value(self, expr: nodes.Expr) -> int | None:
        try:
            return evaluate(expr, self._look_up)
        except Found:
            return None

    def _look_up(self, name: nodes.Name) -> int:
        if name.id not in self._values:
            raise Found(UNDEFINED.at(name.span, name=name.id))
        return self._values[name.id]

    def apply(self, rings: Sequence[Ring]) -> nodes.Document | None:
        """The changed document, or None."""
        for ring in rings:
            if not ring.turns:
                self._begin_ring(ring)
            elif not self._extend_ring(ring):
                return None
        if not all(self._only_here(let) for let in self._used_lets()):
            return None
        self._open_window()
        self._change_counts()
        return self._edits.apply(self._document)

    # --- a ring that exists ---------------------------------------------------------------------------------

    def _extend_ring(self, ring: Ring) -> bool:
        for use in ring.uses:
            region = self._region(use)
            moduli = [] if region is None else self._moduli(region.offset)
            if region is None or len(moduli) != 1:
                return False
            self._offsets[id(region.offset)] = region.offset
            self._counts[id(moduli[0])] = moduli[0]
        size = ring.buffer.node.size
        if size is None:
            return False
        count = self._count_in(size, ring)
        if count is not None:
            self._counts[id(count)] = count
        else:
            more = nodes.Integer((self._window - ring.modulus) * ring.slot)
            self._edits.swap(size, nodes.Chain(size, (("+", more),)))
        return True

    def _count_in(self, size: nodes.Expr, ring: Ring) -> nodes.Expr | None:
        """The factor of a size `count * slot` that counts the slots."""
        if ring.buffer.size != ring.modulus * ring.slot or not isinstance(size, nodes.Chain):
            return None
        factors = [size.first, *(operand for sign, operand in size.rest if sign == "*")]
        if len(factors) <= len(size.rest):
            return None
        return next((item for item in factors if self._value(item) == ring.modulus), None)

    def _moduli(self, expr: nodes.Expr) -> list[nodes.Expr]:
        """What stands right of `mod` in an expression and in the lets that it names."""
        todo, found, seen = [expr], [], set[str]()
        while todo:
            item = todo.pop()
            if isinstance(item, nodes.Chain):
                todo += [item.first, *(operand for sign, operand in item.rest if sign != "mod")]
                found += [operand for sign, operand in item.rest if sign == "mod"]
            elif isinstance(item, nodes.Negate):
                todo.append(item.operand)
            elif isinstance(item, nodes.Name) and item.id not in seen and item.id in self._lets:
                seen.add(item.id)
                value = self._lets[item.id].value
                todo += [] if isinstance(value, nodes.Text | nodes.Items) else [value]
        return found

    def _used_lets(self) -> Iterator[nodes.Let]:
        """The lets that hold a count."""
        for let in self._lets.values():
            moduli = [] if isinstance(let.value, nodes.Text | nodes.Items) else self._moduli(let.value)
            if any(id(item) in self._counts for item in moduli):
                yield let

    def _only_here(self, let: nodes.Let) -> bool:
        """Whether a let is used in the offsets of rings alone."""
        everywhere = sum(name.id == let.name.id for name in names_in(self._document.statements))
        here = sum(name.id == let.name.id for expr in self._offsets.values() for name in names_in(expr))
        return everywhere == here + 1

    # --- a ring that begins ---------------------------------------------------------------------------------

    def _begin_ring(self, ring: Ring) -> None:
        size = ring.buffer.node.size or nodes.Integer(ring.buffer.size)
        self._edits.swap(size, _product(nodes.Integer(self._window), size))
        turn = nodes.Chain(self._loop.variable, (("mod", nodes.Integer(self._window)),))
        slot = nodes.Chain(turn, (("*", size),))
        begun: set[int] = set()
        for use in ring.uses:
            region = self._region(use)
            if region is None:
                operand = _operand(use)
                whole = nodes.Region(nodes.Name(ring.buffer.name), slot, size)
                self._edits.swap(operand, replace(operand, value=whole))
            elif id(region) not in begun:
                begun.add(id(region))
                self._shift(use, region, slot)

    def _shift(self, use: RingUse, region: nodes.Region, slot: nodes.Expr) -> None:
        """Put a region into the slot; one that is named outside the loop is named inside instead."""
        shifted = replace(region, offset=_sum(slot, region.offset))
        known = self._regions.get((region.span.start, region.span.end))
        if known is None or known[1]:
            self._edits.swap(region, shifted)
        else:
            self._edits.drop(known[0])
            self._edits.put_first(self._loop, replace(known[0], region=shifted))

    # --- places ---------------------------------------------------------------------------------------------

    def _region(self, use: RingUse) -> nodes.Region | None:
        """The text of an operand's region; None for a whole buffer."""
        value = _operand(use).value
        if isinstance(value, nodes.Region):
            return value
        span = use.region.span
        known = self._regions.get((span.start, span.end))
        return None if known is None else known[0].region

    def _open_window(self) -> None:
        for decorator in self._loop.decorators:
            if decorator.name == WINDOW and isinstance(decorator.arguments[0], nodes.Expr):
                self._counts[id(decorator.arguments[0])] = decorator.arguments[0]
                return
        opened = nodes.Decorator(WINDOW, (nodes.Integer(self._window),))
        self._edits.decorate(self._loop, (opened, *self._loop.decorators))

    def _change_counts(self) -> None:
        """Write the new number: once, where one constant counts all this and nothing else."""
        counts = list(self._counts.values())
        names = {item.id for item in counts if isinstance(item, nodes.Name)}
        const = self._consts.get(names.pop()) if len(names) == 1 else None
        if const is not None and all(isinstance(item, nodes.Name) for item in counts):
            uses = sum(name.id == const.name.id for name in names_in(self._document.statements))
            if uses == len(counts) + 1:
                self._edits.swap(const.value, nodes.Integer(self._window))
                return
        for item in counts:
            self._edits.swap(item, nodes.Integer(self._window))


def _operand(use: RingUse) -> nodes.Operand:
    return (use.task.node.outputs if use.write else use.task.node.inputs)[use.operand]


def _product(count: nodes.Expr, size: nodes.Expr) -> nodes.Expr:
    """`count * size`, flat where the size is a product."""
    if isinstance(size, nodes.Chain) and all(sign == "*" for sign, _ in size.rest):
        return nodes.Chain(count, (("*", size.first), *size.rest))
    return nodes.Chain(count, (("*", size),))


def _sum(slot: nodes.Expr, offset: nodes.Expr) -> nodes.Expr:
    """`slot + offset`, flat where the offset is a sum, without it where it is zero."""
    if isinstance(offset, nodes.Integer) and offset.value == 0:
        return slot
    if isinstance(offset, nodes.Chain) and offset.rest[0][0] in ("+", "-"):
        return nodes.Chain(slot, (("+", offset.first), *offset.rest))
    return nodes.Chain(slot, (("+", offset),))


# --- balancing: `@resource(DMA[k])` on transfers is only a wish, so any other choice of k, or none ----------


DMA = "DMA"


def balance(document: nodes.Document, plan: Plan) -> nodes.Document | None:
    """The document with every transfer on the DMA that balances the work; None where they are there already."""
    loads: dict[int, list[int]] = {}
    chosen: dict[int, int] = {}
    works = sorted(_works(plan), key=lambda item: (-item[2], item[0].number))
    for task, cost, work in works:
        load = loads.setdefault(cost.engine, [0] * cost.instances)
        index = load.index(min(load))
        load[index] += work
        chosen[task.number] = index
    if all(len(load) < 2 for load in loads.values()):
        return None
    return _pin(document, plan, chosen)


def unpin(document: nodes.Document, plan: Plan) -> nodes.Document | None:
    """The document without DMA indices on transfers; None where there are none."""
    return _pin(document, plan, {})


def _works(plan: Plan) -> Iterator[tuple[Task, Cost, int]]:
    """The transfers that run on a DMA, with their work; those of loops without iterations have none."""
    machine = MachineModel(plan.device)
    for item, around in plan.walk():
        if isinstance(item, Task) and item.opcode == "transfer":
            cost = cost_of(replace(item, resource=None), machine)
            if cost.unit == DMA:
                yield item, cost, cost.cycles * prod(loop.trips for loop in around)


def _pin(document: nodes.Document, plan: Plan, chosen: Mapping[int, int]) -> nodes.Document | None:
    """Give the transfers their DMA, and those without one no unit at all."""
    edits, changed = Edits(), False
    for task in plan.tasks():
        if task.opcode != "transfer":
            continue
        others = tuple(item for item in task.node.decorators if item.name != "resource")
        index = chosen.get(task.number)
        unit = () if index is None else (nodes.UnitRef(DMA, nodes.Integer(index)),)
        decorators = (*others, nodes.Decorator("resource", unit)) if unit else others
        if set(decorators) != set(task.node.decorators):
            edits.decorate(task.node, decorators)
            changed = True
    return edits.apply(document) if changed else None


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
    machine = MachineModel(plan.device)
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
        made = widen_window(document, plan, loop, window, rings)
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
