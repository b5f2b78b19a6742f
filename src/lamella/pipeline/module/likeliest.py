"""The likeliest token as a part of the graph: a device that chooses it itself can give it to its next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lamella.base.dtype import I64, ElementType
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Tensor, Value
from lamella.graph.rewrite import members

CHOSEN = "chosen_token"
"""The output that holds the token."""
MOST_PARTS = 256
"""Into how many parts scores are cut, at most: threads look for the largest of each."""


def add_likeliest(model: Model, output: str) -> Model | None:
    """The graph with the number of the largest score of its last token, the first of equals, as a further output.

    None where it has scores of several tokens, or the name is taken.
    """
    graph = model.graph
    scores = next((item for item in members(graph.outputs) if item.name == output), None)
    taken = {item.name for node in graph.operations() for item in members(node.outputs)}
    if not isinstance(scores, Tensor) or CHOSEN in taken:
        return None
    *others, size = scores.shape
    if not isinstance(size, int) or any(extent != 1 for extent in others):
        return None
    writing = _Writing(model)
    parts = max(count for count in range(1, MOST_PARTS + 1) if size % count == 0)
    rows = writing.call("layout.reshape", [scores], {"shape": (parts, size // parts)})
    top = writing.reduce(rows)
    same = writing.call("math.eq", [rows, top], {})
    flags = writing.call("layout.cast", [same], {}, {"R": I64})
    # Where the largest stands is marked by the number of those from there on: the largest mark is the first.
    down = {"first": size, "last": 0, "stride": -1}
    marks = writing.call("layout.range", [], down, {"T": I64})
    marks = writing.call("layout.reshape", [marks], {"shape": (parts, size // parts)})
    mark = writing.reduce(writing.call("math.mul", [flags, marks], {}))
    whole = writing.call("layout.range", [], {"first": size, "last": size + 1}, {"T": I64})
    found = writing.call("math.sub", [whole, mark], {}, name=CHOSEN)
    nodes = (*graph.nodes, *writing.made)
    return replace(model, graph=replace(graph, nodes=nodes, outputs=(*graph.outputs, found)))


class _Writing:
    """Operations while they are added to a graph."""

    def __init__(self, model: Model) -> None:
        self._library = model.library
        self.made: list[Operation] = []

    def call(
        self,
        operator: str,
        inputs: Sequence[Tensor],
        attributes: Mapping[str, Value],
        types: Mapping[str, ElementType] | None = None,
        name: str = "",
    ) -> Tensor:
        """An operation of one result."""
        names = [name or f"{CHOSEN}_{len(self.made)}"]
        self.made.append(call(self._library, operator, inputs, attributes, names, types))
        (found,) = members(self.made[-1].outputs)
        return found

    def reduce(self, rows: Tensor) -> Tensor:
        """The largest element of all, by way of that of each row."""
        each = self.call("math.max_reduce", [rows], {"axes": (1,)})
        return self.call("math.max_reduce", [each], {"axes": (0,)})
