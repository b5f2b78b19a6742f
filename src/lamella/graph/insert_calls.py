"""Places of a graph where a function outside of it sees a tensor, and may give another.

x ─ f ─▶ a ─ g ─▶ b      becomes      x ─ f ─▶ a ─ call ─▶ a' ─ g ─▶ b
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamella.graph.model import FusionHint, Model
from lamella.graph.nodes import Node, Operation, Tensor
from lamella.graph.rewrite import FreshNames, Substitution, defined, members, results_of

CALL = "misc.call"
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "misc.all_reduce", "misc.all_gather", "misc.reduce_scatter"
ALL_TO_ALL, WAIT = "misc.all_to_all", "misc.wait"
CALLS = frozenset((CALL, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, WAIT))
"""Operators that functions outside of the graph do, by the attribute `number`."""


def insert_calls(model: Model, tensors: Mapping[str, int]) -> tuple[Model, dict[str, str]]:
    """The model with a call of some number behind each of some tensors, and the results of the calls by the tensors.

    Everything behind reads what the call gives; outputs keep their names.
    """
    graph = model.graph
    names = FreshNames(item.name for item in defined(graph))
    outputs = {item.name for item in members(graph.outputs)}
    before: dict[str, Tensor] = {}
    after: dict[str, Tensor] = {}
    nodes: list[Node] = []
    reading = Substitution(lambda item: after.get(item.name, item))
    for node in graph.nodes:
        found = [item for item in results_of(node) if isinstance(item, Tensor) and item.name in tensors]
        made = reading.node(node)
        for item in found:
            other = replace(item, name=names.take(f"{item.name}_seen"), quantization=None)
            # An output keeps its name: what the node makes is called otherwise then.
            before[item.name], after[item.name] = (other, item) if item.name in outputs else (item, other)
        if isinstance(made, Operation) and found:
            making = Substitution(lambda item: before.get(item.name, item))
            made = replace(made, outputs=tuple(map(making.argument, made.outputs)))
        nodes.append(made)
        for item in found:
            ends, number = ((before[item.name],), (after[item.name],)), (("number", tensors[item.name]),)
            nodes.append(Operation(CALL, *ends, number, (("T", item.element),), origin=node.origin))
    results = {name: item.name for name, item in after.items()}
    apart = FusionHint(frozenset(results.values()), is_apart=True, reason="a hook changes it")
    hints = (*model.hints, apart) if results else model.hints
    return replace(model, graph=replace(graph, nodes=tuple(nodes)), hints=hints), results


__all__ = [
    "ALL_GATHER",
    "ALL_REDUCE",
    "ALL_TO_ALL",
    "CALL",
    "CALLS",
    "REDUCE_SCATTER",
    "WAIT",
    "insert_calls",
]
