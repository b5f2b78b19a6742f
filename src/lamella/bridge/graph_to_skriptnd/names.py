"""Names of tensors as identifiers of the language, and back.

A composed graph calls its tensors by the labels that lead to them (`block.w`, `parts:1`), which a text cannot. What is
an identifier already keeps its name; the others get one like it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from lamella.base.dim import Symbol, symbols
from lamella.base.dtype import LANGUAGES
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, walk
from lamella.graph.rewrite import Fresh, defined, extents, rename, rename_symbols
from lamella.lang.skriptnd.words import BUILT_INS, KEYWORDS

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_LONGEST = 200
"""Names of text have a limit, and those of tensors, which are paths of labels, have none."""
_RESERVED = frozenset((*KEYWORDS, *BUILT_INS, *LANGUAGES["skriptnd"], "_", "main"))


class Names(NamedTuple):
    """What tensors and extents are called in the text, by what they are called in the graph."""

    tensors: dict[str, str]
    extents: dict[str, str]


def with_identifiers(model: Model) -> Model:
    """The model as its text calls everything: tensors and extents by identifiers, items of packs as `pack:1`."""
    names = names_in_text(model.graph)
    graph = rename_symbols(rename(model.graph, names.tensors), names.extents)
    data = model.data and {names.tensors.get(key, key): value for key, value in model.data.items()}
    return replace(model, graph=replace(graph, name=graph_word(graph)), data=data)


def graph_word(graph: Graph) -> str:
    """The name of a graph without its module."""
    return _spell(graph.name.removeprefix("main."))


def packs(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The packs of known length that have a name: `p` for `(p:1, p:2)`."""
    made = (argument for node in walk(graph.nodes) for argument in node.outputs)
    single = {item.name for item in defined(graph)}
    found: dict[str, tuple[str, ...]] = {}
    for argument in (*graph.inputs, *graph.outputs, *made):
        if isinstance(argument, tuple) and argument:
            names = tuple(item.name for item in argument)
            base = names[0].removesuffix(":1")
            wanted = tuple(f"{base}:{number}" for number in range(1, len(names) + 1))
            if names == wanted and base not in single:
                found[base] = names
    return found


def names_in_text(graph: Graph) -> Names:
    """An identifier for everything; what is one already keeps it."""
    grouped = packs(graph)
    items = {name: base for base, names in grouped.items() for name in names}
    tensors = list(dict.fromkeys(items.get(item.name, item.name) for item in defined(graph)))
    own = list(dict.fromkeys(item.name for item in _own_symbols(graph)))
    taken = {*_RESERVED, *_modules(graph)}
    found = {name: name for name in tensors if _IDENTIFIER.fullmatch(name) and name not in taken}
    kept = {name for name in own if _IDENTIFIER.fullmatch(name) and name not in taken and name not in found}
    fresh = Fresh((*taken, *found, *kept), start=2)
    found |= {name: fresh.take(_spell(name)) for name in tensors if name not in found}
    words = {name: f"{found[base]}:{name.rpartition(':')[2]}" for name, base in items.items()}
    return Names(found | words, {name: name if name in kept else fresh.take(_spell(name)) for name in own})


def _modules(graph: Graph) -> Iterator[str]:
    for operation in graph.operations():
        yield from operation.operator.split(".")[:-1]


def _spell(name: str) -> str:
    word = re.sub(r"[^A-Za-z0-9_]", "_", name[:_LONGEST]) or "t"
    return f"_{word}" if word[0].isdigit() else word


def _own_symbols(graph: Graph) -> Iterator[Symbol]:
    """The extents with a name of their own, not one of a tensor."""
    found = (symbol for item in defined(graph) for extent in extents(item) for symbol in symbols(extent))
    return (symbol for symbol in found if not re.search(r"\.(shape\[\d+\]|size)$", symbol.name))
