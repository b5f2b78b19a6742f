"""Balancing: `@resource(DMA[k])` on transfers is only a wish, so any other choice of k, or none, keeps the numbers.

The work of a transfer is its cycles times its executions. `balance` gives every transfer the least loaded DMA of its
engine, the largest work first; `unpin` leaves the choice to the scheduler, which takes whatever DMA is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from lamella.lang.nem import nodes
from lamella.lang.nem.resolved import Plan, Task
from lamella.plan.passes.rewrite import Edits
from lamella.plan.timing.cost import Cost, cost_of
from lamella.plan.timing.machine import Machine

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
    machine = Machine(plan.device)
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
