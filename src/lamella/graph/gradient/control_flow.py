"""Gradients of control flow: an `if` goes back by the same branch, a loop by a loop from its last step to its first.

The forward loop keeps what it carried into each step, as one tensor for each step: the tape. A step back computes the
step again from there, then its gradients; gradients of what all steps read add up from step to step.

A loop of which only the run tells how often it goes round counts its steps. There is no tape of unknown length: a step
back goes from the beginning to where that step began. That takes no memory, and time with the square of the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from lamella.base.dtype import I64
from lamella.base.errors import Unsupported
from lamella.graph.build import Builder
from lamella.graph.nodes import Branch, Loop, Node, Operation, Pack, Region, Tensor, regions, tensors, walk
from lamella.graph.rewrite import Substitution, operands_of, results_of
from lamella.ops.gradient import STOPPING

Adjoints = dict[str, Tensor]


class Sweep(Protocol):
    """What goes back through nodes."""

    builder: Builder

    def sweep(self, nodes: Sequence[Node], adjoints: Adjoints, needed: set[str]) -> None:
        """Go back through nodes, from adjoints to those of what the nodes read."""

    def add(self, adjoints: Adjoints, target: Tensor, part: Tensor) -> None:
        """Add to the adjoint of a tensor."""

    def zero(self, tensor: Tensor) -> Tensor:
        """Zeros like a tensor."""


# --- what depends on what is wanted -------------------------------------------------------------------------


def mark(nodes: Sequence[Node], found: set[str]) -> None:
    """Add the real tensors that nodes compute from those that are marked, in regions too."""
    for node in nodes:
        if isinstance(node, Operation):
            if node.operator not in STOPPING and any(item.name in found for item in operands_of(node)):
                found |= {item.name for item in results_of(node) if _is_real(item)}
        elif isinstance(node, Branch):
            for region in node.branches:
                mark(region.nodes, found)
                pairs = zip(node.outputs, region.outputs, strict=True)
                found |= {one.name for one, two in pairs if two.name in found and _is_real(one)}
        else:
            _mark_loop(node, found)


def _mark_loop(node: Loop, found: set[str]) -> None:
    inner, size = node.body.inputs, None
    for item, scan in zip(inner[len(node.carried) :], node.scans, strict=False):
        given = (scan,) if isinstance(scan, Pack) else scan
        if any(one.name in found for one in given):
            found.add(item.name)
    # What one step carries on the next one reads: until nothing new is marked.
    while size != len(found):
        size = len(found)
        for place, (item, outer) in enumerate(zip(inner, node.carried, strict=False)):
            if {outer.name, node.body.outputs[place].name} & found and _is_real(item):
                found.add(item.name)
        mark(node.body.nodes, found)
    for place, argument in enumerate(node.outputs):
        carried = node.carried[place].name if place < len(node.carried) else ""
        if {node.body.outputs[place].name, carried} & found:
            made = (argument,) if isinstance(argument, Pack) else tensors(argument)
            found |= {item.name for item in made if _is_real(item)}


def _items(scan: tuple[Tensor, ...] | Pack) -> tuple[Tensor, ...]:
    if isinstance(scan, Pack):
        raise Unsupported("a loop over a pack whose length only the run tells has no derivative here")
    return scan


def _is_real(item: Tensor | Pack) -> bool:
    return item.element.is_float


# --- going back -------------------------------------------------------------------------------------------------


class ControlFlow:
    """The branches and loops of one graph, with the tapes of the loops."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._tapes: dict[str, list[tuple[Tensor, ...]]] = {}
        self._counters: dict[str, Tensor] = {}
        """How often loops went round of which only the run tells it."""

    @property
    def builder(self) -> Builder:
        """What is built."""
        return self.sweep.builder

    def with_tapes(self, nodes: Sequence[Node], needed: set[str]) -> tuple[Node, ...]:
        """Nodes whose loops keep what they carry, where gradients go back through them."""
        return tuple(
            self._taped(node) if isinstance(node, Loop) and _is_needed(node, needed) else node
            for node in nodes
        )

    def _taped(self, node: Loop) -> Loop:
        steps = steps_of(node)
        if steps is None:
            return self._counted(node)
        inner = node.body.inputs[: len(node.carried)]
        names = [self.builder.fresh(item.name) for item in inner]
        tapes = [
            tuple(replace(item, name=f"{name}:{step}") for step in range(1, steps + 1))
            for item, name in zip(inner, names, strict=True)
        ]
        body = replace(node.body, outputs=(*node.body.outputs, *inner))
        made = replace(node, body=body, outputs=(*node.outputs, *tapes))
        self._tapes[_key(made)] = tapes
        return made

    def _counted(self, node: Loop) -> Loop:
        """A loop that counts its steps."""
        builder, width = self.builder, len(node.carried)
        zero, one = (builder.constant(number, I64, ()) for number in (0, 1))
        before, seen, end = (replace(zero, name=builder.fresh("steps")) for _ in range(3))
        counting = builder.region(lambda: (builder.call("math.add", before, one),))

        def with_count(region: Region, *made: Tensor) -> Region:
            inputs = (*region.inputs[:width], before if made else seen, *region.inputs[width:])
            nodes = (*region.nodes, *counting.nodes) if made else region.nodes
            return replace(
                region,
                inputs=inputs,
                nodes=nodes,
                outputs=(*region.outputs, *made),
            )

        test = node.condition and with_count(node.condition)
        found = replace(
            node,
            carried=(*node.carried, zero),
            body=with_count(node.body, *counting.outputs),
            condition=test,
            outputs=(*node.outputs, end),
        )
        self._counters[_key(found)] = end
        return found

    # --- branches -----------------------------------------------------------------------------------------------

    def pull_branch(self, node: Branch, adjoints: Adjoints, needed: set[str]) -> None:
        """Go back through an `if`."""
        seeds = [adjoints.get(item.name) for item in node.outputs]
        if not any(seeds):
            return
        read = _captured(node.branches, needed)
        conditions = tuple(self._region(item, (), read, needed) for item in node.conditions)
        branches = tuple(self._region(item, seeds, read, needed) for item in node.branches)
        outputs = tuple(replace(item, name=self.builder.fresh(f"d_{item.name}")) for item in read)
        self.builder.add_node(Branch(conditions, branches, outputs, origin=node.origin))
        for target, part in zip(read, outputs, strict=True):
            self.sweep.add(adjoints, target, part)

    def _region(
        self, region: Region, seeds: Sequence[Tensor | None], read: Sequence[Tensor], needed: set[str]
    ) -> Region:
        """A region with its gradients; without seeds a condition, which is only asked again."""

        def body() -> Sequence[Tensor]:
            nodes, mapping = self._again(region, {}, needed)
            if not seeds:
                return [mapping.get(item.name, item) for item in region.outputs]
            own: Adjoints = {}
            for item, seed in zip(region.outputs, seeds, strict=True):
                if seed is not None:
                    self.sweep.add(own, mapping.get(item.name, item), seed)
            self.sweep.sweep(nodes, own, needed)
            return [own.get(item.name) or self.sweep.zero(item) for item in read]

        return self.builder.region(body)

    def _again(
        self, region: Region, known: Mapping[str, Tensor], needed: set[str]
    ) -> tuple[tuple[Node, ...], dict[str, Tensor]]:
        """Write the nodes of a region once more, under other names: the nodes, and the names."""
        mapping = dict(known)
        for node in walk(region.nodes):
            made = [*results_of(node), *(item for one in regions(node) for item in one.inputs)]
            for item in made:
                if isinstance(item, Pack):
                    raise Unsupported("a pack whose length only the run tells has no derivative here")
                mapping[item.name] = replace(item, name=self.builder.fresh(item.name))
        change = Substitution(lambda item: mapping.get(item.name, item))
        needed |= {new.name for old, new in mapping.items() if old in needed}
        nodes = self.with_tapes([change.node(item) for item in region.nodes], needed)
        for node in nodes:
            self.builder.add_node(node)
        return nodes, mapping

    # --- loops --------------------------------------------------------------------------------------------------

    def pull_loop(self, node: Loop, adjoints: Adjoints, needed: set[str]) -> None:
        """Go back through a loop."""
        if _key(node) in self._counters:
            self._pull_counted(node, self._counters[_key(node)], adjoints, needed)
            return
        carried, width = node.carried, len(node.carried)
        moving = [place for place, item in enumerate(node.body.inputs[:width]) if item.name in needed]
        given = [item for argument in node.outputs for item in tensors(argument)]
        if not any(item.name in adjoints for item in given):
            return
        read = _captured([node.body], needed)
        begin = [self._adjoint(adjoints, node.outputs[place], carried[place]) for place in moving]
        collected = node.outputs[width : len(node.body.outputs) - width]
        seeded = [
            (width + place, tuple(self._adjoint(adjoints, one, one) for one in tensors(item)))
            for place, item in enumerate(collected)
            if any(one.name in adjoints for one in tensors(item))
        ]
        scans = [*self._tapes[_key(node)], *map(_items, node.scans)]
        if node.index:
            numbers = range(steps_of(node) or 0)
            scans.append(tuple(self.builder.constant(number, I64, ()) for number in numbers))
        scanned = [
            place for place in range(width, width + len(node.scans)) if node.body.inputs[place].name in needed
        ]

        def body(*inputs: Tensor) -> Sequence[Tensor]:
            back, sums = inputs[: len(moving)], inputs[len(moving) : len(moving) + len(read)]
            items = inputs[len(moving) + len(read) :]
            names = [item.name for item in node.body.inputs]
            nodes, mapping = self._again(node.body, dict(zip(names, items, strict=False)), needed)
            own: Adjoints = {}
            ends = [(place, one) for place, one in zip(moving, back, strict=True)]
            ends += [(place, one) for (place, _), one in zip(seeded, items[len(names) :], strict=True)]
            for place, seed in ends:
                item = node.body.outputs[place]
                self.sweep.add(own, mapping.get(item.name, item), seed)
            self.sweep.sweep(nodes, own, needed)
            inner = [mapping[names[place]] for place in (*moving, *scanned)]
            found = [own.get(item.name) or self.sweep.zero(item) for item in inner]
            parts = [own.get(item.name) for item in read]
            totals = [
                total if part is None else self.builder.call("math.add", total, part)
                for total, part in zip(sums, parts, strict=True)
            ]
            return [*found[: len(moving)], *totals, *found[len(moving) :]]

        start = [*begin, *(self.sweep.zero(item) for item in read)]
        turned = [scan[::-1] for scan in (*scans, *(items for _, items in seeded))]
        found = self.builder.fold(start, body, None if turned else steps_of(node), turned)
        targets = [carried[place] for place in moving] + read
        for target, part in zip(targets, found, strict=False):
            if isinstance(part, Tensor):
                self.sweep.add(adjoints, target, part)
        for place, parts in zip(scanned, found[len(targets) :], strict=True):
            for target, part in zip(_items(node.scans[place - width])[::-1], tensors(parts), strict=True):
                if target.name in needed:
                    self.sweep.add(adjoints, target, part)

    def _pull_counted(self, node: Loop, count: Tensor, adjoints: Adjoints, needed: set[str]) -> None:
        """Go back through a loop that counted its steps."""
        builder, width = self.builder, len(node.carried) - 1
        moving = [place for place, item in enumerate(node.body.inputs[:width]) if item.name in needed]
        if not any(item.name in adjoints for argument in node.outputs for item in tensors(argument)):
            return
        read = _captured([node.body], needed)
        names = [item.name for item in node.body.inputs]
        one = builder.constant(1, I64, ())

        def step(*inputs: Tensor) -> Sequence[Tensor]:
            """A step forward, once more; an index is how many steps came before."""
            given = [*inputs, inputs[width]]
            _, mapping = self._again(node.body, dict(zip(names, given, strict=False)), set())
            return [mapping.get(item.name, item) for item in node.body.outputs[: width + 1]]

        def body(*inputs: Tensor) -> Sequence[Tensor]:
            left, back, sums = inputs[0], inputs[1 : 1 + len(moving)], inputs[1 + len(moving) :]
            ahead = builder.call("math.sub", left, one)
            state = [item for item in builder.fold(node.carried, step, ahead) if isinstance(item, Tensor)]
            given = [*state[:width], ahead, ahead]
            nodes, mapping = self._again(node.body, dict(zip(names, given, strict=False)), needed)
            needed.update(given[place].name for place in moving)
            own: Adjoints = {}
            for place, seed in zip(moving, back, strict=True):
                item = node.body.outputs[place]
                self.sweep.add(own, mapping.get(item.name, item), seed)
            self.sweep.sweep(nodes, own, needed)
            found = [own.get(given[place].name) or self.sweep.zero(given[place]) for place in moving]
            parts = [own.get(item.name) for item in read]
            totals = [
                total if part is None else builder.call("math.add", total, part)
                for total, part in zip(sums, parts, strict=True)
            ]
            return [ahead, *found, *totals]

        begin = [self._adjoint(adjoints, node.outputs[place], node.carried[place]) for place in moving]
        found = builder.fold([count, *begin, *(self.sweep.zero(item) for item in read)], body, count)
        targets = [node.carried[place] for place in moving] + read
        for target, part in zip(targets, found[1:], strict=False):
            if isinstance(part, Tensor):
                self.sweep.add(adjoints, target, part)

    def _adjoint(self, adjoints: Adjoints, result: object, like: Tensor) -> Tensor:
        found = adjoints.get(result.name) if isinstance(result, Tensor) else None
        return found or self.sweep.zero(like)


def _key(node: Loop) -> str:
    """What tells a loop from others: the name of the first thing that it gives."""
    return next(item.name for argument in node.outputs for item in tensors(argument))


def steps_of(node: Loop) -> int | None:
    """How often the body of a loop runs; None where only the run tells.

    Unsupported where that is so and the loop goes through items, or collects some.
    """
    counts = {len(_items(scan)) for scan in node.scans} | ({node.count} if node.count is not None else set())
    count = next(iter(counts)) if len(counts) == 1 else None
    if node.condition is None and isinstance(count, int) and count > 0:
        return count
    if node.scans or len(node.outputs) > len(node.carried):
        raise Unsupported(
            "a loop through items whose number of steps only the run tells has no derivative here"
        )
    return None


def _is_needed(node: Loop, needed: set[str]) -> bool:
    return any(item.name in needed for item in results_of(node))


def _captured(parts: Sequence[Region], needed: set[str]) -> list[Tensor]:
    """The needed tensors that regions read from around them, once each."""
    found: dict[str, Tensor] = {}
    for region in parts:
        inside = {item.name for item in region.inputs} | set(_defined(region.nodes))
        read = [item for node in region.nodes for item in operands_of(node)]
        for item in (*read, *region.outputs):
            if item.name in needed and item.name not in inside and isinstance(item, Tensor):
                found[item.name] = item
    return list(found.values())


def _defined(nodes: Sequence[Node]) -> Iterator[str]:
    for node in walk(tuple(nodes)):
        yield from (item.name for item in results_of(node))
        for region in regions(node):
            yield from (item.name for item in region.inputs)
