"""What a flat text cannot say: the names that tensors had, and what they were made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypedDict

from lamella.base.origin import Origin
from lamella.bridge.graph_to_skriptnd.components import condition_inputs
from lamella.bridge.graph_to_skriptnd.names import names_in_text
from lamella.graph.model import Model
from lamella.graph.nodes import Branch, Graph, Loop, Node, Operation, Region, Tensor, walk
from lamella.graph.rewrite import Renewal, defined, made, producers, rename, rename_symbols


class Entry(TypedDict, total=False):
    """One tensor of the text: its name in the graph, what it was made from, what its node was made from."""

    name: str
    origin: list[str]
    node: list[str]


class Origins(TypedDict):
    """The content of `origins.json`: tensors and extents by their words in the text."""

    graph: str
    dialect: str
    tensors: dict[str, Entry]
    extents: dict[str, str]


def origins_of(model: Model) -> Origins:
    """Names and origins of everything in a model, by the words of its text."""
    names = names_in_text(model.graph)
    words = {**names.tensors, **_in_conditions(model.graph, names.tensors)}
    makers = producers(model.graph)
    entries: dict[str, Entry] = {}
    for item in defined(model.graph):
        entry: Entry = {"name": item.name}
        if item.origin is not None:
            entry["origin"] = list(item.origin.words())
        maker = makers.get(item.name)
        if maker is not None and maker.origin is not None:
            entry["node"] = list(maker.origin.words())
        entries[words[item.name]] = entry
    return {
        "graph": model.graph.name,
        "dialect": model.library.dialect,
        "tensors": entries,
        "extents": {word: name for name, word in names.extents.items() if word != name},
    }


def restore_names(graph: Graph, origins: Origins) -> Graph:
    """A graph that was read from a flat text, with the names and origins of the graph that was written.

    What the text says anew keeps its name. A tensor inside a block is called after the block's label too; the words of
    a flat text are unique, so the last one tells.
    """
    entries = origins["tensors"]
    known = {name: entries[word] for name, word in _words(graph, entries).items()}
    restored = _with_origins(graph, known)
    restored = rename(restored, {name: entry["name"] for name, entry in known.items()})
    return replace(rename_symbols(restored, origins["extents"]), name=origins["graph"])


def _words(graph: Graph, entries: Mapping[str, Entry]) -> dict[str, str]:
    """The words of the text behind the names of composed tensors, each for one of them."""
    names = [item.name for item in defined(graph)]
    found = {name: name for name in names if name in entries}
    claimed = set(found)
    for name in names:
        last = name.rpartition(".")[2]
        word = next((item for item in (last, last.partition("~")[0]) if item in entries), None)
        if name not in found and word is not None and word not in claimed:
            found[name] = word
            claimed.add(word)
    inner = _in_conditions(graph, found)
    found = {name: word for name, word in (found | inner).items() if word in entries}
    return _without_clashes(names, found, entries)


def _without_clashes(names: list[str], found: dict[str, str], entries: Mapping[str, Entry]) -> dict[str, str]:
    """A name that the text gives to something new stays with it."""
    while True:
        kept = {name for name in names if name not in found}
        fine = {name: word for name, word in found.items() if entries[word]["name"] not in kept}
        if len(fine) == len(found):
            return fine
        found = fine


def _in_conditions(graph: Graph, words: Mapping[str, str]) -> dict[str, str]:
    """What the inputs of loops' conditions are called here: in the text they share the words of the body."""
    found: dict[str, str] = {}
    for node in walk(graph.nodes):
        if isinstance(node, Loop) and node.condition is not None:
            found |= {
                inner.name: f"{words.get(outer.name, outer.name)}?" for inner, outer in condition_inputs(node)
            }
    return found


def _chain(words: Iterable[str]) -> Origin | None:
    """An origin that says the same words."""
    found: Origin | None = None
    for word in reversed(list(words)):
        found = Origin(word, None, found)
    return found


def _with_origins(graph: Graph, known: Mapping[str, Entry]) -> Graph:
    def tensor(item: Tensor) -> Tensor:
        words = known.get(item.name, {}).get("origin")
        return replace(item, origin=_chain(words)) if words else item

    def node(item: Node) -> Node:
        first = next(made(item), None)
        words = known.get(first.name, {}).get("node") if first is not None else None
        inner = _inside(item)
        return replace(inner, origin=_chain(words)) if words else inner

    def _inside(item: Node) -> Node:
        if isinstance(item, Operation):
            return item
        if isinstance(item, Branch):
            conditions, branches = tuple(map(region, item.conditions)), tuple(map(region, item.branches))
            return replace(item, conditions=conditions, branches=branches)
        return _loop(item)

    def _loop(item: Loop) -> Loop:
        condition = None if item.condition is None else region(item.condition)
        return replace(item, body=region(item.body), condition=condition)

    def region(item: Region) -> Region:
        return replace(item, nodes=tuple(map(node, item.nodes)))

    renewed = Renewal(tensor).graph(graph)
    return replace(renewed, nodes=tuple(map(node, renewed.nodes)))
