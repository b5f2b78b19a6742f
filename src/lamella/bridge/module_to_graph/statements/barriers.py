"""Statements behind a barrier run behind it."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.bridge.module_to_graph.statements.order import reads
from lamella.lang.module.nodes import Flow

BARRIER = "barrier"


def keep_barriers(sorted_flows: list[Flow], written: Sequence[Flow]) -> list[Flow]:
    """Statements in an order that they can run in, those written behind a barrier behind it where they can be.

    What a barrier itself needs runs before it wherever it is written.
    """
    places = {id(flow): number for number, flow in enumerate(written)}
    barriers = [number for number, flow in enumerate(written) if is_barrier(flow)]
    if not barriers:
        return sorted_flows
    needs = _needs(written)
    done: set[int] = set()
    found: list[Flow] = []
    for last in (*barriers, len(written) - 1):
        group = _closure(range(last + 1), needs, done)
        found += [flow for flow in sorted_flows if places[id(flow)] in group]
        done |= group
    return found


def is_barrier(flow: Flow) -> bool:
    """Whether a statement is annotated with `@barrier`."""
    marks = (*flow.annotations, *(item for target in flow.targets for item in target.annotations))
    return any(item.name == BARRIER for item in marks)


def _needs(flows: Sequence[Flow]) -> list[set[int]]:
    makers: dict[str, list[int]] = {}
    for number, flow in enumerate(flows):
        for target in flow.targets:
            makers.setdefault(target.name, []).append(number)
    return [{maker for name in reads(flow) for maker in makers.get(name, ())} for flow in flows]


def _closure(numbers: range, needs: Sequence[set[int]], done: set[int]) -> set[int]:
    """These statements and all that they need, without those that ran before."""
    found: set[int] = set()
    todo = [number for number in numbers if number not in done]
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += needs[number] - done - found
    return found
