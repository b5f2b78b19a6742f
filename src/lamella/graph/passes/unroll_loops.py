"""Loop unrolling: a loop whose number of steps is known is written out, one step after the other.

    y = with s = x do..(2) { s = f(s); }    becomes    s_1 = f(x); y = f(s_1);

What takes loops of any kind has no need of it; NAC, whose instructions never run twice, has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lamella.base.dim import symbols
from lamella.base.dtype import I64
from lamella.graph.model import Model
from lamella.graph.nodes import (
    Argument,
    Branch,
    Constant,
    Loop,
    Node,
    Pack,
    Region,
    Tensor,
    walk,
)
from lamella.graph.rewrite import FreshNames, Substitution, copy_of, defined, extents, members, results_of
from lamella.ops.instance import Check

MOST_NODES = 20_000
"""Nodes of a graph that loops are written out to; one that would be more stays a loop."""


def unroll_loops(model: Model, most: int = MOST_NODES) -> Model:
    """The model without loops of a known number of steps, as far as they come to no more nodes than these."""
    graph = model.graph
    if not count_loops(model):
        return model
    unroller = _Unroller(FreshNames(item.name for item in defined(graph)), most)
    nodes = unroller.nodes(graph.nodes)
    constants, checks = (*graph.constants, *unroller.constants), (*graph.checks, *unroller.checks)
    return replace(model, graph=replace(graph, nodes=tuple(nodes), constants=constants, checks=checks))


def count_loops(model: Model) -> int:
    """How many loops a graph has, those in others included."""
    return sum(isinstance(node, Loop) for node in walk(model.graph.nodes))


class _Unroller:
    """Writes out the loops of one graph."""

    def __init__(self, fresh: FreshNames, most: int) -> None:
        self._fresh = fresh
        self._left = most
        self.constants: list[Constant] = []
        self.checks: list[Check] = []

    def nodes(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes, with the steps of loops in the place of these."""
        found: list[Node] = []
        for node in nodes:
            if isinstance(node, Branch):
                branches = tuple(map(self._region, node.branches))
                node = replace(node, conditions=tuple(map(self._region, node.conditions)), branches=branches)
            if not isinstance(node, Loop):
                found.append(node)
                continue
            loop = replace(node, body=self._region(node.body))
            steps = steps_of(loop)
            cost = 0 if steps is None else steps * (len(list(walk(loop.body.nodes))) + len(loop.outputs))
            if steps is None or cost > self._left or _has_own_extents(loop.body):
                found.append(loop)
                continue
            self._left -= cost
            found += self._written(loop, steps)
        return found

    def _region(self, region: Region) -> Region:
        return replace(region, nodes=tuple(self.nodes(region.nodes)))

    def _written(self, loop: Loop, steps: int) -> Iterator[Node]:
        """The steps of a loop, the last of which gives its results."""
        states, carried = list(loop.carried), len(loop.carried)
        self.checks += loop.body.checks
        for step in range(steps):
            given = [*states, *(scan[step] for scan in loop.scans if isinstance(scan, tuple))]
            if loop.index:
                given.append(self._number(step))
            wanted = [_item(item, step) for item in loop.outputs[carried:]]
            last = list(loop.outputs[:carried]) if step == steps - 1 else [None] * carried
            nodes, results = self._step(loop.body, given, [*last, *wanted])
            yield from nodes
            states = results[:carried]
        if not steps:
            yield from _copies(loop.carried, loop.outputs[:carried])

    def _step(
        self, body: Region, given: Sequence[Tensor], wanted: Sequence[Argument]
    ) -> tuple[list[Node], list[Tensor]]:
        """One step for what goes into it, its results being called as they are wanted; and these results."""
        known = {item.name: value for item, value in zip(body.inputs, given, strict=True)}
        made = {item.name for node in body.nodes for item in results_of(node)}
        named: dict[str, Tensor] = {}
        for item, target in zip(body.outputs, wanted, strict=True):
            if isinstance(target, Tensor) and item.name in made:
                named.setdefault(item.name, target)
        inner = _names_in(body)
        fresh = {name: self._fresh.take(name) for name in inner if name not in named}

        def renew(item: Tensor) -> Tensor:
            if item.name in known:
                return known[item.name]
            if item.name in named:
                return replace(item, name=named[item.name].name)
            return replace(item, name=fresh.get(item.name, item.name))

        renewal = Substitution(renew)
        nodes = [renewal.node(node) for node in body.nodes]
        results = [renew(item) for item in body.outputs]
        return [*nodes, *_copies(results, wanted)], results

    def _number(self, step: int) -> Tensor:
        tensor = Tensor(self._fresh.take("step"), I64, ())
        self.constants.append(Constant(tensor, step))
        return tensor


def steps_of(loop: Loop) -> int | None:
    """How many steps a loop takes, where it is known before the run."""
    ends = [len(scan) if isinstance(scan, tuple) else None for scan in loop.scans]
    if isinstance(loop.count, int):
        ends.append(loop.count)
    elif loop.count is not None:
        return None
    known = [end for end in ends if end is not None]
    return min(known) if known and len(known) == len(ends) and loop.condition is None else None


def _item(argument: Argument, step: int) -> Argument:
    """What a step collects of a result that has one tensor for each."""
    return argument[step] if isinstance(argument, tuple) else argument


def _copies(results: Sequence[Tensor], wanted: Sequence[Argument]) -> Iterator[Node]:
    """Copies of results that are wanted under a name that they do not have."""
    for item, target in zip(results, wanted, strict=True):
        if isinstance(target, Tensor) and item.name != target.name:
            yield copy_of(item, target)


def _names_in(region: Region) -> list[str]:
    """What the nodes of a region define, those in their regions included."""
    found = [item.name for node in walk(region.nodes) for item in results_of(node)]
    for node in walk(region.nodes):
        inner = (*node.conditions, *node.branches) if isinstance(node, Branch) else ()
        inner += (node.body,) if isinstance(node, Loop) else ()
        found += [item.name for part in inner for item in part.inputs]
    return found


def _has_own_extents(region: Region) -> bool:
    """Whether extents or lengths of packs are open that only a region tells: each step would have its own."""
    names = set(_names_in(region))
    items = [item for node in walk(region.nodes) for item in members(node.outputs)]
    owners = {
        symbol.name.rpartition(".")[0]
        for item in items
        for extent in extents(item)
        for symbol in symbols(extent)
    }
    return bool(owners & names) or any(isinstance(item, Pack) for item in items)


__all__ = ["count_loops", "steps_of", "unroll_loops"]
