"""Outlining: a group of operations as one operator whose body they are, and one call of it in their place.

Numbers and names of a body are its own: extents that are known are written as numbers, open ones are attributes. Groups
that differ in names alone call one operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lamella.base.dim import Dim, DimSymbol, Extent, symbols
from lamella.base.origin import GroupOrigin
from lamella.base.records import dataclass
from lamella.base.source import NOWHERE
from lamella.graph.components import (
    IDENTIFIER,
    RESERVED,
    ComponentWriter,
    expression,
    extent,
    spell,
    type_word,
)
from lamella.graph.nodes import Constant, Graph, Operation, Pack, Tensor, Value
from lamella.graph.rewrite import FreshNames, defined, members, rename, rename_symbols
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.check.definitions import invoked
from lamella.ops.instance import Repeated
from lamella.ops.library import FUSED, Library

MOST_WORDS = 4
"""Words of the name of a group."""
SILENT = frozenset(("flatten", "unflatten", "iden", "view"))
"""Operators that say nothing in the name of a group."""


@dataclass(frozen=True, slots=True)
class Outlined:
    """Operations to be one, in topological order: the tensors that they read, make and keep to themselves."""

    members: tuple[Operation, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    constants: tuple[Constant, ...] = ()
    """Constants of one value that the body holds itself."""


class OperatorWriter:
    """The operators of groups, equal ones once."""

    def __init__(self, library: Library) -> None:
        self.library = library
        known = library.documents.get(FUSED)
        self.operators: list[n.Operator] = [] if known is None else list(known.declarations)
        self._names = FreshNames((*(item.name for item in self.operators), *RESERVED, FUSED), start=2)
        self._by_body: dict[object, str] = {}
        self._attributes: dict[str, list[str]] = {}
        self._copies: dict[str, str] = {}

    def refresh(self) -> None:
        """Let later groups call the operators of those so far."""
        self.library = self.finished()

    def finished(self) -> Library:
        """The library with the operators of all groups."""
        calls = {name for operator in self.operators for name in invoked(operator) if "." in name}
        modules = sorted({name.rpartition(".")[0] for name in calls} - {FUSED})
        document = n.Document(tuple(n.Import((name,)) for name in modules), tuple(self.operators))
        return self.library.with_module(FUSED, document)

    def call(self, group: Outlined, wanted: str = "") -> Operation:
        """One call in the place of a group, by the name that is wanted or by one that says what it does."""
        graph = Graph("body", group.inputs, group.outputs, group.members, constants=group.constants)
        open_extents = _symbols(graph)
        numbered = _numbered(graph, open_extents)
        key = numbered, wanted
        name = self._by_body.get(key)
        if name is None:
            words = spell(wanted) if wanted else self._words(group.members)
            name = self._by_body[key] = self._define(_with_plain_names(graph, open_extents), words)
        attributes: list[tuple[str, Value]] = [
            (word, Dim((((symbol,), 1),)))
            for word, symbol in zip(self._attributes[name], open_extents.values(), strict=True)
        ]
        origins = tuple(item.origin for item in group.members)
        origin = GroupOrigin(f"{FUSED}.{name}", NOWHERE, origins[-1], origins)
        return Operation(f"{FUSED}.{name}", group.inputs, group.outputs, tuple(attributes), origin=origin)

    def _define(self, body: Graph, words: str) -> str:
        # A name that begins with an underscore is private, and could not be called.
        name = self._names.take(words if words[0].isalpha() else f"group{words}")
        called = {item.operator for item in body.nodes if isinstance(item, Operation)}
        copies = {item: f"{FUSED}.{self._copied(item)}" for item in sorted(called) if self._is_private(item)}
        writer = ComponentWriter(self.library, operators=copies, module=FUSED)
        self._attributes[name] = list(_symbols(body))
        sections: dict[str, tuple[n.Statement, ...]] = {
            "attrib": tuple(n.Parameter(item, n.TypeSpec("int")) for item in self._attributes[name]),
            "input": tuple(map(_declare, members(body.inputs))),
            "output": tuple(map(_declare, members(body.outputs))),
            "constant": tuple(
                replace(_declare(item.tensor), value=expression(item.value)) for item in body.constants
            ),
            "compose": writer.components(body.nodes),
        }
        filled = tuple(n.Section(key, items) for key, items in sections.items() if items)
        self.operators.append(n.Operator(name, filled))
        return name

    def _words(self, group: Sequence[Operation]) -> str:
        """A readable name: what the operators of a group are called, each run of equal ones once."""
        found: list[str] = []
        for operation in group:
            word = self._source_word(operation)
            if word not in SILENT and (not found or found[-1] != word):
                found.append(word)
        if len(found) > MOST_WORDS:
            found = [*found[: MOST_WORDS - 1], found[-1]]
        return spell("_".join(found))[:100]

    def _source_word(self, operation: Operation) -> str:
        """The operator that an operation was written as before it was decomposed."""
        links = [] if operation.origin is None else [link.what for link in operation.origin.chain()]
        whole = [item for item in links if "." in item and "._" not in item and self.library.find(item)]
        name = (whole or [operation.operator])[-1].rpartition(".")[2].strip("_")
        return name.removesuffix("_reduce")

    def _is_private(self, name: str) -> bool:
        """Whether a module of its own cannot call an operator: it is private, or the model's."""
        definition = self.library.find(name)
        return (
            definition is not None
            and not name.startswith(f"{FUSED}.")
            and (not definition.standard or definition.operator.name.startswith("_"))
        )

    def _copied(self, name: str) -> str:
        """A formula that no other module can call, copied beside the groups."""
        if name not in self._copies:
            definition = self.library.find(name)
            if definition is None:
                raise LookupError(name)
            word = self._names.take(spell(name.replace("._", "_").replace(".", "_").strip("_")))
            self._copies[name] = word
            self.operators.append(replace(definition.operator, name=word))
        return self._copies[name]


def _declare(item: Tensor | Pack) -> n.Parameter:
    shape = tuple(n.Extent(extent(size)) for size in item.shape)
    return n.Parameter(item.name, n.TypeSpec(type_word(item.element), shape=shape))


# --- names ------------------------------------------------------------------------------------------------------


def _symbols(graph: Graph) -> dict[str, DimSymbol]:
    """The open extents of a body, by name."""
    found: dict[str, DimSymbol] = {}
    for item in defined(graph):
        for size in item.shape:
            found.update((symbol.name, symbol) for symbol in symbols(size))
    for constant in graph.constants:
        for size in _extents(constant.value):
            found.update((symbol.name, symbol) for symbol in symbols(size))
    for operation in graph.operations():
        for _, value in operation.attributes:
            for size in _extents(value):
                found.update((symbol.name, symbol) for symbol in symbols(size))
    return found


def _extents(value: Value) -> Iterable[Extent]:
    items: tuple[object, ...] = value if isinstance(value, tuple) else (value,)
    if isinstance(value, Repeated):
        items = (value.item, value.length)
    return [item for item in items if isinstance(item, Dim)]


def _with_plain_names(graph: Graph, open_extents: Mapping[str, DimSymbol]) -> Graph:
    """A body whose tensors and extents are called by the last of their labels."""
    fresh = FreshNames((*RESERVED, FUSED, *_modules(graph)), start=2)
    names = {item.name: fresh.take(_label(item.name)) for item in defined(graph)}
    extents = {name: fresh.take(_label(name)) for name in open_extents}
    return _renamed(graph, names, extents)


def _numbered(graph: Graph, open_extents: Mapping[str, DimSymbol]) -> object:
    """What equal bodies have in common: names are numbers."""
    names = {item.name: f"t{number}" for number, item in enumerate(defined(graph))}
    extents = {name: f"n{number}" for number, name in enumerate(open_extents)}
    found = _renamed(graph, names, extents)
    constants = tuple((item.tensor, repr(item.value)) for item in found.constants)
    attributes = tuple(repr(item.attributes) for item in found.operations())
    return found.inputs, found.outputs, found.nodes, constants, attributes


def _renamed(graph: Graph, names: Mapping[str, str], extents: Mapping[str, str]) -> Graph:
    if not extents:
        return rename(graph, names)
    renewed = rename_symbols(graph, {name: f" {word}" for name, word in extents.items()})
    renewed = rename(renewed, names)
    return rename_symbols(renewed, {f" {word}": word for word in extents.values()})


def _modules(graph: Graph) -> Iterable[str]:
    return (word for operation in graph.operations() for word in operation.operator.split(".")[:-1])


def _label(name: str) -> str:
    """The last label of a path, as a word."""
    parts = [part for part in name.replace("~", "_").split(".") if part]
    word = spell(parts[-1]) if parts else "t"
    return word if IDENTIFIER.fullmatch(word) else "t"
