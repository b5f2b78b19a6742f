"""Where a wrong gradient comes from: the statement of a written backward graph that is most likely wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from lamella.base.source import Span
from lamella.bridge.module_to_graph.statements import reads, topological_order
from lamella.lang.module.instantiate.nodes import Instance
from lamella.lang.module.nodes import Conditional, Flow, Statement


def places_of(instance: Instance, wrong: Collection[str], right: Collection[str]) -> dict[str, Span]:
    """For each wrong gradient the statement to look at, by the names that the graph gives gradients.

    Several wrong ones have the last statement in common that no right one depends on; else it is the one that gives
    the gradient. Without a written graph it is the declaration.
    """
    backward = instance.module.backward
    if backward is None or backward.graph is None:
        return dict.fromkeys(wrong, backward.span if backward is not None else instance.module.span)
    flows, _ = topological_order(list(_flows(backward.graph)))
    makers = {target.name: number for number, flow in enumerate(flows) for target in flow.targets}
    behind = [_behind(number, flows, makers) for number in range(len(flows))]
    innocent = {number for name in right if name in makers for number in behind[makers[name]]}
    known = [name for name in wrong if name in makers]
    common = set.intersection(*(behind[makers[name]] for name in known)) - innocent if known else set()
    found = dict.fromkeys(wrong, backward.span)
    for name in known:
        number = max(common) if common and len(known) > 1 else makers[name]
        found[name] = flows[number].span
    return found


def _flows(statements: Sequence[Statement]) -> Iterator[Flow]:
    """The statements of a graph, those of all arms of conditions."""
    for item in statements:
        if isinstance(item, Flow):
            yield item
        elif isinstance(item, Conditional):
            for arm in item.arms:
                yield from _flows(arm.body)
            yield from _flows(item.otherwise or ())


def _behind(number: int, flows: Sequence[Flow], makers: Mapping[str, int]) -> set[int]:
    """A statement and all that it depends on."""
    found = {number}
    todo = [number]
    while todo:
        for name in reads(flows[todo.pop()]):
            maker = makers.get(name)
            if maker is not None and maker not in found:
                found.add(maker)
                todo.append(maker)
    return found
