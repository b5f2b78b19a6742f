"""Rematerialisation: what the way back reads and need not be kept is computed again from what is.

forward   x ─ f ─▶ a ─ g ─▶ b ─▶ …          backward   d_b, a ─▶ d_a           where `a` is computed again:
forward   x ─ f ─▶ a ─ g ─▶ b ─▶ …          backward   after(x, d_b) ─ f ─▶ a' ;  d_b, after(a', d_b) ─▶ d_a

The memory of `a` is free after `g`; that of `x`, the *frontier*, is kept. All that the way back reads of the way
forward waits for a gradient (`misc.after`, which moves nothing): so CSE takes no copy for the original, and keeps
nothing that a backward operator computes for itself. Copies are calls of the same operators: every bit of every
gradient stays the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from lamella.graph.model import FusionHint, Model
from lamella.graph.nodes import Graph, Node, Operation, Pack, Tensor
from lamella.graph.rewrite import FreshNames, Substitution, defined, operands_of, results_of
from lamella.ops.library import Library

AFTER = "misc.after"
"""The operator that gives its first input, not before the second is there."""
AGAIN = "_again"
"""How the name ends of what is computed a second time."""
OFFLOAD = "misc.offload"
"""The operator that copies its input to where memory is cheap."""


def recompute(
    model: Model, kept: Collection[str], seeds: Collection[str], moved: Collection[str] = ()
) -> Model:
    """The model whose way back, all that depends on `seeds`, computes again what it reads and is not `kept`.

    What control flow or a random operator gave is kept in any case: a second draw would be another one. Of what is
    `moved`, a copy outside is kept.
    """
    work = _Rematerialisation(model, kept, seeds, moved)
    graph = work.run()
    apart = frozenset(item.name for item in work.outside.values())
    hint = FusionHint(apart, is_apart=True, reason="its result lies outside")
    streams = {copy.name: model.streams[name] for name, copy in work.outside.items() if name in model.streams}
    hints = (*model.hints, hint) if apart else model.hints
    return replace(model, graph=graph, hints=hints, streams={**model.streams, **streams})


class _Rematerialisation:
    """One graph in order: copies stand in front of the first node of the way back that reads them."""

    def __init__(
        self, model: Model, kept: Collection[str], seeds: Collection[str], moved: Collection[str]
    ) -> None:
        self.graph = model.graph
        self.seeds, self.moved = set(seeds), set(moved)
        self.names = FreshNames(item.name for item in defined(model.graph))
        self.makers = {
            item.name: node
            for node in model.graph.nodes
            if isinstance(node, Operation) and _is_repeatable(model.library, node)
            for item in results_of(node)
            if item.name not in kept
        }
        """What computes each tensor that is not kept."""
        self.stored = {item.name for item in model.graph.variables}
        self.stored |= {item.tensor.name for item in model.graph.constants}
        self.copies: dict[str, Tensor] = {}
        self.waiting: dict[str, Tensor] = {}
        self.outside: dict[str, Tensor] = {}

    def run(self) -> Graph:
        """The graph with the copies."""
        nodes: list[Node] = []
        late = set(self.seeds)
        for node in self.graph.nodes:
            reads = [item for item in operands_of(node) if isinstance(item, Tensor)]
            gradients = [item for item in reads if item.name in late]
            if not gradients:
                nodes += (node, *self._offload(node))
                continue
            late |= {item.name for item in results_of(node)}
            for item in reads:
                if item.name in self.makers and item.name not in late:
                    nodes += self._copy(item, gradients[-1])
            nodes += self._wait((item for item in reads if item.name not in late), gradients[-1])
            nodes.append(Substitution(lambda item: self.waiting.get(item.name, item)).node(node))
        return replace(self.graph, nodes=tuple(nodes))

    def _offload(self, node: Node) -> Iterator[Operation]:
        """Copies of what a node of the way forward made, where they are to lie outside until the way back."""
        for item in results_of(node):
            if isinstance(item, Tensor) and item.name in self.moved:
                copy = replace(item, name=self.names.take(f"{item.name}_outside"), quantization=None)
                self.outside[item.name] = copy
                yield Operation(OFFLOAD, (item,), (copy,), (), (("T", item.element),), origin=node.origin)

    def _copy(self, wanted: Tensor, token: Tensor) -> Iterator[Node]:
        """What computes a tensor again, as far as no copy is there yet: from what is kept, in order."""
        todo = [(self.makers[wanted.name], False)]
        while todo:
            node, ready = todo.pop()
            if all(item.name in self.copies for item in results_of(node)):
                continue
            if ready:
                kept = (item for item in operands_of(node) if item.name not in self.makers)
                yield from self._wait(kept, token)
                yield self._repeated(node)
                continue
            inner = [self.makers[item.name] for item in operands_of(node) if item.name in self.makers]
            todo += [(node, True), *((item, False) for item in reversed(inner))]

    def _wait(self, read: Iterable[Tensor | Pack], token: Tensor) -> Iterator[Operation]:
        """Let what the way forward left, or a copy of it, wait for a gradient before the way back reads it."""
        for item in read:
            if isinstance(item, Tensor) and item.name not in self.waiting and item.name not in self.stored:
                later = replace(item, name=self.names.take(f"{item.name}_later"), quantization=None)
                self.waiting[item.name] = later
                types = (("T", item.element), ("U", token.element))
                given = (self.copies if item.name in self.makers else self.outside).get(item.name, item)
                yield Operation(AFTER, (given, token), (later,), (), types, origin=item.origin)

    def _repeated(self, node: Operation) -> Node:
        """The same call once more."""
        for item in results_of(node):
            if isinstance(item, Tensor):
                self.copies[item.name] = replace(item, name=self.names.take(f"{item.name}{AGAIN}"))
        given = Substitution(
            lambda item: (self.copies if item.name in self.makers else self.waiting).get(item.name, item)
        )
        made = Substitution(lambda item: self.copies[item.name])
        return replace(
            node,
            inputs=tuple(map(given.argument, node.inputs)),
            outputs=tuple(map(made.argument, node.outputs)),
        )


def _is_repeatable(library: Library, node: Operation) -> bool:
    drawn = "random" in library.traits(node.operator)
    return not drawn and not any(isinstance(item, Pack) for item in results_of(node))


__all__ = ["AFTER", "recompute"]
