"""Liveness of tensors in a row of nodes: their last uses, so that a run holds no more than it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lamella.base.liveness import live_ranges
from lamella.graph.nodes import Argument, Loop, Node, Operation, Pack, Tensor, regions, tensors


def names_of(arguments: Iterable[Argument]) -> Iterator[str]:
    """The names under which arguments are held."""
    for argument in arguments:
        if isinstance(argument, Pack):
            yield argument.name
        else:
            yield from (item.name for item in tensors(argument))


def uses_of(node: Node) -> Iterator[str]:
    """The names that a node and everything inside it reads."""
    if isinstance(node, Operation):
        yield from names_of(node.inputs)
    if isinstance(node, Loop):
        yield from names_of((*node.carried, *node.scans))
        if isinstance(node.count, Tensor):
            yield node.count.name
    for region in regions(node):
        yield from names_of(region.outputs)
        for inner in region.nodes:
            yield from uses_of(inner)


def last_uses(nodes: Sequence[Node], inputs: Iterable[str], kept: Iterable[str]) -> list[tuple[str, ...]]:
    """For each node, the names that this row of nodes was given or defined and that nothing after it needs."""
    steps = ((uses_of(node), names_of(node.outputs)) for node in nodes)
    found: list[list[str]] = [[] for _ in nodes]
    stay = set(kept)
    for name, alive in live_ranges(steps, before=inputs).items():
        if name not in stay and nodes:
            found[max(alive.last, 0)].append(name)
    return [tuple(row) for row in found]
