"""Scales of narrow types on ranks that have parts of a batch: the largest number of all of them, not of one's own part.

x ─ abs ─ max_reduce ─▶ a      becomes      x ─ abs ─ max_reduce ─ all_gather ─ max_reduce ─▶ a
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lamella.graph.build import call
from lamella.graph.insert_calls import ALL_GATHER
from lamella.graph.model import FusionHint, Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor, Value
from lamella.graph.rewrite import FreshNames, defined, members, operands_of, producers, results_of
from lamella.train.ranks.division import LARGEST, MAGNITUDE, NUMBERS_EACH, Exchange, next_number
from lamella.train.ranks.mesh import SHARED, Mesh
from lamella.train.ranks.rules import is_number


def share_maxima(
    model: Model, found: set[str], mesh: Mesh, before: Sequence[Exchange]
) -> tuple[Model, list[Exchange]]:
    """The model whose ranks scale by the same numbers, and what they exchange for that, behind other exchanges.

    What is found are the maxima of the model before it was divided.
    """
    if not found:
        return model, []
    work = _Sharing(model, mesh, next_number(before))
    nodes = tuple(made for node in model.graph.nodes for made in work.add(node, found))
    hint = FusionHint(
        frozenset(item.tensor for item in work.exchanges), is_apart=True, reason="ranks exchange it"
    )
    graph = replace(model.graph, nodes=nodes)
    return replace(model, graph=graph, hints=(*model.hints, hint)), work.exchanges


def find_maxima(model: Model) -> Iterator[Tensor]:
    """The largest magnitudes of whole tensors that depend on a batch; of weights all ranks have the same."""
    makers = producers(model.graph)
    varying = {item.name for item in members(model.graph.inputs)}
    for node in model.graph.nodes:
        read = [item.name for item in operands_of(node)]
        if not varying.intersection(read):
            continue
        varying |= {item.name for item in results_of(node)}
        maker = makers.get(read[0])
        if isinstance(node, Operation) and node.operator == LARGEST and isinstance(maker, Operation):
            results = [item for item in results_of(node) if isinstance(item, Tensor)]
            if maker.operator == MAGNITUDE and all(map(is_number, results)):
                yield from results


class _Sharing:
    """Adds what brings the maxima of ranks together."""

    def __init__(self, model: Model, mesh: Mesh, number: int) -> None:
        self._model, self._mesh, self._number = model, mesh, number
        self._names = FreshNames(item.name for item in defined(model.graph))
        self.exchanges: list[Exchange] = []

    def add(self, node: Node, maxima: set[str]) -> Iterator[Node]:
        """A node, and behind one that makes a maximum what makes it that of all ranks."""
        (result, *_) = results_of(node)
        if result.name not in maxima or not isinstance(node, Operation) or not isinstance(result, Tensor):
            yield node
            return
        own = replace(result, name=self._names.take(f"{result.name}_own"))
        yield replace(node, outputs=(own,), origin=node.origin)
        made = [self._call("aten.reshape", (own,), self._names.take(f"{result.name}_row"), shape=(1,))]
        for axis in SHARED:
            ranks = self._mesh.extents[axis]
            if ranks > 1:
                number = self._number + NUMBERS_EACH * len(self.exchanges)
                word: dict[str, Value] = {"number": number, "group": axis, "axis": 0, "ranks": ranks}
                name = self._names.take(f"{result.name}_{axis}")
                made.append(self._call(ALL_GATHER, made[-1].outputs, name, **word))
                (row,) = (item for item in results_of(made[-1]) if isinstance(item, Tensor))
                self.exchanges.append(Exchange("all_gather", axis, row.name, row.shape, row.element, number))
        name = self._names.take(f"{result.name}_all")
        made.append(self._call(LARGEST, made[-1].outputs, name, axes=(0,), squeeze=True))
        last = self._call("aten.reshape", made[-1].outputs, result.name, shape=result.shape)
        yield from (replace(item, origin=node.origin) for item in (*made, replace(last, outputs=(result,))))

    def _call(self, operator: str, inputs: tuple[Argument, ...], name: str, **attributes: Value) -> Operation:
        return call(self._model.library, operator, inputs, attributes, (name,))
