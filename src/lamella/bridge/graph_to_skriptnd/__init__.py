"""A graph as SkriptND text: flat, every name an identifier, with the user's own operators beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypedDict

from lamella.base.dim import Condition, DimSymbol, Extent, Logic, Test, bounds, symbols
from lamella.base.origin import Origin
from lamella.bridge.graph_to_skriptnd.operators import MAIN, WrittenOperators, module_document, modules_of
from lamella.graph.components import (
    IDENTIFIER,
    RESERVED,
    ComponentWriter,
    condition,
    condition_inputs,
    expression,
    extent,
    spell,
    type_word,
)
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Branch, Graph, Loop, Node, Operation, Pack, Region, Tensor, walk
from lamella.graph.rewrite import (
    FreshNames,
    Substitution,
    defined,
    extents,
    members,
    producers,
    rename,
    rename_symbols,
    results_of,
    uses,
)
from lamella.lang.skriptnd import Document
from lamella.lang.skriptnd import nodes as n
from lamella.ops.library import Library

# --- names of tensors as identifiers of the language, and back ----------------------------------------------


class TextNames(NamedTuple):
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
    return spell(graph.name.removeprefix("main."))


def packs(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The packs of known length that have a name: `p` for `(p:1, p:2)`."""
    results_of = (argument for node in walk(graph.nodes) for argument in node.outputs)
    single = {item.name for item in defined(graph)}
    found: dict[str, tuple[str, ...]] = {}
    for argument in (*graph.inputs, *graph.outputs, *results_of):
        if isinstance(argument, tuple) and argument:
            names = tuple(item.name for item in argument)
            base = names[0].removesuffix(":1")
            wanted = tuple(f"{base}:{number}" for number in range(1, len(names) + 1))
            if names == wanted and base not in single:
                found[base] = names
    return found


def names_in_text(graph: Graph) -> TextNames:
    """An identifier for everything; what is one already keeps it."""
    grouped = packs(graph)
    items = {name: base for base, names in grouped.items() for name in names}
    tensors = list(dict.fromkeys(items.get(item.name, item.name) for item in defined(graph)))
    own = list(dict.fromkeys(item.name for item in _own_symbols(graph)))
    taken = {*RESERVED, *_modules(graph)}
    found = {name: name for name in tensors if IDENTIFIER.fullmatch(name) and name not in taken}
    kept = {name for name in own if IDENTIFIER.fullmatch(name) and name not in taken and name not in found}
    fresh = FreshNames((*taken, *found, *kept), start=2)
    found |= {name: fresh.take(spell(name)) for name in tensors if name not in found}
    words = {name: f"{found[base]}:{name.rpartition(':')[2]}" for name, base in items.items()}
    return TextNames(found | words, {name: name if name in kept else fresh.take(spell(name)) for name in own})


def _modules(graph: Graph) -> Iterator[str]:
    for operation in graph.operations():
        yield from operation.operator.split(".")[:-1]


def _own_symbols(graph: Graph) -> Iterator[DimSymbol]:
    """The extents with a name of their own, not one of a tensor."""
    found = (symbol for item in defined(graph) for extent in extents(item) for symbol in symbols(extent))
    return (symbol for symbol in found if not re.search(r"\.(shape\[\d+\]|size)$", symbol.name))


# --- A whole graph as modules: the graph itself, and the user's operators that it calls ---------------------


def documents(graph: Graph, library: Library) -> dict[str, n.Document]:
    """The main module with the graph, and the modules of the user's operators."""
    operators = WrittenOperators(graph, library)
    found = {name: module_document(name, items) for name, items in operators.modules.items()}
    imports = {*modules_of(operators.calls), *found[MAIN].modules} - {MAIN}
    body = (*operators.modules[MAIN], _declaration(graph, library, operators.words))
    return {**found, MAIN: n.Document(_import(imports), body)}


def _import(modules: Iterable[str]) -> tuple[n.Import, ...]:
    return tuple(n.Import((name,)) for name in sorted(modules))


def _tensors(graph: Graph) -> Iterator[Tensor]:
    return (item for item in defined(graph) if isinstance(item, Tensor))


# --- the graph ----------------------------------------------------------------------------------------------


def _declaration(graph: Graph, library: Library, operators: Mapping[str, str]) -> n.Operator:
    graph = _without_empty(graph)
    outputs = tuple(map(_output, graph.outputs))
    graph, lists = _loosen(graph)
    grouped = packs(graph)
    words = {
        name: n.Index(n.Name(base), n.Integer(number))
        for base, names in grouped.items()
        for number, name in enumerate(names)
    }
    writer = ComponentWriter(library, grouped, words, operators)
    results_of = [n.Component((n.Result(name),), writer.expression(items)) for name, items in lists.items()]
    quantized = [writer.quantization(item) for item in _tensors(graph)]
    sections: dict[str, tuple[n.Statement, ...]] = {
        "input": _inputs(graph),
        "output": outputs,
        "constant": tuple(
            n.Parameter(item.tensor.name, _type(item.tensor), expression(item.value))
            for item in graph.constants
        ),
        "variable": tuple(n.Parameter(item.name, _type(item)) for item in graph.variables),
        "assert": _assertions(graph),
        "compose": (*writer.components(graph.nodes), *results_of),
        "update": tuple(
            n.Component((n.Result(item.variable.name),), writer.name(item.value)) for item in graph.updates
        ),
        "quantize": tuple(item for item in quantized if item is not None),
    }
    filled = tuple(n.Section(name, items) for name, items in sections.items() if items)
    return n.Operator(graph.name, filled, graph=True)


def _assertions(graph: Graph) -> tuple[n.Assertion, ...]:
    """What the run must test of the extents of the inputs, each condition once; a reader derives the rest again."""
    known = {
        symbol.name for item in members(graph.inputs) for size in extents(item) for symbol in symbols(size)
    }
    found: dict[Condition, str] = {}
    for item in graph.checks:
        test = item.condition
        if isinstance(test, Test | Logic) and all(symbol.name in known for symbol in symbols(test)):
            found.setdefault(test, item.message.removeprefix(f"{MAIN}.{graph.name}: "))
    return tuple(
        n.Assertion(condition(test), n.Text(message.replace("{", "\\{"))) for test, message in found.items()
    )


def _without_empty(graph: Graph) -> Graph:
    """The graph without inputs and outputs that are empty packs: they have no name, and nothing to give or take."""
    kept = [tuple(item for item in side if item != ()) for side in (graph.inputs, graph.outputs)]
    return replace(graph, inputs=kept[0], outputs=kept[1])


def _loosen(graph: Graph) -> tuple[Graph, dict[str, tuple[Tensor, ...]]]:
    """Output packs that no single node makes are written as lists.

    A list copies its items, so items that are copies already are left out; the others get a name of their own.
    """
    results_of = [argument for node in graph.nodes for argument in node.outputs]
    copies = {item.outputs[0]: item for item in graph.nodes if isinstance(item, Operation) and _is_copy(item)}
    read, fresh = uses(graph), FreshNames(item.name for item in defined(graph))
    lists: dict[str, tuple[Tensor, ...]] = {}
    names: dict[str, str] = {}
    dropped: list[Node] = []
    for pack in (item for item in graph.outputs if isinstance(item, tuple) and item not in results_of):
        items: list[Tensor] = []
        for tensor in pack:
            copy = copies.get(tensor)
            source = copy.inputs[0] if copy is not None and read[tensor.name] == 1 else None
            if copy is not None and isinstance(source, Tensor):
                dropped.append(copy)
                items.append(source)
            else:
                names[tensor.name] = fresh.take(tensor.name.replace(":", "_"))
                items.append(replace(tensor, name=names[tensor.name]))
        lists[_pack_name(pack)] = tuple(items)
    kept = tuple(node for node in graph.nodes if not any(node is item for item in dropped))
    return rename(replace(graph, nodes=kept, outputs=()), names) if lists else graph, lists


def _is_copy(node: Operation) -> bool:
    return (
        node.operator == "math.iden"
        and isinstance(node.outputs[0], Tensor)
        and node.outputs[0].quantization is None
    )


def _pack_name(pack: tuple[Tensor, ...]) -> str:
    return pack[0].name.rpartition(":")[0]


def _type(item: Tensor) -> n.TypeSpec:
    return n.TypeSpec(type_word(item.element), shape=tuple(n.Extent(extent(size)) for size in item.shape))


def _inputs(graph: Graph) -> tuple[n.Parameter, ...]:
    """The inputs; an open extent is given its bound where it stands first."""
    declared: set[str] = set()
    return tuple(_input(argument, declared) for argument in graph.inputs)


def _input(argument: Argument, declared: set[str]) -> n.Parameter:
    if isinstance(argument, tuple):
        return n.Parameter(_pack_name(argument), _pack_type(argument, declared))
    item = next(members([argument]))
    return n.Parameter(item.name, _open_type(item, declared, _length(item, declared)))


def _pack_type(pack: tuple[Tensor, ...], declared: set[str]) -> n.TypeSpec:
    """The type of an input pack; where its items differ, an extent is a list."""
    shape = [
        _extent(sizes[0], "", declared)
        if len(set(sizes)) == 1
        else n.Extent(n.List(tuple(map(extent, sizes))), spread=True)
        for sizes in zip(*(item.shape for item in pack), strict=True)
    ]
    return n.TypeSpec(type_word(pack[0].element), shape=tuple(shape), pack=n.Pack(n.Integer(len(pack))))


def _length(item: Tensor | Pack, declared: set[str]) -> n.Pack | None:
    if isinstance(item, Tensor):
        return None
    size = _extent(item.size, f"{item.name}.size", declared)
    return n.Pack(size.value, size.bound)


def _open_type(item: Tensor | Pack, declared: set[str], length: n.Pack | None) -> n.TypeSpec:
    shape = tuple(
        _extent(size, f"{item.name}.shape[{axis}]", declared) for axis, size in enumerate(item.shape)
    )
    return n.TypeSpec(type_word(item.element), shape=shape, pack=length)


def _extent(size: Extent, own: str, declared: set[str]) -> n.Extent:
    """An extent of an input: a number, a symbol with its bound, or one without a name."""
    symbol = _symbol(size)
    if symbol is None:
        return n.Extent(extent(size))
    bound = None if symbol.name in declared else n.Integer(symbol.high)
    declared.add(symbol.name)
    return n.Extent(n.Omitted() if symbol.name == own else extent(size), bound)


def _symbol(size: Extent) -> DimSymbol | None:
    """The symbol that an extent is, where it is nothing else."""
    if isinstance(size, int) or len(size.terms) != 1:
        return None
    (monomial, factor), *_ = size.terms
    plain = factor == 1 and len(monomial) == 1 and isinstance(monomial[0], DimSymbol)
    return monomial[0] if plain and isinstance(monomial[0], DimSymbol) else None


def _output(argument: Argument) -> n.Parameter:
    if isinstance(argument, tuple):
        return n.Parameter(_pack_name(argument), _closed_type(argument[0], n.Pack(n.Integer(len(argument)))))
    item = next(members([argument]))
    length = None if isinstance(item, Tensor) else n.Pack(n.Omitted(), n.Integer(bounds(item.size)[1]))
    return n.Parameter(item.name, _closed_type(item, length))


def _closed_type(item: Tensor | Pack, length: n.Pack | None) -> n.TypeSpec:
    """The type of an output; extents that only the run tells, and those of packs, are left to be derived."""
    known = length is None
    shape = [
        n.Extent(n.Integer(size) if known and isinstance(size, int) else n.Omitted()) for size in item.shape
    ]
    return n.TypeSpec(type_word(item.element), shape=tuple(shape), pack=length)


# --- what a flat text cannot say: the names that tensors had, and what they were made from ------------------


class TensorOrigin(TypedDict, total=False):
    """One tensor of the text: its name in the graph, what it was made from, what its node was made from."""

    name: str
    origin: list[str]
    node: list[str]


class Origins(TypedDict):
    """The content of `origins.json`: tensors and extents by their words in the text."""

    graph: str
    dialect: str
    tensors: dict[str, TensorOrigin]
    extents: dict[str, str]


def origins_of(model: Model) -> Origins:
    """Names and origins of everything in a model, by the words of its text."""
    names = names_in_text(model.graph)
    words = {**names.tensors, **_in_conditions(model.graph, names.tensors)}
    makers = producers(model.graph)
    entries: dict[str, TensorOrigin] = {}
    for item in defined(model.graph):
        entry: TensorOrigin = {"name": item.name}
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


def _words(graph: Graph, entries: Mapping[str, TensorOrigin]) -> dict[str, str]:
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


def _without_clashes(
    names: list[str], found: dict[str, str], entries: Mapping[str, TensorOrigin]
) -> dict[str, str]:
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


def _with_origins(graph: Graph, known: Mapping[str, TensorOrigin]) -> Graph:
    def tensor(item: Tensor) -> Tensor:
        words = known.get(item.name, {}).get("origin")
        return replace(item, origin=_chain(words)) if words else item

    def node(item: Node) -> Node:
        first = next(results_of(item), None)
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

    renewed = Substitution(tensor).graph(graph)
    return replace(renewed, nodes=tuple(map(node, renewed.nodes)))


__all__ = ["Origins", "graph_to_skriptnd", "origins_of", "restore_names", "with_identifiers"]


def graph_to_skriptnd(model: Model) -> dict[str, Document]:
    """The modules of a model folder, by name; `main` holds the graph.

    Variables are called as `with_identifiers` calls them, which is how their data must be stored.
    """
    flat = with_identifiers(model)
    return documents(flat.graph, flat.library)
