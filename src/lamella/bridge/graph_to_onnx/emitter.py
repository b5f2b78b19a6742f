"""The nodes of an ONNX graph under construction: values, constants, names, sub-graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array, element_type_of, numpy_dtype
from lamella.base.dtype import BOOL, I64, INDEX, ElementType
from lamella.base.errors import Unsupported
from lamella.bridge.onnx.arrays import tensor_of
from lamella.bridge.onnx.nodes import (
    DATA_TYPES,
    Attribute,
    AttributeKind,
    AttributeValue,
    DataType,
    Graph,
    Node,
    Properties,
    TensorProto,
    TensorType,
    ValueInfo,
    subgraphs,
)
from lamella.graph.rewrite import FreshNames

Given: TypeAlias = (
    "int | float | str | bool | Sequence[int] | Sequence[float] | Sequence[str] | Graph | DataType"
)
"""What the attribute of a node may be given as."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of an ONNX graph: the result of a node or an input, or an array that is known before the run."""

    element: ElementType
    name: str = ""
    known: Array | None = field(default=None, repr=False)

    @property
    def single(self) -> int | None:
        """The one integer that it is known to be."""
        if self.known is None or self.known.size != 1 or self.known.dtype.kind not in "iub":
            return None
        return int(self.known.reshape(()))


def data_type(element: ElementType) -> DataType:
    """ONNX's number of an element type; Unsupported where it has none."""
    found = DATA_TYPES.get(DATA_ELEMENTS.get(element, element))
    if found is None:
        raise Unsupported(f"ONNX has no element type for {element}")
    return found


DATA_ELEMENTS = {INDEX: I64}
"""Element types that are written as another one."""


REPEATED = frozenset(("Shape", "Squeeze", "Unsqueeze", "Range"))
OF_EXTENTS = frozenset(
    ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Concat", "Not", "And", "Or", "Equal")
) | frozenset(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"))
"""Nodes that are made once for equal inputs: those of shapes and, of integers and truth values, arithmetic."""


@dataclass(slots=True)
class Shared:
    """What a graph and its sub-graphs have in common: names, constants, renamed values."""

    names: FreshNames = field(default_factory=FreshNames)
    constants: dict[object, TensorProto] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    """Names that values get once it is known which tensors they are."""
    given: set[str] = field(default_factory=set)
    """The names of tensors that values have got."""


class Emitter:
    """One graph or sub-graph under construction; constants stand in the outermost graph."""

    def __init__(self, parent: Emitter | None = None) -> None:
        self.shared: Shared = Shared() if parent is None else parent.shared
        self._parent = parent
        self.nodes: list[Node] = []
        self.stem = ""
        """What the values that are made from now on are called after."""
        self.about: Properties = ()
        """What is to be said of the nodes that are made from now on."""
        self._own: set[str] = set()
        self._made: dict[str, tuple[str, tuple[Value | None, ...]]] = {}
        self._repeated: dict[object, Value] = {}

    def inner(self) -> Emitter:
        """A sub-graph under construction; it sees the values of this one."""
        found = Emitter(self)
        found.stem, found.about = self.stem, self.about
        return found

    # --- values -----------------------------------------------------------------------------------------------

    def constant(self, array: Array) -> Value:
        """A value known before the run; it gets a name once a node reads it."""
        element = element_type_of(array.dtype)
        if element is None:
            raise Unsupported(f"arrays of {array.dtype} have no element type")
        return Value(element, known=array)

    def integers(self, *items: int) -> Value:
        """A vector of 64-bit integers."""
        return self.constant(np.asarray(items, np.int64))

    def number(self, value: float | Array, element: ElementType) -> Value:
        """A single number of a type."""
        return self.constant(np.asarray(value).astype(numpy_dtype(element)))

    def name_of(self, value: Value | None) -> str:
        """The name by which a node reads a value; that of none is empty."""
        if value is None:
            return ""
        return value.name or self._store(value)

    def _store(self, value: Value) -> str:
        array = value.known
        if array is None:
            raise Unsupported("a value has neither a name nor numbers")
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        found = self.shared.constants.get(key)
        if found is None:
            name = self.shared.names.take(_constant_name(array))
            found = self.shared.constants[key] = tensor_of(name, np.asarray(array, order="C"))
        return found.name

    # --- nodes ------------------------------------------------------------------------------------------------

    def add(
        self, op_type: str, inputs: Sequence[Value | None], element: ElementType, **attributes: Given
    ) -> Value:
        """The one result of a new node, or of an earlier one that it would undo."""
        known = self._undone(op_type, inputs) if op_type in ("Squeeze", "Unsqueeze") else None
        if known is not None:
            return known
        key = (op_type, tuple(map(self.name_of, inputs)), tuple(attributes.items()))
        if op_type in REPEATED or (element in (BOOL, I64) and op_type in OF_EXTENTS):
            earlier = self._earlier(key)
            if earlier is not None:
                return earlier
        (found,) = self.add_all(op_type, inputs, (element,), **attributes)
        if op_type in REPEATED or op_type in OF_EXTENTS:
            self._repeated[key] = found
        return found

    def _earlier(self, key: object) -> Value | None:
        """The result of an equal node that this graph sees."""
        scope: Emitter | None = self
        while scope is not None:
            if key in scope._repeated:
                return scope._repeated[key]
            scope = scope._parent
        return None

    def maker(self, value: Value) -> tuple[str, tuple[Value | None, ...]]:
        """The type and the inputs of the node of this graph that makes a value; nothing where none does."""
        return self._made.get(value.name, ("", ()))

    def _undone(self, op_type: str, inputs: Sequence[Value | None]) -> Value | None:
        """What dimensions of extent 1 were taken from or put to, where the next node would do the opposite."""
        given, axes = inputs[0], inputs[1] if len(inputs) > 1 else None
        before = None if given is None else self._made.get(given.name)
        if before is None or axes is None or axes.known is None or given is None or len(before[1]) < 2:
            return None
        earlier = before[1][1]
        if earlier is None or earlier.known is None:
            return None
        same = axes.known.tolist() == earlier.known.tolist() and all(
            item >= 0 for item in axes.known.tolist()
        )
        if {op_type, before[0]} == {"Squeeze", "Unsqueeze"} and same:
            return before[1][0]
        return None

    def add_all(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        elements: Sequence[ElementType],
        **attributes: Given,
    ) -> tuple[Value, ...]:
        """The results of a new node."""
        names = [self.name_of(item) for item in inputs]
        while names and not names[-1]:
            names.pop()
        taken = self.shared.names.take
        outputs = [Value(element, taken(f"{self.stem}/{op_type}")) for element in elements]
        self._own.update(item.name for item in outputs)
        given = tuple(_attribute(name, item) for name, item in attributes.items())
        results = tuple(item.name for item in outputs)
        self._made[results[0]] = op_type, tuple(inputs)
        self.nodes.append(Node(op_type, tuple(names), results, given, name=results[0], metadata=self.about))
        return tuple(outputs)

    def settle(self, value: Value, name: str) -> Value:
        """A value under the name of a tensor: its own from now on where it has none yet, else a copy."""
        # A condition that is tested before a loop and in its body makes its tensors twice.
        name = self.shared.names.take(name) if name in self.shared.given else name
        self.shared.given.add(name)
        if value.name in self._own and value.name not in self.shared.renamed:
            self.shared.renamed[value.name] = name
            return value
        copy = self.add("Identity", (value,), value.element)
        self.shared.renamed[copy.name] = name
        return copy

    def results(self, values: Sequence[Value]) -> list[Value]:
        """Values as results of this graph, each another one: copies of those that stand outside, or twice."""
        found: list[Value] = []
        for value in values:
            is_new = value.name in self._own and all(value.name != item.name for item in found)
            found.append(value if is_new else self.add("Identity", (value,), value.element))
        return found

    def graph(self, name: str, inputs: Sequence[ValueInfo], outputs: Sequence[ValueInfo]) -> Graph:
        """The nodes that something depends on, as a sub-graph."""
        nodes = used_nodes(self.nodes, [item.name for item in outputs])
        return Graph(name, tuple(nodes), tuple(inputs), tuple(outputs))


def used_nodes(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """The nodes that something depends on."""
    wanted = set(outputs)
    kept: list[Node] = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted.update(names_read((node,)))
    return kept[::-1]


def names_read(nodes: Iterable[Node]) -> Iterator[str]:
    """The names that nodes read, those of their sub-graphs included."""
    for node in nodes:
        yield from node.inputs
        for _, graph in subgraphs(node):
            yield from names_read(graph.nodes)
            yield from (item.name for item in graph.outputs)


def _constant_name(array: Array) -> str:
    if array.size == 1 and array.dtype.kind in "iub" and array.ndim < 2:
        return f"constant/{int(array.reshape(()))}{'' if array.ndim == 0 else ':1'}"
    return "constant"


def _attribute(name: str, given: Given) -> Attribute:
    """An attribute of a node, its kind by what is given."""
    kind, value = _kind_of(given)
    return Attribute(name, kind, value)


def _kind_of(given: Given) -> tuple[AttributeKind, AttributeValue]:
    if isinstance(given, Graph):
        return AttributeKind.GRAPH, given
    if isinstance(given, str):
        return AttributeKind.STRING, given.encode()
    if isinstance(given, int):
        return AttributeKind.INT, int(given)
    if isinstance(given, float):
        return AttributeKind.FLOAT, given
    words = tuple(item.encode() for item in given if isinstance(item, str))
    items = tuple(item for item in given if not isinstance(item, str))
    if words:
        return AttributeKind.STRINGS, words
    if any(isinstance(item, float) for item in items):
        return AttributeKind.FLOATS, tuple(float(item) for item in items)
    return AttributeKind.INTS, tuple(int(item) for item in items)


def value_info(value: Value, name: str = "", shape: Sequence[int | str | None] | None = None) -> ValueInfo:
    """What a graph says of one of its inputs or outputs."""
    found = None if shape is None else tuple(shape)
    return ValueInfo(name or value.name, TensorType(data_type(value.element), found))


def rename_values(graph: Graph, names: Mapping[str, str]) -> Graph:
    """A graph whose values have their final names, in sub-graphs too."""

    def of(name: str) -> str:
        return names.get(name, name)

    def attribute(item: Attribute) -> Attribute:
        return (
            replace(item, value=rename_values(item.value, names)) if isinstance(item.value, Graph) else item
        )

    def node(item: Node) -> Node:
        return replace(
            item,
            inputs=tuple(map(of, item.inputs)),
            outputs=tuple(map(of, item.outputs)),
            name=of(item.name),
            attributes=tuple(map(attribute, item.attributes)),
        )

    def info(item: ValueInfo) -> ValueInfo:
        return replace(item, name=of(item.name))

    return replace(
        graph,
        nodes=tuple(map(node, graph.nodes)),
        inputs=tuple(map(info, graph.inputs)),
        outputs=tuple(map(info, graph.outputs)),
        values=tuple(map(info, graph.values)),
    )
