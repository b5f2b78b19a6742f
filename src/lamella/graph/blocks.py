"""A block of a graph by the path of its weights: the operations between those that read them, as a graph of its own."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence

from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.suggest import nearest
from lamella.graph.nodes import Graph, Node, Tensor
from lamella.graph.rewrite import members, operands_of, results_of

SEPARATOR = re.compile(r"[./\[\]]+")
NO_WORD = re.compile(r"[^A-Za-z0-9_]+")
LISTED = 12
"""Blocks that a message names."""


def words_of(path: str) -> tuple[str, ...]:
    """The words of a path: `blocks[1].mlp`, `blocks.1.mlp` and `blocks/1/mlp` are the same."""
    return tuple(filter(None, SEPARATOR.split(path)))


def lies_in(name: str, block: Sequence[str]) -> bool:
    """Whether the name of a tensor says that it belongs to a block."""
    return words_of(name.partition(":")[0])[: len(block)] == tuple(block)


def weights_in(graph: Graph, path: str) -> tuple[Tensor, ...]:
    """The variables of a block."""
    block = words_of(path)
    return tuple(item for item in graph.variables if lies_in(item.name, block))


def cut_block(graph: Graph, path: str) -> Graph:
    """A block as a graph: what it reads from around it are inputs, what is read of it are outputs.

    Its operations are those that first read one of its weights (where it has none, those that make what is named like
    it), all that lie on a way between two of them, and what they read that no input decides. So a block is found in
    formats that keep the names of weights alone, and a table that later blocks read too does not draw them into it.
    """
    nodes = graph.nodes
    behind = _behind(graph)
    kept = _with_fixed(graph, _between(nodes, _seeds(graph, path, behind)), behind)
    inner = [nodes[place] for place in kept]
    made = {item.name: item for node in inner for item in results_of(node)}
    read = {item.name: item for node in inner for item in operands_of(node) if item.name not in made}
    others = [node for place, node in enumerate(nodes) if place not in kept]
    wanted = {item.name for node in others for item in operands_of(node)}
    wanted |= {item.name for item in members(graph.outputs)}
    wanted |= {item.value.name for item in graph.updates}
    variables = tuple(item for item in graph.variables if item.name in read)
    constants = tuple(item for item in graph.constants if item.tensor.name in read)
    fixed = {item.name for item in variables} | {item.tensor.name for item in constants}
    outputs = tuple(item for name, item in made.items() if name in wanted)
    return Graph(
        NO_WORD.sub("_", f"{graph.name}_{'_'.join(words_of(path))}"),
        tuple(item for name, item in read.items() if name not in fixed),
        outputs or tuple(results_of(inner[-1])),
        tuple(inner),
        variables,
        constants,
        tuple(item for item in graph.updates if item.value.name in made and item.variable.name in fixed),
    )


def _seeds(graph: Graph, path: str, behind: Mapping[str, frozenset[str]]) -> set[int]:
    """The operations that first read one of a block's weights; else those whose results are named like it."""
    first: dict[str, int] = {}
    for place, node in enumerate(graph.nodes):
        if not _is_fixed(node, behind):
            for item in operands_of(node):
                for name in behind.get(item.name, ()):
                    first.setdefault(name, place)
    found = {first[item.name] for item in weights_in(graph, path) if item.name in first}
    if not found:
        block = words_of(path)
        found = {
            place
            for place, node in enumerate(graph.nodes)
            if block and any(lies_in(item.name, block) for item in results_of(node))
        }
    if not found:
        known = sorted(block_paths(graph))
        close = nearest(".".join(words_of(path)), known)
        some = ", ".join(printable(item, 60) for item in known[:LISTED])
        hint = f"did you mean '{close[0]}'?" if close else f"blocks are: {some or 'none'}"
        raise InputError(f"there is no block '{printable(path, 80)}' in graph '{graph.name}'", hint=hint)
    return found


def block_paths(graph: Graph) -> set[str]:
    """The paths of all blocks that have weights."""
    words = (words_of(item.name) for item in graph.variables)
    return {".".join(item[:count]) for item in words for count in range(1, len(item))}


def _behind(graph: Graph) -> dict[str, frozenset[str]]:
    """What no input decides, with the variables that it is made of: weights, constants, and what is made of these."""
    changing = {item.variable.name for item in graph.updates}
    found = {item.tensor.name: frozenset[str]() for item in graph.constants}
    found |= {item.name: frozenset([item.name]) for item in graph.variables if item.name not in changing}
    for node in graph.nodes:
        if _is_fixed(node, found):
            made_of = frozenset[str]().union(*(found[item.name] for item in operands_of(node)))
            found |= dict.fromkeys(_names(node), made_of)
    return found


def _is_fixed(node: Node, behind: Container[str]) -> bool:
    return all(item.name in behind for item in operands_of(node))


def _with_fixed(graph: Graph, places: set[int], behind: Container[str]) -> list[int]:
    """Some nodes and those before them that no input decides, such as a state of zeros or a turned weight, in order."""
    makers = {
        name: place
        for place, node in enumerate(graph.nodes)
        if _is_fixed(node, behind)
        for name in _names(node)
    }
    waiting, found = list(places), set(places)
    while waiting:
        before = (makers.get(item.name) for item in operands_of(graph.nodes[waiting.pop()]))
        new = {place for place in before if place is not None} - found
        found |= new
        waiting += new
    return sorted(found)


def _between(nodes: Sequence[Node], seeds: Iterable[int]) -> set[int]:
    """Some nodes, and all on a way from one of them to another."""
    after, before = set(seeds), set(seeds)
    made = {name for place in after for name in _names(nodes[place])}
    for place, node in enumerate(nodes):
        if place in after or any(item.name in made for item in operands_of(node)):
            after.add(place)
            made |= _names(node)
    needed = {item.name for place in before for item in operands_of(nodes[place])}
    for place in reversed(range(len(nodes))):
        if place in before or not needed.isdisjoint(_names(nodes[place])):
            before.add(place)
            needed |= {item.name for item in operands_of(nodes[place])}
    return after & before


def _names(node: Node) -> set[str]:
    return {item.name for item in results_of(node)}
