"""A graph as the studio reads it: operations and tensors in columns, the tree of modules, what each operation costs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lamella.base.diagnostic import printable
from lamella.base.origin import GroupOrigin, Origin
from lamella.base.source import EMPTY_SOURCE, ShippedSource, Source
from lamella.graph.model import Model
from lamella.graph.nodes import (
    Argument,
    Branch,
    Graph,
    Loop,
    Node,
    Operation,
    Pack,
    Tensor,
    Value,
    regions,
    tensors,
)
from lamella.pipeline.bench.work import Counting, Work

LONGEST = 300
"""Letters of a name or of attributes."""
CROWDED, RUN = 120, 40
"""Operations of one module above which they are shown in runs, and the operations of a run."""
MANY = 12
"""Instances of a module in a list from which on the list is a module of its own."""
EXACT = 1 << 53
"""Numbers that a page can hold exactly."""
RESULT, INPUT, VARIABLE, CONSTANT = range(4)
SEPARATOR = re.compile(r"[./]")
MODULE = re.compile(r"([\w./]+) \([\w.]+\)")
"""A module of PyTorch in the origin of an operation: `blocks.0.norm (LayerNorm)`."""


@dataclass(slots=True)
class Interned:
    """Words that occur often, each kept once."""

    words: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def take(self, word: str) -> int:
        """The place of a word."""
        if word not in self.places:
            self.places[word] = len(self.words)
            self.words.append(word)
        return self.places[word]


class Things:
    """The operations of a graph by their number, found again from what was made of them."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.paths: list[tuple[str, ...]] = []
        """The modules around each operation, outermost first; what a branch or a loop runs has one of its own."""
        self._take(graph.nodes, None)
        self._by_origin: dict[int, int] = {}
        self.by_tensor: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            if node.origin is not None:
                self._by_origin[id(node.origin)] = number
            for item in results_of(node):
                self.by_tensor.setdefault(item.name, number)
            for item in operands_of(node):
                self.readers.setdefault(item.name, []).append(number)

    def _take(self, nodes: Iterable[Node], around: tuple[str, ...] | None) -> None:
        """Number nodes in an order in which those of regions stand before the node that they belong to."""
        for node in nodes:
            path = tuple(_path(node)) if around is None else around
            for region in regions(node):
                self._take(region.nodes, (*path, f"{operator_of(node)} {_first_name(node)}"))
            self.nodes.append(node)
            self.paths.append(path)

    def maker(self, name: str) -> int | None:
        """The operation that makes a tensor, or that was decomposed into what makes it: `y.product` comes from `y`."""
        while name not in self.by_tensor:
            name, dot, _ = name.rpartition(".")
            if not dot:
                return None
        return self.by_tensor[name]

    def behind(self, origin: Origin | None, made: Iterable[str] = ()) -> list[int]:
        """The operations that something comes from, by its origin; where that is not known by what it makes."""
        found: dict[int, None] = {}
        members = origin.members if isinstance(origin, GroupOrigin) and origin.members else (origin,)
        for member in members:
            for link in () if member is None else member.chain():
                if id(link) in self._by_origin:
                    found.setdefault(self._by_origin[id(link)])
                    break
        if not found:
            found |= dict.fromkeys(number for name in made if (number := self.maker(name)) is not None)
        return sorted(found)


def results_of(node: Node) -> list[Tensor | Pack]:
    """The tensors that a node makes."""
    return [item for output in node.outputs for item in _members(output)]


def operands_of(node: Node) -> list[Tensor | Pack]:
    """The tensors that a node reads, those that its regions give among them."""
    if isinstance(node, Operation):
        return [item for given in node.inputs for item in _members(given)]
    if isinstance(node, Loop):
        scans = [item for scan in node.scans for item in _members(scan)]
        count = [node.count] if isinstance(node.count, Tensor) else []
        return [*node.carried, *scans, *count, *node.body.outputs]
    return [item for region in regions(node) for item in region.outputs]


def _members(argument: Argument) -> list[Tensor | Pack]:
    return [argument] if isinstance(argument, Pack) else list(tensors(argument))


def operator_of(node: Node) -> str:
    """The operator of a node, or the word for its control flow."""
    return node.operator if isinstance(node, Operation) else "if" if isinstance(node, Branch) else "do"


def type_of(item: Tensor | Pack) -> str:
    """A type as a person writes it."""
    shape = ", ".join(map(str, item.shape))
    return printable(f"{item.element}[{shape}]", 120)


# --- the tree of modules, from the names of results -------------------------------------------------------------


def path_of(name: str) -> list[str]:
    """The modules around a result by its name, outermost first; numbers belong to the word before them."""
    words: list[str] = []
    for word in SEPARATOR.split(name.partition(":")[0].lstrip("./"))[:-1]:
        if word.isdigit() and words:
            words[-1] = f"{words[-1]}.{word}"
        elif word:
            words.append(word)
    return words[:24]


class ModuleTree:
    """Modules by number: their names, and the one around each; 0 is the model itself."""

    def __init__(self, name: str) -> None:
        self.names = [name]
        self.parents = [-1]
        self._places: dict[tuple[str, ...], int] = {(): 0}

    def take(self, path: tuple[str, ...]) -> int:
        """The number of a module."""
        if path not in self._places:
            parent = self.take(path[:-1])
            self._places[path] = len(self.names)
            self.names.append(printable(path[-1], LONGEST))
            self.parents.append(parent)
        return self._places[path]


def place_in_modules(things: Things, name: str) -> tuple[ModuleTree, list[int]]:
    """The tree, and the module of each operation; long lists and crowds get a level of their own."""
    paths = things.paths
    lists = Counter(
        (*path[:depth], word.rpartition(".")[0])
        for path in {path[: end + 1] for path in paths for end in range(len(path))}
        for depth, word in [(len(path) - 1, path[-1])]
        if word.rpartition(".")[2].isdigit()
    )
    nested = [_nested(path, lists) for path in paths]
    crowds = Counter(nested)
    seen: Counter[tuple[str, ...]] = Counter()
    tree, found = ModuleTree(printable(name, LONGEST)), []
    for path in nested:
        place = seen[path]
        seen[path] += 1
        if crowds[path] > CROWDED:
            first = place // RUN * RUN
            last = min(first + RUN, crowds[path])
            path = (*path, f"operations {first + 1}–{last}")
        found.append(tree.take(path))
    return tree, found


def _first_name(node: Node) -> str:
    return next((item.name for item in results_of(node)), "")


def _path(node: Node) -> list[str]:
    """The modules around a node: by the name of its result, else by its origin."""
    path = path_of(_first_name(node))
    if path or node.origin is None:
        return path
    named = (MODULE.fullmatch(link.what) for link in node.origin.chain())
    return next((path_of(f"{found[1]}.") for found in named if found), [])


def _nested(path: Sequence[str], lists: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    found: list[str] = []
    for depth, word in enumerate(path):
        stem, _, number = word.rpartition(".")
        if number.isdigit() and lists[(*path[:depth], stem)] >= MANY:
            found += [stem, f"{stem}.{number}"]
        else:
            found.append(word)
    return tuple(found)


# --- columns ------------------------------------------------------------------------------------------------------


def graph_level(model: Model, things: Things, extents: Mapping[str, int]) -> dict[str, object]:
    """The graph of a model for the page; its work is that with these numbers for open extents."""
    graph = model.graph
    types, operators = Interned(), Interned()
    rows = _tensor_rows(graph, things)
    numbers = {name: place for place, name in enumerate(rows)}
    tree, modules = place_in_modules(things, graph.name)
    works = count_work(model, things, extents)
    nodes = things.nodes
    return {
        "modules": {"name": tree.names, "parent": tree.parents},
        "operators": operators.words,
        "types": types.words,
        "tensors": {
            "name": [printable(name, LONGEST) for name in rows],
            "type": [types.take(type_of(item)) for item, _ in rows.values()],
            "role": [role for _, role in rows.values()],
        },
        "ops": {
            "operator": [operators.take(printable(operator_of(node), LONGEST)) for node in nodes],
            "module": modules,
            "inputs": [[numbers[item.name] for item in operands_of(node)] for node in nodes],
            "outputs": [[numbers[item.name] for item in results_of(node)] for node in nodes],
            "attributes": [attributes_of(node) for node in nodes],
            "macs": [_exact(work.macs) for work in works],
            "bytes": [_exact(work.moved) for work in works],
        },
        "inputs": [numbers[item.name] for given in graph.inputs for item in _members(given)],
        "outputs": [
            numbers[item.name] for made in graph.outputs for item in _members(made) if item.name in numbers
        ],
    }


def _exact(number: int) -> int | None:
    return number if number < EXACT else None


def _tensor_rows(graph: Graph, things: Things) -> dict[str, tuple[Tensor | Pack, int]]:
    """Every tensor by name, with what it is."""
    rows: dict[str, tuple[Tensor | Pack, int]] = {}
    for given in graph.inputs:
        rows |= {item.name: (item, INPUT) for item in _members(given)}
    rows |= {item.name: (item, VARIABLE) for item in graph.variables}
    rows |= {item.tensor.name: (item.tensor, CONSTANT) for item in graph.constants}
    for node in things.nodes:
        for item in results_of(node):
            rows.setdefault(item.name, (item, RESULT))
    for node in things.nodes:
        for item in operands_of(node):
            rows.setdefault(item.name, (item, RESULT))
    return rows


def attributes_of(node: Node) -> str:
    """The attributes of an operation as a person writes them."""
    if not isinstance(node, Operation):
        return ""
    words = (f"{name}={_value(value)}" for name, value in node.attributes if value is not None)
    return printable(", ".join(words), LONGEST)


def _value(value: Value) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value[:12]))}{', …' if len(value) > 12 else ''}]"
    return str(value)


def count_work(model: Model, things: Things, extents: Mapping[str, int]) -> list[Work]:
    """The work of each operation; those that differ by names alone are counted once."""
    counting = Counting(model.library, extents)
    known: dict[object, Work] = {}
    found = []
    for node in things.nodes:
        if not isinstance(node, Operation):
            found.append(Work())
            continue
        types = tuple((item.element, item.shape) for item in (*operands_of(node), *results_of(node)))
        key = (node.operator, node.attributes, types, tuple(len(_members(item)) for item in node.inputs))
        if key not in known:
            known[key] = counting.operation(node)
        found.append(known[key])
    return found


# --- where operations come from -----------------------------------------------------------------------------------


class Origins:
    """The chains of origins of operations, each link once, and the texts that they stand in."""

    def __init__(self) -> None:
        self.links: list[tuple[str, int, int]] = []
        """The words of a link, the number of its text or -1, its line."""
        self.sources: list[Source] = []
        self._links: dict[int, int] = {}
        self._sources: dict[int, int] = {}

    def chain(self, origin: Origin | None) -> list[int]:
        """The links of an origin, nearest first."""
        return [self._link(link) for link in (() if origin is None else origin.chain())]

    def _link(self, link: Origin) -> int:
        if id(link) not in self._links:
            self._links[id(link)] = len(self.links)
            source = None if link.span is None else link.span.source
            if link.span is None or source is None or source is EMPTY_SOURCE or not source.text:
                self.links.append((printable(link.what, LONGEST), -1, 0))
            else:
                self.links.append((printable(link.what, LONGEST), self._source(source), link.span.line))
        return self._links[id(link)]

    def _source(self, source: Source) -> int:
        if id(source) not in self._sources:
            self._sources[id(source)] = len(self.sources)
            self.sources.append(source)
        return self._sources[id(source)]


def source_level(things: Things) -> dict[str, object]:
    """The texts that operations come from, which lines belong to which operations, and their chains."""
    origins = Origins()
    chains = [origins.chain(node.origin) for node in things.nodes]
    lines: list[dict[int, list[int]]] = [{} for _ in origins.sources]
    for number, chain in enumerate(chains):
        for place in chain:
            _, source, line = origins.links[place]
            if source >= 0 and number not in lines[source].setdefault(line, []):
                lines[source][line].append(number)
    texts = [
        {
            "name": printable(source.name, LONGEST),
            "lines": [printable(line) for line in source.text.splitlines()],
            "things": [found.get(line, []) for line in range(1, len(source.text.splitlines()) + 1)],
            "shipped": isinstance(source, ShippedSource),
        }
        for source, found in zip(origins.sources, lines, strict=True)
    ]
    return {"links": origins.links, "origins": chains, "sources": texts}
