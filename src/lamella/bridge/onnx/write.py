"""The writer of ONNX files: nodes to bytes, deterministic, without joining the numbers of large tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from lamella.bridge.onnx.nodes import (
    Attribute,
    AttributeKind,
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
from lamella.bridge.onnx.wire import FIXED32, FIXED64, VARINT, Buffer, Message, varint

_Part = TypeVar("_Part")
_OTHER_TYPES = {"sequence": 4, "map": 5, "opaque": 7, "sparse_tensor": 8, "optional": 9}
_SINGLE_WIRE = {4: FIXED32, 10: FIXED64}
_EXTERNAL = 1


def encode_model(model: Model) -> bytes:
    """The bytes of a model in one piece."""
    return model_message(model).to_bytes()


def model_parts(model: Model) -> Iterable[Buffer]:
    """The bytes of a model piece by piece; numbers of tensors are the pieces that the model holds."""
    return model_message(model).parts()


def model_message(model: Model) -> Message:
    """A model as a message."""
    found = Message()
    found.integer(1, model.ir_version)
    found.optional_text(2, model.producer)
    found.optional_text(3, model.producer_version)
    found.optional_text(4, model.domain)
    if model.model_version:
        found.integer(5, model.model_version)
    found.optional_text(6, model.doc)
    found.message(7, graph_message(model.graph))
    _each(found, 8, model.opsets, _opset)
    _properties(found, 14, model.metadata)
    _each(found, 25, model.functions, _function)
    return found


def _each(message: Message, number: int, items: Iterable[_Part], write: Callable[[_Part], Message]) -> None:
    for item in items:
        message.message(number, write(item))


def _properties(message: Message, number: int, items: Properties) -> None:
    for key, value in items:
        entry = Message()
        entry.text(1, key)
        entry.text(2, value)
        message.message(number, entry)


def _opset(item: OpsetImport) -> Message:
    found = Message()
    found.optional_text(1, item.domain)
    found.integer(2, item.version)
    return found


def _function(item: Function) -> Message:
    found = Message()
    found.text(1, item.name)
    for number, names in ((4, item.inputs), (5, item.outputs), (6, item.attributes)):
        for name in names:
            found.text(number, name)
    _each(found, 7, item.nodes, node_message)
    found.optional_text(8, item.doc)
    _each(found, 9, item.opsets, _opset)
    found.optional_text(10, item.domain)
    _each(found, 11, item.defaults, _attribute)
    _each(found, 12, item.values, _value)
    found.optional_text(13, item.overload)
    _properties(found, 14, item.metadata)
    return found


def graph_message(graph: Graph) -> Message:
    """A graph as a message."""
    found = Message()
    _each(found, 1, graph.nodes, node_message)
    found.text(2, graph.name)
    _each(found, 5, graph.initializers, tensor_message)
    found.optional_text(10, graph.doc)
    for number, values in ((11, graph.inputs), (12, graph.outputs), (13, graph.values)):
        _each(found, number, values, _value)
    _each(found, 14, graph.quantization, _annotation)
    _each(found, 15, graph.sparse_initializers, _sparse)
    _properties(found, 16, graph.metadata)
    return found


def _annotation(item: QuantAnnotation) -> Message:
    found = Message()
    found.text(1, item.tensor)
    _properties(found, 2, item.parameters)
    return found


def node_message(node: Node) -> Message:
    """A node as a message."""
    found = Message()
    for number, names in ((1, node.inputs), (2, node.outputs)):
        for name in names:
            found.text(number, name)
    found.optional_text(3, node.name)
    found.text(4, node.op_type)
    _each(found, 5, node.attributes, _attribute)
    found.optional_text(6, node.doc)
    found.optional_text(7, node.domain)
    found.optional_text(8, node.overload)
    _properties(found, 9, node.metadata)
    return found


# --- attributes ---------------------------------------------------------------------------------------------------


def _attribute(item: Attribute) -> Message:
    found = Message()
    found.text(1, item.name)
    if not item.reference and item.kind in _VALUES:
        _VALUES[AttributeKind(item.kind)](found, item.value)
    found.optional_text(13, item.doc)
    found.integer(20, item.kind)
    found.optional_text(21, item.reference)
    return found


def _one(number: int, write: Callable[[_Part], Message]) -> Callable[[Message, object], None]:
    return lambda message, value: message.message(number, write(cast("_Part", value)))


def _many(number: int, write: Callable[[_Part], Message]) -> Callable[[Message, object], None]:
    return lambda message, value: _each(message, number, cast("Iterable[_Part]", value), write)


def _strings(message: Message, value: object) -> None:
    for item in cast("Iterable[bytes]", value):
        message.block(9, item)


def _value(item: ValueInfo) -> Message:
    found = Message()
    found.text(1, item.name)
    if item.type is not None:
        found.message(2, _type(item.type))
    found.optional_text(3, item.doc)
    _properties(found, 4, item.metadata)
    return found


# --- tensors and types --------------------------------------------------------------------------------------------


def tensor_message(tensor: TensorProto) -> Message:
    """A tensor as a message."""
    found = Message()
    found.integers(1, tensor.dims)
    found.integer(2, tensor.data_type)
    for block in tensor.typed:
        _block(found, block)
    found.optional_text(8, tensor.name)
    if tensor.raw is not None:
        found.block(9, tensor.raw)
    found.optional_text(12, tensor.doc)
    _properties(found, 13, tensor.external)
    if tensor.is_external:
        found.integer(14, _EXTERNAL)
    _properties(found, 16, tensor.metadata)
    return found


def _block(message: Message, block: TypedBlock) -> None:
    if not block.is_single:
        message.block(block.number, block.data)
        return
    wire = _SINGLE_WIRE.get(block.number, VARINT)
    message.raw(varint(block.number << 3 | wire) + bytes(block.data))


def _sparse(item: SparseTensor) -> Message:
    found = Message()
    found.message(1, tensor_message(item.values))
    found.message(2, tensor_message(item.indices))
    found.integers(3, item.dims)
    return found


def _type(item: ValueType) -> Message:
    found = Message()
    if isinstance(item, OtherType):
        inner = Message()
        if item.inner is not None:
            inner.message(1, _type(item.inner))
        found.message(_OTHER_TYPES[item.kind], inner)
        return found
    found.message(1, _tensor_type(item))
    return found


def _tensor_type(item: TensorType) -> Message:
    found = Message()
    found.integer(1, item.data_type)
    if item.shape is not None:
        shape = Message()
        _each(shape, 1, item.shape, _dimension)
        found.message(2, shape)
    return found


def _dimension(item: Dimension) -> Message:
    found = Message()
    if isinstance(item, int):
        found.integer(1, item)
    elif item is not None:
        found.text(2, item)
    return found


_VALUES: dict[AttributeKind, Callable[[Message, object], None]] = {
    AttributeKind.FLOAT: lambda message, value: message.single(2, cast("float", value)),
    AttributeKind.INT: lambda message, value: message.integer(3, cast("int", value)),
    AttributeKind.STRING: lambda message, value: message.block(4, cast("bytes", value)),
    AttributeKind.TENSOR: _one(5, tensor_message),
    AttributeKind.GRAPH: _one(6, graph_message),
    AttributeKind.FLOATS: lambda message, value: message.singles(7, cast("Iterable[float]", value)),
    AttributeKind.INTS: lambda message, value: message.integers(8, cast("Iterable[int]", value)),
    AttributeKind.STRINGS: _strings,
    AttributeKind.TENSORS: _many(10, tensor_message),
    AttributeKind.GRAPHS: _many(11, graph_message),
    AttributeKind.TYPE_PROTO: _one(14, _type),
    AttributeKind.TYPE_PROTOS: _many(15, _type),
    AttributeKind.SPARSE_TENSOR: _one(22, _sparse),
    AttributeKind.SPARSE_TENSORS: _many(23, _sparse),
}
"""How the value of each kind of attribute is written."""

__all__ = ["encode_model", "graph_message", "model_message", "model_parts", "node_message", "tensor_message"]
