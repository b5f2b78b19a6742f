"""A whole graph as modules: the graph itself, and the user's operators that it calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from lamella.base.dim import Condition, Extent, Logic, Symbol, Test, bounds, symbols
from lamella.bridge.graph_to_skriptnd.components import Writer, type_word
from lamella.bridge.graph_to_skriptnd.names import packs
from lamella.bridge.graph_to_skriptnd.operators import MAIN, Operators, module_document, modules_of
from lamella.bridge.graph_to_skriptnd.values import condition, expression, extent
from lamella.graph.nodes import Argument, Graph, Node, Operation, Pack, Tensor
from lamella.graph.rewrite import Fresh, defined, extents, members, rename, uses
from lamella.lang.skriptnd import nodes as n
from lamella.ops.library import Library


def documents(graph: Graph, library: Library) -> dict[str, n.Document]:
    """The main module with the graph, and the modules of the user's operators."""
    operators = Operators(graph, library)
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
    writer = Writer(library, grouped, words, operators)
    made = [n.Component((n.Result(name),), writer.expression(items)) for name, items in lists.items()]
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
        "compose": (*writer.components(graph.nodes), *made),
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
        n.Assertion(condition(test), n.Text(told.replace("{", "\\{"))) for test, told in found.items()
    )


def _without_empty(graph: Graph) -> Graph:
    """The graph without inputs and outputs that are empty packs: they have no name, and nothing to give or take."""
    kept = [tuple(item for item in side if item != ()) for side in (graph.inputs, graph.outputs)]
    return replace(graph, inputs=kept[0], outputs=kept[1])


def _loosen(graph: Graph) -> tuple[Graph, dict[str, tuple[Tensor, ...]]]:
    """Output packs that no single node makes are written as lists.

    A list copies its items, so items that are copies already are left out; the others get a name of their own.
    """
    made = [argument for node in graph.nodes for argument in node.outputs]
    copies = {item.outputs[0]: item for item in graph.nodes if isinstance(item, Operation) and _is_copy(item)}
    read, fresh = uses(graph), Fresh(item.name for item in defined(graph))
    lists: dict[str, tuple[Tensor, ...]] = {}
    names: dict[str, str] = {}
    dropped: list[Node] = []
    for pack in (item for item in graph.outputs if isinstance(item, tuple) and item not in made):
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
    told: set[str] = set()
    return tuple(_input(argument, told) for argument in graph.inputs)


def _input(argument: Argument, told: set[str]) -> n.Parameter:
    if isinstance(argument, tuple):
        return n.Parameter(_pack_name(argument), _pack_type(argument, told))
    item = next(members([argument]))
    return n.Parameter(item.name, _open_type(item, told, _length(item, told)))


def _pack_type(pack: tuple[Tensor, ...], told: set[str]) -> n.TypeSpec:
    """The type of an input pack; where its items differ, an extent is a list."""
    shape = [
        _extent(sizes[0], "", told)
        if len(set(sizes)) == 1
        else n.Extent(n.List(tuple(map(extent, sizes))), spread=True)
        for sizes in zip(*(item.shape for item in pack), strict=True)
    ]
    return n.TypeSpec(type_word(pack[0].element), shape=tuple(shape), pack=n.Pack(n.Integer(len(pack))))


def _length(item: Tensor | Pack, told: set[str]) -> n.Pack | None:
    if isinstance(item, Tensor):
        return None
    size = _extent(item.size, f"{item.name}.size", told)
    return n.Pack(size.value, size.bound)


def _open_type(item: Tensor | Pack, told: set[str], length: n.Pack | None) -> n.TypeSpec:
    shape = tuple(_extent(size, f"{item.name}.shape[{axis}]", told) for axis, size in enumerate(item.shape))
    return n.TypeSpec(type_word(item.element), shape=shape, pack=length)


def _extent(size: Extent, own: str, told: set[str]) -> n.Extent:
    """An extent of an input: a number, a symbol with its bound, or one without a name."""
    symbol = _symbol(size)
    if symbol is None:
        return n.Extent(extent(size))
    bound = None if symbol.name in told else n.Integer(symbol.high)
    told.add(symbol.name)
    return n.Extent(n.Omitted() if symbol.name == own else extent(size), bound)


def _symbol(size: Extent) -> Symbol | None:
    """The symbol that an extent is, where it is nothing else."""
    if isinstance(size, int) or len(size.terms) != 1:
        return None
    (monomial, factor), *_ = size.terms
    plain = factor == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol)
    return monomial[0] if plain and isinstance(monomial[0], Symbol) else None


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
