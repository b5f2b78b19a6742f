"""The Graph IR of a compiled unit back to a graph that runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lamella.base.diagnostic import LamellaError, errors, printable
from lamella.base.dim import Dim, Logic, Test
from lamella.base.dtype import F64, ElementType
from lamella.base.errors import Found, Malformed
from lamella.base.limits import DEFAULT, Limits
from lamella.base.origin import Origin
from lamella.base.paths import is_there
from lamella.base.source import NOWHERE
from lamella.bridge.hf_to_module.checkpoint import refuse_link, wrong_file
from lamella.bridge.hf_to_module.weights import element_named
from lamella.bridge.module_to_graph.constant_tables import compute_table
from lamella.bridge.module_to_graph.lowering import SHAPES, shape_of
from lamella.bridge.module_to_ir import GraphIR, read_part
from lamella.bridge.module_to_ir import nodes as ir
from lamella.bridge.module_to_ir.files import GRAPH, NUMBERS, TRAINING
from lamella.bridge.module_to_ir.graph import SymbolTable, SymbolValues, casts_of, make_edges
from lamella.bridge.module_to_ir.nodes import Json
from lamella.graph.data import read_weights
from lamella.graph.model import Model
from lamella.graph.nodes import (
    Argument,
    Constant,
    Graph,
    Operation,
    Quantization,
    Single,
    Tensor,
    Update,
    Value,
)
from lamella.graph.verify import verify
from lamella.lang.module.instantiate.nodes import BuiltConstant, DictValue
from lamella.lang.module.instantiate.nodes import Value as Plain
from lamella.lang.skriptnd import check
from lamella.ops.instance import Check, Repeated
from lamella.ops.library import Library
from lamella.ops.modules import file_of

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)

if TYPE_CHECKING:
    from lamella.base.arrays import Array

_FLOATS = ("inf", "-inf", "nan")


def read_ir(folder: Path, limits: Limits = DEFAULT, training: bool = False) -> Model:
    """The model of a folder with a compiled unit, with its numbers where they lie there too.

    With `training` it is the graph that goes back too. LamellaError holds what is wrong with the files: everything in
    them is checked again.
    """
    file = TRAINING if training else GRAPH
    part = read_part(folder, file, GraphIR, limits)
    library = Library(limits=limits)
    try:
        graph = ir_to_graph(part, limits)
        _load_operators(graph, library, folder)
        known = dict(_tables(part, graph, limits))
    except Malformed as problem:
        raise LamellaError([wrong_file(folder / file, str(problem))]) from None
    # Verified before it is compared: what derives edges and casts trusts its graph.
    wrong = verify(graph, library)
    if wrong:
        raise LamellaError(wrong)
    try:
        _compare(part, graph)
    except Malformed as problem:
        raise LamellaError([wrong_file(folder / file, str(problem))]) from None
    return Model(graph, library, {**known, **_numbers(folder, graph, known, limits)})


def _load_operators(graph: Graph, library: Library, folder: Path) -> None:
    """Load the modules of operators beside a unit that its graph calls; LamellaError where one is wrong."""
    called = (node.operator.rpartition(".")[0] for node in graph.nodes if isinstance(node, Operation))
    wanted = [
        name
        for name in dict.fromkeys(called)
        if _MODULE.fullmatch(name) and name not in library.standard and is_there(folder / file_of(name))
    ]
    findings = list(library.load_modules(wanted, folder)) if wanted else []
    if not errors(findings):
        for name, document in library.own_modules().items():
            findings += check(document, name, library.find_operator, library.operators)
    if errors(findings):
        raise LamellaError(errors(findings))


def ir_to_graph(part: GraphIR, limits: Limits = DEFAULT) -> Graph:
    """The graph that Graph IR says; Malformed where it says none. Whether it is whole is for `verify` to find."""
    if len(part.nodes) > limits.max_operations:
        raise Malformed(f"it has {len(part.nodes)} nodes; the limit is {limits.max_operations}")
    return _GraphReader(part, limits).run()


class _GraphReader:
    """The work of `ir_to_graph`."""

    def __init__(self, part: GraphIR, limits: Limits) -> None:
        self.part, self.limits = part, limits
        self.meanings = SymbolValues(part.symbols)
        self.tensors: dict[str, Tensor] = {}
        own = [item for item in part.params if item.tied_to is None and not item.is_none]
        for item in (*part.inputs, *own, *part.constants, *part.states, *part.intermediates):
            self._declare(item)

    def run(self) -> Graph:
        part = self.part
        return Graph(
            part.name,
            tuple(self._find(item.name) for item in part.inputs),
            tuple(map(self._find, part.outputs)),
            tuple(map(self._node, part.nodes)),
            tuple(map(self._find, part.variables)),
            tuple(self._constant(item) for item in part.literals),
            tuple(Update(self._find(item.name), self._find(item.value)) for item in part.updates),
            tuple(
                Check(self.meanings.condition(item.condition), printable(item.message), NOWHERE)
                for item in part.checks
            ),
        )

    # --- tensors --------------------------------------------------------------------------------------------

    def _declare(self, item: ir.TensorDecl) -> None:
        if item.name in self.tensors:
            raise Malformed(f"the tensor '{item.name[:100]}' is declared twice")
        if len(item.shape) > self.limits.max_rank or len(item.name) > self.limits.max_name:
            raise Malformed(f"the tensor '{item.name[:100]}' has too many dimensions, or too long a name")
        shape, quantization = self.meanings.shape(item.shape), self._quantization(item)
        self.tensors[item.name] = Tensor(item.name, _element(item.dtype), shape, quantization)

    def _quantization(self, item: ir.TensorDecl) -> Quantization | None:
        found = item.quantization
        if found is None:
            return None
        operator, attributes = found.get("operator"), found.get("attributes")
        if not isinstance(operator, str) or not isinstance(attributes, Mapping):
            raise Malformed(f"the quantization of '{item.name[:100]}' has no operator")
        values = tuple((str(name), self._value(value)) for name, value in attributes.items())
        return Quantization(operator, values)

    def _find(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise Malformed(f"there is no tensor '{name[:100]}'")
        return self.tensors[name]

    def _argument(self, found: ir.Argument) -> Argument:
        if isinstance(found, tuple):
            return tuple(map(self._find, found))
        return None if found is None else self._find(found)

    # --- nodes ----------------------------------------------------------------------------------------------

    def _node(self, node: ir.GraphNode) -> Operation:
        return Operation(
            node.op,
            tuple(map(self._argument, node.inputs)),
            tuple(map(self._argument, node.outputs)),
            tuple((name, self._value(value)) for name, value in node.attributes.items()),
            tuple((name, _element(word)) for name, word in node.types.items()),
            origin=Origin(node.path) if node.path else None,
        )

    def _constant(self, item: ir.Literal) -> Constant:
        value = self._value(item.value)
        if value is None or isinstance(value, Repeated):
            raise Malformed(f"the constant '{item.name[:100]}' has no value")
        return Constant(self._find(item.name), value)

    def _value(self, value: Json) -> Value:
        if isinstance(value, tuple):
            return tuple(map(self._single, value))
        if isinstance(value, Mapping) and "repeated" in value:
            length = self._single(value.get("length"))
            if isinstance(length, Dim):
                return Repeated(self._single(value["repeated"]), length)
        return None if value is None else self._single(value)

    def _single(self, value: Json) -> Single:
        if isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Mapping) and len(value) == 1:
            symbol, text = value.get("symbol"), value.get("float")
            if isinstance(symbol, int) and not isinstance(symbol, bool):
                found = self.meanings.value(symbol)
                if isinstance(found, Dim | Test | Logic):
                    return found
            if isinstance(text, str) and text in _FLOATS:
                return float(text)
        raise Malformed("an attribute is no value")


def _element(word: str) -> ElementType:
    found = element_named(word)
    if found is None:
        raise Malformed(f"'{word[:60]}' is no element type")
    return found


# --- what is redundant in a file ----------------------------------------------------------------------------


def _compare(part: GraphIR, graph: Graph) -> None:
    """Edges and casts follow from the nodes; where a file says others, it is not one graph."""
    meanings, table = SymbolValues(part.symbols), SymbolTable()
    derived = list(make_edges(graph, table))
    own = SymbolValues(table.symbols)
    # Otherwise two readers of one file could see two graphs.
    if [_edge(item, meanings) for item in part.edges] != [_edge(item, own) for item in derived]:
        raise Malformed("the edges are not those of the nodes")
    if part.casts != tuple(casts_of(graph)):
        raise Malformed("the casts are not those of the nodes")
    if [item.id for item in part.nodes] != [f"n{number}" for number in range(len(part.nodes))]:
        raise Malformed("the ids of the nodes do not count")


def _edge(edge: ir.Edge, meanings: SymbolValues) -> object:
    return edge.tensor, edge.source, edge.dest, edge.dtype, meanings.shape(edge.shape)


# --- numbers ----------------------------------------------------------------------------------------------------


def _tables(part: GraphIR, graph: Graph, limits: Limits) -> Iterator[tuple[str, Array]]:
    """Built constants, and states, which begin with zeros."""
    variables = {item.name: item for item in graph.variables}
    for item in part.built:
        variable = variables.get(item.name)
        named = {name: _plain(value) for name, value in item.named.items()}
        built = BuiltConstant(item.function, tuple(map(_plain, item.positional)), named)
        if variable is None or item.function not in SHAPES or _shape(item.name, built) != variable.shape:
            raise Malformed(f"'{item.name[:100]}' is not built by '{item.function[:60]}'")
        yield item.name, _computed(item.name, built, limits).astype(_real(variable))
    for update in graph.updates:
        yield update.variable.name, _zeros(update.variable, limits)


def _plain(value: Json) -> Plain:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return DictValue(tuple((name, _plain(item)) for name, item in value.items()))
    raise Malformed("an argument of a built constant is no value")


def _shape(name: str, built: BuiltConstant) -> tuple[int, ...] | None:
    try:
        return shape_of(name, built)
    except Found:
        return None


def _computed(name: str, built: BuiltConstant, limits: Limits) -> Array:
    _require_room(name, shape_of(name, built), limits)
    try:
        return compute_table(built)
    except (ArithmeticError, TypeError, ValueError):
        raise Malformed(f"'{name[:100]}' cannot be computed from its arguments") from None


def _zeros(variable: Tensor, limits: Limits) -> Array:
    shape = [item for item in variable.shape if isinstance(item, int)]
    if len(shape) != len(variable.shape):
        raise Malformed(f"the state '{variable.name[:100]}' has no known shape")
    _require_room(variable.name, shape, limits)
    return np.zeros(shape, np.int64 if variable.element.is_integer else _real(variable))


def _real(variable: Tensor) -> type[np.float32] | type[np.float64]:
    """The type in which numbers of a variable are held; narrower ones are rounded by whoever stores them."""
    return np.float64 if variable.element is F64 else np.float32


def _require_room(name: str, shape: Iterable[int], limits: Limits) -> None:
    # Eight bytes an element, the widest: the bound holds whatever type is computed in.
    needed = 8
    for extent in shape:
        needed *= max(extent, 1)
    if needed > limits.max_total_bytes:
        raise Malformed(f"'{name[:100]}' needs {needed} bytes; the limit is {limits.max_total_bytes}")


def _numbers(folder: Path, graph: Graph, known: Mapping[str, Array], limits: Limits) -> Mapping[str, Array]:
    """The weights, where they were written beside the unit."""
    if not is_there(folder / NUMBERS):
        return {}
    refuse_link(folder, NUMBERS)
    own = tuple(item for item in graph.variables if item.name not in known)
    found = read_weights(folder / NUMBERS, replace(graph, variables=own), limits)
    if errors(found.findings):
        raise LamellaError(errors(found.findings))
    return found.arrays
