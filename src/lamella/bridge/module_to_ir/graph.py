"""A compiled instance as Graph IR, with the symbol table that its extents refer to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from types import MappingProxyType

from lamella.base import dim
from lamella.base.dim import Condition, Dim, Extent, Logic, Test, TooComplex, Truth
from lamella.base.dim import DimPart as Nested
from lamella.base.dim import DimSymbol as Unknown
from lamella.base.dtype import ElementType, name_in
from lamella.base.errors import Malformed
from lamella.base.limits import in_range
from lamella.base.origin import Origin
from lamella.bridge.hf_to_module.weights import indices_in
from lamella.bridge.module_to_graph import graph_name
from lamella.bridge.module_to_graph.nodes import Compiled
from lamella.bridge.module_to_ir import nodes as ir
from lamella.bridge.module_to_ir.annotations import PIN, TEMPORARY, Marks, plain
from lamella.bridge.module_to_ir.nodes import Json, SymbolEntry
from lamella.graph.nodes import Argument, Graph, Operation, Pack, Quantization, Tensor, Value
from lamella.lang.module.annotations import is_frozen
from lamella.lang.module.instantiate import Instance, TensorSlot, walk
from lamella.ops.instance import Repeated, singles

# --- symbol table: an extent is a number, or the negative id of an entry ------------------------------------


SYMBOL, NUMBER, SUM, CHOICE = "symbol", "number", "sum", "?"
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")


# --- symbols written ----------------------------------------------------------------------------------------


class SymbolTable:
    """The entries of one file; equal extents are one entry."""

    def __init__(self) -> None:
        self._entries: list[SymbolEntry] = []
        self._ids: dict[object, int] = {}

    @property
    def symbols(self) -> tuple[SymbolEntry, ...]:
        """The entries so far, each behind what it consists of."""
        return tuple(self._entries)

    def extent(self, value: Extent) -> int:
        """An extent as a file has it; it is never a negative number."""
        if isinstance(value, int):
            return value if value >= 0 else self._add(value, SymbolEntry(0, NUMBER, str(value), value=value))
        return self._sum(value)

    def shape(self, shape: Sequence[Extent]) -> tuple[int, ...]:
        """A shape as a file has it."""
        return tuple(map(self.extent, shape))

    def condition(self, value: Condition) -> int:
        """A condition as a file has it."""
        if isinstance(value, Logic):
            operands = tuple(self.condition(item) for item in value.operands)
        else:
            operands = (self.extent(value.left), self.extent(value.right))
        return self._add(value, SymbolEntry(0, value.sign, str(value), operands=operands))

    def _sum(self, value: Dim) -> int:
        only = value.terms[0] if len(value.terms) == 1 else None
        if only is not None and only[1] == 1 and len(only[0]) == 1:
            return self._atom(only[0][0])
        terms = tuple((factor, *map(self._atom, monomial)) for monomial, factor in value.terms)
        return self._add(value, SymbolEntry(0, SUM, str(value), terms=terms))

    def _atom(self, atom: Unknown | Nested) -> int:
        if isinstance(atom, Unknown):
            return self._add(atom, SymbolEntry(0, SYMBOL, atom.name, atom.low, atom.high))
        operands = tuple(map(self.extent, atom.operands))
        if atom.condition is not None:
            operands = (self.condition(atom.condition), *operands)
        return self._add(atom, SymbolEntry(0, atom.sign, str(atom), operands=operands))

    def _add(self, key: object, entry: SymbolEntry) -> int:
        if key not in self._ids:
            self._ids[key] = -len(self._entries) - 1
            self._entries.append(replace(entry, id=self._ids[key]))
        return self._ids[key]


# --- symbols read -------------------------------------------------------------------------------------------

_ARITHMETIC: Mapping[str, Callable[[Extent, Extent], Extent]] = MappingProxyType(
    {
        "/": dim.floor_divide,
        "\\": dim.ceil_divide,
        "%": dim.remainder,
        "<<": dim.smaller,
        ">>": dim.larger,
    }
)
_COMPARISONS: Mapping[str, Callable[[Extent, Extent], Truth]] = MappingProxyType(
    {
        "<": dim.less,
        "<=": dim.less_equal,
        "==": dim.equal,
        "!=": lambda left, right: dim.negate(dim.equal(left, right)),
    }
)
_LOGIC: Mapping[str, Callable[[Truth, Truth], Truth]] = MappingProxyType(
    {"&&": dim.both, "||": dim.either, "^": dim.differ}
)


class SymbolValues:
    """What the ids of a file stand for."""

    def __init__(self, symbols: Sequence[SymbolEntry]) -> None:
        self._values: list[Extent | Condition | bool] = []
        for number, entry in enumerate(symbols):
            # Ids count, and operands are looked up among the entries so far: no file can hold a cycle.
            if entry.id != -number - 1:
                raise Malformed(f"entry {number} of the symbols has the id {entry.id}, not {-number - 1}")
            try:
                self._values.append(self._read(entry))
            except ZeroDivisionError:
                raise Malformed(f"symbol {entry.id} divides by zero") from None
            except TooComplex as problem:
                raise Malformed(f"symbol {entry.id} is {problem}") from None

    def extent(self, id: int) -> Extent:
        """The extent that a number in a file is."""
        found = self._find(id)
        if isinstance(found, bool) or not isinstance(found, int | Dim):
            raise Malformed(f"symbol {id} is a condition where an extent is wanted")
        return found

    def shape(self, ids: Sequence[int]) -> tuple[Extent, ...]:
        """The shape that a file gives."""
        return tuple(map(self.extent, ids))

    def condition(self, id: int) -> Truth:
        """The condition that an id stands for."""
        found = self._find(id)
        if isinstance(found, Dim) or (isinstance(found, int) and not isinstance(found, bool)):
            raise Malformed(f"symbol {id} is an extent where a condition is wanted")
        return found

    def value(self, id: int) -> Extent | Truth:
        """The extent or condition that an id stands for."""
        return self._find(id)

    def _find(self, id: int) -> Extent | Truth:
        if id >= 0:
            return id
        if -id > len(self._values):
            raise Malformed(f"there is no symbol {id} at this place")
        return self._values[-id - 1]

    def _read(self, entry: SymbolEntry) -> Extent | Truth:
        kind, operands = entry.kind, entry.operands
        if kind == SYMBOL:
            return self._symbol(entry)
        if kind == NUMBER and entry.value is not None:
            return entry.value
        if kind == SUM:
            return self._sum(entry)
        if kind in _ARITHMETIC and len(operands) == 2:
            return _ARITHMETIC[kind](self.extent(operands[0]), self.extent(operands[1]))
        if kind in _COMPARISONS and len(operands) == 2:
            return _COMPARISONS[kind](self.extent(operands[0]), self.extent(operands[1]))
        if kind == CHOICE and len(operands) == 3:
            return dim.choose(self.condition(operands[0]), self.extent(operands[1]), self.extent(operands[2]))
        if kind == "!" and len(operands) == 1:
            return dim.negate(self.condition(operands[0]))
        if kind in _LOGIC and len(operands) > 1:
            return reduce(_LOGIC[kind], map(self.condition, operands))
        raise Malformed(f"symbol {entry.id} is no '{kind[:20]}'")

    def _symbol(self, entry: SymbolEntry) -> Extent:
        low, high = entry.low, entry.high
        if low is None or high is None or not 0 <= low <= high or not _NAME.fullmatch(entry.text):
            raise Malformed(f"symbol {entry.id} has no name or no range")
        return dim.symbol(entry.text, high, low)

    def _sum(self, entry: SymbolEntry) -> Extent:
        total: Extent = 0
        for parts in entry.terms:
            term: Extent = parts[0] if parts else 0
            for atom in parts[1:]:
                term = dim.mul(term, self.extent(atom))
            total = dim.add(total, term)
            factors = [total] if isinstance(total, int) else [factor for _, factor in total.terms]
            if not all(map(in_range, factors)):
                raise Malformed(f"symbol {entry.id} leaves the signed 64-bit range")
        return total


GRAPH_FORMAT = "lamella.graph 1"
CASTS = ("layout.cast", "llm.convert_dtype", "llm.quantize", "llm.dequantize")


def make_graph(compiled: Compiled, graph: Graph, instance: Instance, modes: Mapping[str, str]) -> ir.GraphIR:
    """The Graph IR of a graph that was made from an instance."""
    return _GraphWriter(compiled, graph, instance, modes).run()


def dtype_name(element: ElementType) -> str:
    """What files call an element type: the word of the language, or our own where it has none."""
    return name_in("module", element) or element.name


def names_of(argument: Argument) -> ir.Argument:
    """An operand or result by name."""
    if isinstance(argument, tuple):
        return tuple(item.name for item in argument)
    return None if argument is None else argument.name


class _GraphWriter:
    """The work of `make_graph`."""

    def __init__(
        self,
        compiled: Compiled,
        graph: Graph,
        instance: Instance,
        modes: Mapping[str, str],
    ) -> None:
        self.compiled, self.graph, self.instance = compiled, graph, instance
        self.marks, self.modes = Marks(compiled.marks), modes
        self.table = SymbolTable()
        self.units = {
            part.span.source.name: item.name
            for item in instance.scope.scopes
            for part in item.document.items[:1]
        }
        self.paths = {tensor.name: path for path, tensor in reversed(compiled.names)}
        self.paths |= {
            tensor.name: path for path, tensor in compiled.names if graph_name(path) == tensor.name
        }
        self.paths |= {item.tensor.name: item.path for item in compiled.weights}
        self.makers: dict[str, tuple[str, int]] = {}
        for number, node in enumerate(graph.nodes):
            for slot, item in enumerate(node.outputs):
                self.makers |= {tensor.name: (f"n{number}", slot) for tensor in members(item)}

    def run(self) -> ir.GraphIR:
        graph, instance = self.graph, self.instance
        unit = instance.declared.unit
        variables = {item.name for item in graph.variables}
        states = {item.variable.name for item in graph.updates}
        nodes = tuple(self._node(number, item) for number, item in enumerate(operations(graph)))
        inputs = [self._tensor(item) for argument in graph.inputs for item in members(argument)]
        tables = [item for item in graph.variables if item.name in self.compiled.constants]
        return ir.GraphIR(
            format=GRAPH_FORMAT,
            name=graph.name,
            kind=instance.module.kind,
            file=unit.name,
            digest=unit.digest,
            config={name: plain(known.value) for name, known in instance.values.items()},
            inputs=tuple(inputs),
            outputs=tuple(item.name for argument in graph.outputs for item in members(argument)),
            params=tuple(self._params(variables)),
            constants=tuple(map(self._kept, [*tables, *(item.tensor for item in graph.constants)])),
            states=tuple(self._kept(item) for item in graph.variables if item.name in states),
            intermediates=tuple(
                self._tensor(item)
                for node in operations(graph)
                for made in node.outputs
                for item in members(made)
            ),
            variables=tuple(item.name for item in graph.variables),
            built=tuple(self._built()),
            literals=tuple(
                ir.Literal(item.tensor.name, attribute(item.value, self.table)) for item in graph.constants
            ),
            updates=tuple(ir.StateDecl(item.variable.name, item.value.name) for item in graph.updates),
            nodes=nodes,
            edges=tuple(make_edges(graph, self.table)),
            save=self._of_mode("save"),
            recompute=self._of_mode("recompute"),
            aliases=tuple(self._aliases()),
            hooks=tuple(self._hooks()),
            casts=tuple(casts_of(graph)),
            checks=tuple(self._checks()),
            symbols=self.table.symbols,
        )

    def _checks(self) -> Iterator[ir.Assertion]:
        for item in self.graph.checks:
            if isinstance(item.condition, Test | Logic):
                yield ir.Assertion(self.table.condition(item.condition), item.message)

    # --- tensors --------------------------------------------------------------------------------------------

    def _tensor(self, tensor: Tensor) -> ir.TensorDecl:
        return self._declare(tensor, self.modes.get(tensor.name, TEMPORARY))

    def _kept(self, tensor: Tensor) -> ir.TensorDecl:
        """A tensor that is there for the whole run."""
        return self._declare(tensor, PIN)

    def _declare(self, tensor: Tensor, mode: str) -> ir.TensorDecl:
        path, shape = self.paths.get(tensor.name, tensor.name), self.table.shape(tensor.shape)
        quantization = _quantization(tensor.quantization, self.table)
        return ir.TensorDecl(
            tensor.name, path, dtype_name(tensor.element), shape, mode, quantization=quantization
        )

    def _params(self, variables: set[str]) -> Iterator[ir.TensorDecl]:
        """Every parameter of the model, also those without storage: tied ones, and optional ones without numbers."""
        elements = {item.path: item.tensor.element for item in self.compiled.weights}
        tensors = {item.path: item.tensor.name for item in self.compiled.weights}
        for path, slot in walk(self.instance):
            home = slot.tied or path
            element = elements.get(home)
            name = tensors.get(home, graph_name(home))
            yield ir.TensorDecl(
                name,
                path,
                dtype_name(element) if element is not None else slot.dtype or "",
                slot.dims,
                self.modes.get(name, PIN),
                trainable=is_trainable(slot, element),
                tied_to=slot.tied,
                optional=slot.optional,
                is_none=name not in variables,
            )

    def _built(self) -> Iterator[ir.Built]:
        for name, built in self.compiled.constants.items():
            positional = tuple(map(plain, built.positional))
            yield ir.Built(
                name, built.function, positional, {key: plain(item) for key, item in built.named.items()}
            )

    # --- nodes ----------------------------------------------------------------------------------------------

    def _node(self, number: int, node: Operation) -> ir.GraphNode:
        origin = node.origin
        path = origin.what if origin is not None else ""
        made = [item.name for argument in node.outputs for item in members(argument)]
        return ir.GraphNode(
            id=f"n{number}",
            op=node.operator,
            primitive=primitive_of(node),
            path=path,
            inputs=tuple(map(names_of, node.inputs)),
            outputs=tuple(map(names_of, node.outputs)),
            attributes={name: attribute(value, self.table) for name, value in node.attributes},
            types={name: dtype_name(element) for name, element in node.types},
            annotations=tuple(item for name in made for item in self.marks.on(name)),
            layer=layer_of(path),
            stage=self._stage(made),
            source=self._place(origin),
        )

    def _place(self, origin: Origin | None) -> ir.SourcePlace | None:
        if origin is None or origin.span is None:
            return None
        name = origin.span.source.name
        return ir.SourcePlace(self.units.get(name, name), origin.span.line, origin.span.column)

    def _stage(self, made: Sequence[str]) -> int | None:
        found = [self.marks.argument(name, "partition", "stage") for name in made]
        return next((item for item in found if isinstance(item, int)), None)

    def _of_mode(self, mode: str) -> tuple[str, ...]:
        return tuple(name for name, found in self.modes.items() if found == mode)

    def _aliases(self) -> Iterator[ir.Alias]:
        for path, tensor in self.compiled.names:
            if path != self.paths.get(tensor.name):
                yield ir.Alias(path, tensor.name)

    def _hooks(self) -> Iterator[ir.Hook]:
        for mark, resolved in self.marks.all:
            if resolved.name == "hook":
                point, mode = (str(resolved.arguments.get(name, "")) for name in ("point", "mode"))
                name = mark.tensor.name
                maker = self.makers.get(name)
                node = maker[0] if maker is not None else None
                yield ir.Hook(point, mode, mark.path, name, node, layer_of(mark.path))


def operations(graph: Graph) -> tuple[Operation, ...]:
    """The nodes of a graph of this language, which has no control flow of its own."""
    return tuple(node for node in graph.nodes if isinstance(node, Operation))


def members(argument: Argument) -> tuple[Tensor, ...]:
    """The tensors of an operand or result."""
    if isinstance(argument, Tensor):
        return (argument,)
    return () if argument is None or isinstance(argument, Pack) else argument


def is_trainable(slot: TensorSlot, element: ElementType | None) -> bool:
    """Whether training changes a parameter: it is floating, and nothing freezes it."""
    return (element is None or element.is_float) and not is_frozen(slot.annotations)


def layer_of(path: str) -> int | None:
    """The number of the layer that a path leads into: the first index in it."""
    found = indices_in(path)
    return found[0] if found else None


def primitive_of(node: Operation) -> str:
    """The primitive that a node was written as, empty where the compiler added the node."""
    origin = node.origin
    text = origin.span.text if origin is not None and origin.span is not None else ""
    name = text.partition("(")[0].strip()
    return name if name.isidentifier() else ""


# --- values -----------------------------------------------------------------------------------------------------


def attribute(value: Value, table: SymbolTable) -> Json:
    """The value of an attribute as files have it: `{"symbol": id}` and `{"float": text}` where JSON has no word."""
    if isinstance(value, tuple):
        return tuple(attribute(item, table) for item in value)
    if isinstance(value, Dim):
        return {"symbol": table.extent(value)}
    if isinstance(value, Repeated):
        item, length = singles(value)
        return {"repeated": attribute(item, table), "length": attribute(length, table)}
    if isinstance(value, Test | Logic):
        return {"symbol": table.condition(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _quantization(found: Quantization | None, table: SymbolTable) -> dict[str, Json] | None:
    if found is None:
        return None
    return {
        "operator": found.operator,
        "attributes": {name: attribute(value, table) for name, value in found.attributes},
    }


# --- edges and casts --------------------------------------------------------------------------------------------


def make_edges(graph: Graph, table: SymbolTable) -> Iterator[ir.Edge]:
    """Every way of a tensor from where it is made to where it is read; the graph itself is the node null."""
    makers: dict[str, ir.Endpoint] = {}
    for number, argument in enumerate(graph.inputs):
        makers |= {item.name: ir.Endpoint(None, number) for item in members(argument)}
    for number, node in enumerate(operations(graph)):
        for slot, argument in enumerate(node.inputs):
            yield from _arriving(argument, ir.Endpoint(f"n{number}", slot), makers, table)
        for slot, argument in enumerate(node.outputs):
            makers |= {item.name: ir.Endpoint(f"n{number}", slot) for item in members(argument)}
    for slot, argument in enumerate(graph.outputs):
        yield from _arriving(argument, ir.Endpoint(None, slot), makers, table)


def _arriving(
    argument: Argument, dest: ir.Endpoint, makers: Mapping[str, ir.Endpoint], table: SymbolTable
) -> Iterator[ir.Edge]:
    for item in members(argument):
        if item.name in makers:
            shape = table.shape(item.shape)
            yield ir.Edge(item.name, makers[item.name], dest, dtype_name(item.element), shape)


def casts_of(graph: Graph) -> Iterator[ir.CastNode]:
    """The nodes that change the element type."""
    for number, node in enumerate(operations(graph)):
        if node.operator in CASTS:
            found, given = members(node.inputs[0])[0], members(node.outputs[0])[0]
            yield ir.CastNode(f"n{number}", dtype_name(found.element), dtype_name(given.element))
