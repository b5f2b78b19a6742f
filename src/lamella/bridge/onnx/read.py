"""The reader of ONNX files: bytes to nodes, without trust; numbers of tensors stay views of the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar, cast

from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits, hint_for
from lamella.base.paths import map_bytes, shown
from lamella.bridge.onnx.nodes import (
    Attribute,
    AttributeKind,
    AttributeValue,
    Dimension,
    Function,
    Graph,
    Model,
    Node,
    OpsetImport,
    OtherType,
    Properties,
    QuantAnnotation,
    SparseTensor,
    TensorProto,
    TensorType,
    TypedBlock,
    ValueInfo,
    ValueType,
)
from lamella.bridge.onnx.wire import (
    BYTES,
    Field,
    bytes_of,
    float_of,
    floats_of,
    integer_of,
    integers_of,
    must_be,
    read_fields,
    text_of,
)

DEEPEST = 40
"""Graphs in graphs, or types in types; each level takes several frames of Python's stack."""
MOST_AXES = 1000
"""Extents of one tensor that are read at all."""
_Part = TypeVar("_Part")
_OTHER_TYPES = {4: "sequence", 5: "map", 7: "opaque", 8: "sparse_tensor", 9: "optional"}
_DATA_FIELDS = (4, 5, 6, 7, 10, 11)
_RAW, _STRINGS = 9, 6


def read_model(path: Path, limits: Limits = DEFAULT) -> Model:
    """The model of a file; large files are mapped and not read."""
    try:
        return decode_model(map_bytes(path, limits).data, limits)
    except InputError as problem:
        raise problem.within(shown(path)) if problem.offset is not None else problem from None


def decode_model(data: bytes | memoryview, limits: Limits = DEFAULT) -> Model:
    """The model that bytes are; InputError says at which of them they are none."""
    return _Decoder(memoryview(data).toreadonly().cast("B"), limits).model()


def decode_tensor(data: bytes | memoryview, limits: Limits = DEFAULT) -> TensorProto:
    """The tensor that the bytes of a `.pb` file are."""
    view = memoryview(data).toreadonly().cast("B")
    return _Decoder(view, limits).tensor(0, len(view))


class _Decoder:
    """The messages of one file; offsets are those of the file."""

    def __init__(self, data: memoryview, limits: Limits) -> None:
        self._data = data
        self._limits = limits
        self._depth = 0
        self._nodes = 0

    # --- fields ---------------------------------------------------------------------------------------------

    def _fields(self, start: int, end: int) -> Iterator[Field]:
        return read_fields(self._data, start, end)

    def _text(self, field: Field, what: str) -> str:
        return text_of(self._data, field, what)

    def _part(self, read: Callable[[int, int], _Part], field: Field, what: str) -> _Part:
        must_be(field, BYTES, what)
        return read(field.start, field.end)

    def _deeper(self, read: Callable[[int, int], _Part], field: Field, what: str) -> _Part:
        """A part that may hold others of its kind."""
        if self._depth >= DEEPEST:
            raise InputError(f"{what} lies deeper than {DEEPEST} others", field.start)
        self._depth += 1
        try:
            return self._part(read, field, what)
        finally:
            self._depth -= 1

    def _property(self, start: int, end: int) -> tuple[str, str]:
        key = value = ""
        for field in self._fields(start, end):
            if field.number == 1:
                key = self._text(field, "a key")
            elif field.number == 2:
                value = self._text(field, "the text of a key")
        return key, value

    # --- model and functions --------------------------------------------------------------------------------

    def model(self) -> Model:
        """The whole file."""
        texts: dict[int, str] = {}
        numbers: dict[int, int] = {}
        opsets: list[OpsetImport] = []
        metadata: list[tuple[str, str]] = []
        functions: list[Function] = []
        graph: Graph | None = None
        training = False
        for field in self._fields(0, len(self._data)):
            number = field.number
            if number in (2, 3, 4, 6):
                texts[number] = self._text(field, "a text of the model")
            elif number in (1, 5):
                numbers[number] = integer_of(field, "a version")
            elif number == 7:
                if graph is not None:
                    raise InputError("the model has two graphs", field.start)
                graph = self._deeper(self.graph, field, "the graph")
            elif number == 8:
                opsets.append(self._part(self._opset, field, "an opset import"))
            elif number == 14:
                metadata.append(self._part(self._property, field, "a property"))
            elif number == 25:
                functions.append(self._deeper(self._function, field, "a function"))
            training = training or number == 20
        if graph is None:
            raise InputError("this is no ONNX model: it has no graph", 0)
        return Model(
            graph,
            numbers.get(1, 0),
            tuple(opsets),
            tuple(functions),
            texts.get(2, ""),
            texts.get(3, ""),
            texts.get(4, ""),
            numbers.get(5, 0),
            texts.get(6, ""),
            tuple(metadata),
            training,
        )

    def _opset(self, start: int, end: int) -> OpsetImport:
        domain, version = "", 0
        for field in self._fields(start, end):
            if field.number == 1:
                domain = self._text(field, "a domain")
            elif field.number == 2:
                version = integer_of(field, "the version of a domain")
        return OpsetImport(domain, version)

    def _function(self, start: int, end: int) -> Function:
        texts: dict[int, str] = {}
        names: dict[int, list[str]] = {4: [], 5: [], 6: []}
        nodes: list[Node] = []
        opsets: list[OpsetImport] = []
        defaults: list[Attribute] = []
        values: list[ValueInfo] = []
        metadata: list[tuple[str, str]] = []
        for field in self._fields(start, end):
            number = field.number
            if number in (1, 8, 10, 13):
                texts[number] = self._text(field, "a text of a function")
            elif number in names:
                names[number].append(self._text(field, "a name in a function"))
            elif number == 7:
                nodes.append(self._part(self._node, field, "a node"))
            elif number == 9:
                opsets.append(self._part(self._opset, field, "an opset import"))
            elif number == 11:
                defaults.append(self._part(self._attribute, field, "an attribute"))
            elif number == 12:
                values.append(self._part(self._value, field, "a value"))
            elif number == 14:
                metadata.append(self._part(self._property, field, "a property"))
        return Function(
            texts.get(1, ""),
            texts.get(10, ""),
            tuple(names[4]),
            tuple(names[5]),
            tuple(names[6]),
            tuple(defaults),
            tuple(nodes),
            tuple(opsets),
            tuple(values),
            texts.get(13, ""),
            texts.get(8, ""),
            tuple(metadata),
        )

    # --- graphs ---------------------------------------------------------------------------------------------

    def graph(self, start: int, end: int) -> Graph:
        """A graph between two offsets."""
        name = doc = ""
        nodes: list[Node] = []
        initializers: list[TensorProto] = []
        sparse: list[SparseTensor] = []
        ports: dict[int, list[ValueInfo]] = {11: [], 12: [], 13: []}
        quantization: list[QuantAnnotation] = []
        metadata: list[tuple[str, str]] = []
        for field in self._fields(start, end):
            number = field.number
            if number == 1:
                nodes.append(self._part(self._node, field, "a node"))
            elif number == 5:
                initializers.append(self._part(self.tensor, field, "an initializer"))
            elif number in ports:
                ports[number].append(self._part(self._value, field, "a value"))
            elif number == 2:
                name = self._text(field, "the name of a graph")
            elif number == 10:
                doc = self._text(field, "the text of a graph")
            elif number == 14:
                quantization.append(self._part(self._annotation, field, "a quantisation"))
            elif number == 15:
                sparse.append(self._part(self._sparse, field, "a sparse initializer"))
            elif number == 16:
                metadata.append(self._part(self._property, field, "a property"))
        return Graph(
            name,
            tuple(nodes),
            tuple(ports[11]),
            tuple(ports[12]),
            tuple(initializers),
            tuple(sparse),
            tuple(ports[13]),
            tuple(quantization),
            doc,
            tuple(metadata),
        )

    def _node(self, start: int, end: int) -> Node:
        self._nodes += 1
        excess = self._limits.excess("max_operations", self._nodes, "the number of nodes")
        if excess:
            raise InputError(excess, start, hint=hint_for("max_operations"))
        texts: dict[int, str] = {}
        inputs: list[str] = []
        outputs: list[str] = []
        attributes: list[Attribute] = []
        metadata: list[tuple[str, str]] = []
        for field in self._fields(start, end):
            number = field.number
            if number == 1:
                inputs.append(self._text(field, "the name of an input"))
            elif number == 2:
                outputs.append(self._text(field, "the name of an output"))
            elif number == 5:
                attributes.append(self._part(self._attribute, field, "an attribute"))
            elif number in (3, 4, 6, 7, 8):
                texts[number] = self._text(field, "a text of a node")
            elif number == 9:
                metadata.append(self._part(self._property, field, "a property"))
        return Node(
            texts.get(4, ""),
            tuple(inputs),
            tuple(outputs),
            tuple(attributes),
            texts.get(7, ""),
            texts.get(3, ""),
            texts.get(8, ""),
            texts.get(6, ""),
            tuple(metadata),
        )

    def _annotation(self, start: int, end: int) -> QuantAnnotation:
        name = ""
        parameters: list[tuple[str, str]] = []
        for field in self._fields(start, end):
            if field.number == 1:
                name = self._text(field, "the name of a tensor")
            elif field.number == 2:
                parameters.append(self._part(self._property, field, "a parameter of a quantisation"))
        return QuantAnnotation(name, tuple(parameters))

    # --- attributes -----------------------------------------------------------------------------------------

    def _attribute(self, start: int, end: int) -> Attribute:
        texts: dict[int, str] = {}
        kind = AttributeKind.UNDEFINED
        given: dict[int, list[AttributeValue]] = {}
        for field in self._fields(start, end):
            number = field.number
            if number in (1, 13, 21):
                texts[number] = self._text(field, "a text of an attribute")
            elif number == 20:
                kind = self._kind(field)
            elif number in _FIELDS:
                given.setdefault(number, []).extend(self._items(field))
        reference = texts.get(21, "")
        kind = kind or _implied(given)
        number = _NUMBERS.get(kind, 0)
        items = tuple(given.get(number, ()))
        value: AttributeValue
        if kind in _REPEATED:
            value = cast("AttributeValue", items)  # all of one kind, by their field
        else:
            # Writers leave out what is zero or empty.
            value = items[-1] if items else None if reference else _ABSENT.get(kind)
        return Attribute(texts.get(1, ""), kind, value, reference, texts.get(13, ""))

    def _kind(self, field: Field) -> AttributeKind:
        number = integer_of(field, "the type of an attribute")
        try:
            return AttributeKind(number)
        except ValueError:
            raise InputError(f"{number} is no type of an attribute", field.start) from None

    def _items(self, field: Field) -> list[AttributeValue]:
        """The values of one occurrence of a field."""
        kind, what = _FIELDS[field.number], "the value of an attribute"
        if kind is AttributeKind.INT:
            return [integer_of(field, what)]
        if kind is AttributeKind.FLOAT:
            return [float_of(self._data, field, what)]
        if kind is AttributeKind.INTS:
            return list(integers_of(self._data, field, what))
        if kind is AttributeKind.FLOATS:
            return list(floats_of(self._data, field, what))
        if kind in (AttributeKind.STRING, AttributeKind.STRINGS):
            return [bytes(bytes_of(self._data, field, what))]
        if kind in (AttributeKind.TENSOR, AttributeKind.TENSORS):
            return [self._part(self.tensor, field, "a tensor")]
        if kind in (AttributeKind.SPARSE_TENSOR, AttributeKind.SPARSE_TENSORS):
            return [self._part(self._sparse, field, "a sparse tensor")]
        if kind in (AttributeKind.TYPE_PROTO, AttributeKind.TYPE_PROTOS):
            return [self._deeper(self._type, field, "a type")]
        return [self._deeper(self.graph, field, "a graph")]

    # --- tensors and types ----------------------------------------------------------------------------------

    def tensor(self, start: int, end: int) -> TensorProto:
        """A tensor between two offsets; its numbers are left where they are."""
        name = doc = ""
        data_type = location = 0
        dims: list[int] = []
        raw: memoryview | None = None
        typed: list[TypedBlock] = []
        external: list[tuple[str, str]] = []
        metadata: list[tuple[str, str]] = []
        segment = False
        for field in self._fields(start, end):
            number = field.number
            if number == 1:
                self._extend_dims(dims, field)
            elif number == 2:
                data_type = integer_of(field, "the type of a tensor")
            elif number == _RAW:
                raw = bytes_of(self._data, field, "the numbers of a tensor")
            elif number in _DATA_FIELDS:
                typed.append(self._block(field))
            elif number == 8:
                name = self._text(field, "the name of a tensor")
            elif number == 12:
                doc = self._text(field, "the text of a tensor")
            elif number == 13:
                external.append(self._part(self._property, field, "a property of external data"))
            elif number == 14:
                location = integer_of(field, "where the numbers of a tensor are")
            elif number == 16:
                metadata.append(self._part(self._property, field, "a property"))
            segment = segment or number == 3
        return TensorProto(
            name,
            data_type,
            tuple(dims),
            raw,
            tuple(typed),
            tuple(external),
            location == 1,
            doc,
            tuple(metadata),
            segment,
        )

    def _extend_dims(self, dims: list[int], field: Field) -> None:
        dims += integers_of(self._data, field, "an extent")
        if len(dims) > MOST_AXES:
            raise InputError(f"a tensor has more than {MOST_AXES} extents", field.start)

    def _block(self, field: Field) -> TypedBlock:
        single = field.wire != BYTES
        return TypedBlock(field.number, self._data[field.start : field.end], single, field.start)

    def _sparse(self, start: int, end: int) -> SparseTensor:
        values = indices = TensorProto()
        dims: list[int] = []
        for field in self._fields(start, end):
            if field.number == 1:
                values = self._part(self.tensor, field, "the values of a sparse tensor")
            elif field.number == 2:
                indices = self._part(self.tensor, field, "the places of a sparse tensor")
            elif field.number == 3:
                self._extend_dims(dims, field)
        return SparseTensor(values, indices, tuple(dims))

    def _value(self, start: int, end: int) -> ValueInfo:
        name = doc = ""
        found: ValueType | None = None
        metadata: list[tuple[str, str]] = []
        for field in self._fields(start, end):
            if field.number == 1:
                name = self._text(field, "the name of a value")
            elif field.number == 2:
                found = self._deeper(self._type, field, "a type")
            elif field.number == 3:
                doc = self._text(field, "the text of a value")
            elif field.number == 4:
                metadata.append(self._part(self._property, field, "a property"))
        return ValueInfo(name, found, doc, tuple(metadata))

    def _type(self, start: int, end: int) -> ValueType | None:
        found: ValueType | None = None
        for field in self._fields(start, end):
            if field.number == 1:
                found = self._part(self._tensor_type, field, "the type of a tensor")
            elif field.number in _OTHER_TYPES:
                kind = _OTHER_TYPES[field.number]
                if kind in ("sequence", "optional"):
                    inner = self._part(self._inner_type, field, "the type of items")
                    found = OtherType(kind, inner)
                else:
                    found = OtherType(kind)
        return found

    def _inner_type(self, start: int, end: int) -> ValueType | None:
        found: ValueType | None = None
        for field in self._fields(start, end):
            if field.number == 1:
                found = self._deeper(self._type, field, "a type")
        return found

    def _tensor_type(self, start: int, end: int) -> TensorType:
        element = 0
        shape: tuple[Dimension, ...] | None = None
        for field in self._fields(start, end):
            if field.number == 1:
                element = integer_of(field, "an element type")
            elif field.number == 2:
                shape = self._part(self._shape, field, "a shape")
        return TensorType(element, shape)

    def _shape(self, start: int, end: int) -> tuple[Dimension, ...]:
        found: list[Dimension] = []
        for field in self._fields(start, end):
            if field.number == 1:
                found.append(self._part(self._dimension, field, "an extent"))
                if len(found) > MOST_AXES:
                    raise InputError(f"a shape has more than {MOST_AXES} extents", field.start)
        return tuple(found)

    def _dimension(self, start: int, end: int) -> Dimension:
        found: Dimension = None
        for field in self._fields(start, end):
            if field.number == 1:
                found = integer_of(field, "an extent")
            elif field.number == 2:
                found = self._text(field, "the name of an extent") or None
        return found


_FIELDS = {
    2: AttributeKind.FLOAT,
    3: AttributeKind.INT,
    4: AttributeKind.STRING,
    5: AttributeKind.TENSOR,
    6: AttributeKind.GRAPH,
    7: AttributeKind.FLOATS,
    8: AttributeKind.INTS,
    9: AttributeKind.STRINGS,
    10: AttributeKind.TENSORS,
    11: AttributeKind.GRAPHS,
    14: AttributeKind.TYPE_PROTO,
    15: AttributeKind.TYPE_PROTOS,
    22: AttributeKind.SPARSE_TENSOR,
    23: AttributeKind.SPARSE_TENSORS,
}
"""The kind of attribute that the number of a field says."""
_NUMBERS = {kind: number for number, kind in _FIELDS.items()}
_REPEATED = frozenset(
    (
        AttributeKind.FLOATS,
        AttributeKind.INTS,
        AttributeKind.STRINGS,
        AttributeKind.TENSORS,
        AttributeKind.GRAPHS,
        AttributeKind.TYPE_PROTOS,
        AttributeKind.SPARSE_TENSORS,
    )
)
_ABSENT: dict[int, AttributeValue] = {
    AttributeKind.FLOAT: 0.0,
    AttributeKind.INT: 0,
    AttributeKind.STRING: b"",
}


def _implied(given: dict[int, list[AttributeValue]]) -> AttributeKind:
    """The kind of an attribute that does not say it, as files of the first version do not."""
    found = [_FIELDS[number] for number in given]
    return found[0] if len(found) == 1 else AttributeKind.UNDEFINED


def properties_of(pairs: Properties) -> dict[str, str]:
    """Properties by key, the first of each."""
    found: dict[str, str] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found
