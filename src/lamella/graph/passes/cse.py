"""Common-subexpression elimination: compute equal things once.

`y = f(a, b)` and, later and where the first is visible, `z = f(a, b)` become `y = f(a, b)` with `y` for `z`; for a
commutative `f` also `z = f(b, a)`. Equal constants become one. Random operators draw anew each time and are never
merged.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Graph, Node, Operation, Pack, Tensor, tensors
from lamella.graph.passes.patterns import is_plain, trait_of
from lamella.graph.rewrite import Replacement, RewriteWalk, Substitution, rewrite
from lamella.ops.library import Library


def cse(model: Model) -> Model:
    """The model with equal operations and constants computed once."""
    return merge_equal(model)


def merge_equal(model: Model, apart: Collection[str] = ()) -> Model:
    """The model with equal operations computed once, but for those of some operators."""
    merged = rewrite(_merge_constants(model.graph), _AvailableExpressions(model.library, apart).visit)
    return replace(model, graph=merged)


class _AvailableExpressions:
    """Remembers what was computed, and in which region."""

    def __init__(self, library: Library, apart: Collection[str]) -> None:
        self.library, self.apart = library, apart
        self._known: dict[tuple[str, tuple[int, ...]], Operation] = {}

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """Let an earlier operation stand for an equal one, where it is visible: here or in a region around."""
        if not isinstance(node, Operation) or node.operator in self.apart:
            return None
        if "random" in self.library.traits(node.operator):
            return None
        key = self._key(node)
        # An operation dominates what comes after it in its own region and in all regions inside that one: those to
        # look in are the ones around this node, outermost first.
        for depth in range(len(walk.path) + 1):
            earlier = self._known.get((key, walk.path[:depth]))
            if earlier is not None and (pairs := _pairs(node, earlier)) is not None:
                return Replacement(results=pairs)
        self._known[key, walk.path] = node
        return None

    def _key(self, node: Operation) -> str:
        """What decides the result; texts tell 0.0 from -0.0 and 1 from true, which compare equal."""
        names = [_names(argument) for argument in node.inputs]
        if trait_of(self.library, node, "commutative") is not None and is_plain(node):
            names.sort(key=str)
        return repr((node.operator, names, node.attributes, [(name, str(item)) for name, item in node.types]))


def _names(argument: Argument) -> object:
    if argument is None or isinstance(argument, Tensor | Pack):
        return argument and argument.name
    return [item.name for item in argument]


def _pairs(node: Operation, earlier: Operation) -> dict[str, Tensor] | None:
    """The earlier outputs for the later ones; None where they cannot stand for each other."""
    # The walk replaces tensors; a pack of unknown length, whose symbol is named after it, stays.
    if any(isinstance(item, Pack) for item in node.outputs):
        return None
    mine = [item for argument in node.outputs for item in tensors(argument)]
    theirs = [item for argument in earlier.outputs for item in tensors(argument)]
    agree = len(mine) == len(theirs) and all(
        (a.element, a.shape, a.quantization, b.quantization) == (b.element, b.shape, None, None)
        for a, b in zip(mine, theirs, strict=True)
    )
    return {a.name: b for a, b in zip(mine, theirs, strict=True)} if agree else None


def _merge_constants(graph: Graph) -> Graph:
    kept: dict[str, Constant] = {}
    stands_for: dict[str, Tensor] = {}
    for item in graph.constants:
        tensor = item.tensor
        key = repr((tensor.element.name, tensor.shape, tensor.quantization, item.value))
        first = kept.setdefault(key, item)
        if first is not item:
            stands_for[tensor.name] = first.tensor
    outputs = {item.name for argument in graph.outputs for item in tensors(argument)}
    # An output must keep its name, and a constant has no operation that could be renamed.
    if not stands_for or outputs & stands_for.keys():
        return graph
    renewed = Substitution(lambda tensor: stands_for.get(tensor.name, tensor)).graph(graph)
    return replace(renewed, constants=tuple(kept.values()))
