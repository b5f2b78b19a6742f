"""A graph as a dataflow: which node makes and which nodes read each tensor, and parts of it as graphs of their own."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Found, InputError, Malformed
from lamella.base.origin import Origin
from lamella.graph.model import Model
from lamella.graph.nodes import (
    Argument,
    Branch,
    Graph,
    Node,
    Operation,
    Pack,
    Region,
    Tensor,
    regions,
    tensors,
)
from lamella.graph.rewrite import Substitution, copy_of, defined, operands_of, results_of
from lamella.ops.fault import Fault

CANNOT_RUN = (LamellaError, InputError, Found, Fault, Malformed, ValueError, ArithmeticError, IndexError)
"""What an operation raises whose inputs or attributes do not fit: a hypothesis about it is false then."""
RESULT = "result of the part"


def listed(arguments: Iterable[Argument]) -> list[Tensor]:
    """The tensors of arguments, in order."""
    return [item for argument in arguments for item in tensors(argument)]


def word_of(node: Node) -> str:
    """What a node is: its operator, or what controls its regions."""
    if isinstance(node, Operation):
        return node.operator
    return "if" if isinstance(node, Branch) else "do"


def origin_words(origin: Origin | None) -> tuple[str, ...]:
    """The chain of what something was made from, nearest first."""
    return () if origin is None else origin.words()


def inside_of(region: Region) -> Iterator[Tensor | Pack]:
    """What is defined inside of a region, and of those in it."""
    yield from region.inputs
    for node in region.nodes:
        yield from results_of(node)
        for inner in regions(node):
            yield from inside_of(inner)


class Dataflow:
    """Who makes and who reads the tensors of a graph; those inside regions belong to the node around them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: Sequence[Node] = graph.nodes
        self.tensors = {item.name: item for item in defined(graph) if isinstance(item, Tensor)}
        self.maker: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.operands: list[tuple[str, ...]] = []
        self.packs: list[tuple[str, ...]] = []
        """The packs of open length that each node reads; nothing is known of their numbers."""
        for place, node in enumerate(graph.nodes):
            inner = {item.name for region in regions(node) for item in inside_of(region)}
            read = [item for item in operands_of(node) if item.name not in inner]
            names = tuple(dict.fromkeys(item.name for item in read if isinstance(item, Tensor)))
            self.operands.append(names)
            self.packs.append(tuple(dict.fromkeys(item.name for item in read if isinstance(item, Pack))))
            for name in names:
                self.readers.setdefault(name, []).append(place)
            for item in results_of(node):
                self.maker[item.name] = place
        self.constants = {item.tensor.name: item for item in graph.constants}
        self.variables = {item.name for item in graph.variables}
        self.inputs = {item.name for item in listed(graph.inputs)}

    def is_leaf(self, name: str) -> bool:
        """Whether no node makes a tensor: an input, a variable or a constant."""
        return name not in self.maker

    def made(self) -> list[Tensor]:
        """The tensors that nodes make, in topological order."""
        return [item for node in self.nodes for item in results_of(node) if isinstance(item, Tensor)]

    def results(self, place: int) -> list[str]:
        """What a node makes."""
        return [item.name for item in results_of(self.nodes[place]) if isinstance(item, Tensor)]

    def behind(self, names: Iterable[str], stop: Container[str]) -> tuple[list[int], list[str]]:
        """The nodes that some tensors are computed by, back to those where to stop and to leaves: nodes and borders."""
        places: set[int] = set()
        borders: dict[str, None] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            place = self.maker.get(name)
            if place is None:
                borders[name] = None
            elif place not in places:
                places.add(place)
                waiting += self.packs[place]
                for operand in self.operands[place]:
                    if operand in stop:
                        borders[operand] = None
                    else:
                        waiting.append(operand)
        return sorted(places), list(borders)


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Some nodes of a graph that compute one tensor from others, to be run alone with other numbers or attributes."""

    model: Model
    nodes: tuple[Node, ...]
    inputs: tuple[Tensor, ...]
    """What they read from outside, constants left out."""
    output: Tensor

    def to_model(self) -> Model:
        """The part as a model whose only output is the tensor."""
        graph = self.model.graph
        made = {item.name for node in self.nodes for item in results_of(node)}
        read = {item.name for node in self.nodes for item in operands_of(node)} | {self.output.name}
        constants = tuple(
            item for item in graph.constants if item.tensor.name in read and item.tensor.name not in made
        )
        fixed = {item.tensor.name for item in constants}
        inputs = tuple(item for item in self.inputs if item.name not in fixed)
        nodes, output = self.nodes, self.output
        if output.name not in made:
            copy = replace(output, name=RESULT, quantization=None)
            nodes, output = (*nodes, copy_of(output, copy)), copy
        part = Graph("part", inputs, (output,), nodes, constants=constants, checks=())
        return replace(self.model, graph=part, data=None, hints=(), findings=())

    def run(self, values: Mapping[str, Array]) -> Array | None:
        """What the reference computes for the tensor from these values; None where it cannot."""
        model = self.to_model()
        names = [item.name for item in listed(model.graph.inputs)]
        if any(name not in values for name in names):
            return None
        try:
            found = compile_model(model)(**{name: values[name] for name in names})
        except CANNOT_RUN:
            return None
        return next(iter(found.values()))


def cut_part(model: Model, flow: Dataflow, places: Sequence[int], output: str) -> Subgraph:
    """Some nodes of a model as a part that computes a tensor."""
    nodes = tuple(flow.nodes[place] for place in places)
    made = {item.name for node in nodes for item in results_of(node)}
    read = [name for place in places for name in flow.operands[place]]
    if output not in made:
        read.append(output)
    names = dict.fromkeys(name for name in read if name not in made and name in flow.tensors)
    return Subgraph(model, nodes, tuple(flow.tensors[name] for name in names), flow.tensors[output])


# --- copies -------------------------------------------------------------------------------------------------


def without_copies(model: Model, values: Mapping[str, Array]) -> tuple[Graph, dict[str, Tensor]]:
    """The graph of a model without operations that only give a tensor another name, and what stands for their results.

    They are known by their numbers: those of the run, and others that are drawn where these are equal.
    """
    sources: dict[str, Tensor] = {}
    change = Substitution(lambda item: sources.get(item.name, item))
    nodes: list[Node] = []
    for node in model.graph.nodes:
        source = _copied(model, node, values)
        if source is None:
            nodes.append(change.node(node))
        else:
            sources[listed(node.outputs)[0].name] = change.tensor(source)
    if not sources:
        return model.graph, {}
    return replace(model.graph, nodes=tuple(nodes)), sources


def _copied(model: Model, node: Node, values: Mapping[str, Array]) -> Tensor | None:
    """What an operation only copies; None where it does something."""
    if not isinstance(node, Operation) or len(node.inputs) != 1:
        return None
    read, made = listed(node.inputs), listed(node.outputs)
    if (
        len(read) != 1
        or len(made) != 1
        or read[0].element != made[0].element
        or read[0].shape != made[0].shape
    ):
        return None
    before, after = values.get(read[0].name), values.get(made[0].name)
    if before is None or after is None or not _are_equal(before, after):
        return None
    if before.dtype.kind != "f":
        return read[0]
    probe = np.random.default_rng(0).standard_normal(before.shape).astype(before.dtype) * 4
    other = replace(read[0], name="probe")  # a constant would stay what it is
    got = Subgraph(model, (replace(node, inputs=(other,)),), (other,), made[0]).run({other.name: probe})
    return read[0] if got is not None and _are_equal(probe, got) else None


def _are_equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
