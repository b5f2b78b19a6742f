"""The nodes of an ONNX model, in ONNX's words: model, graph, node, attribute, tensor, type, function.

Numbers of tensors stay where they lie in the file (`TensorProto.raw`, `.typed`, `.external`); `arrays.py` makes arrays
of them when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import TypeAlias

from lamella.base import dtype as types
from lamella.base.dtype import ElementType

Buffer: TypeAlias = bytes | memoryview
Properties: TypeAlias = tuple[tuple[str, str], ...]
"""Keys and texts in the order of the file."""
STATE = "lamella.state."
"""Keys of the metadata of a model that pair states (inputs with initializers) with the outputs that follow them."""
EXTENT = "lamella.extent."
"""Keys of the metadata of a model that say between which numbers a named dimension stays: `1 64`."""
MAIN_DOMAIN = ""
"""The domain of ONNX's own operators; files also call it `ai.onnx`."""


class DataType(IntEnum):
    """The element types of ONNX, by their numbers in the file."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26


ELEMENTS: Mapping[int, ElementType] = MappingProxyType(
    {
        DataType.FLOAT: types.F32,
        DataType.UINT8: types.U8,
        DataType.INT8: types.I8,
        DataType.UINT16: types.U16,
        DataType.INT16: types.I16,
        DataType.INT32: types.I32,
        DataType.INT64: types.I64,
        DataType.BOOL: types.BOOL,
        DataType.FLOAT16: types.F16,
        DataType.DOUBLE: types.F64,
        DataType.UINT32: types.U32,
        DataType.UINT64: types.U64,
        DataType.COMPLEX64: types.C32,
        DataType.COMPLEX128: types.C64,
        DataType.BFLOAT16: types.BF16,
        DataType.FLOAT8E4M3FN: types.F8E4M3,
        DataType.FLOAT8E4M3FNUZ: types.F8E4M3FNUZ,
        DataType.FLOAT8E5M2: types.F8E5M2,
        DataType.FLOAT8E5M2FNUZ: types.F8E5M2FNUZ,
        DataType.UINT4: types.U4,
        DataType.INT4: types.I4,
        DataType.FLOAT4E2M1: types.F4E2M1,
        DataType.UINT2: types.U2,
        DataType.INT2: types.I2,
    }
)
"""Our element types by ONNX's numbers; the others cannot be computed with here."""
DATA_TYPES: Mapping[ElementType, DataType] = MappingProxyType(
    {element: DataType(number) for number, element in ELEMENTS.items()}
)
"""ONNX's numbers by our element types."""


class AttributeKind(IntEnum):
    """What an attribute holds, by the numbers in the file."""

    UNDEFINED = 0
    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9
    GRAPHS = 10
    SPARSE_TENSOR = 11
    SPARSE_TENSORS = 12
    TYPE_PROTO = 13
    TYPE_PROTOS = 14


@dataclass(frozen=True, slots=True)
class TypedBlock:
    """Numbers of a tensor that do not stand in raw bytes: one occurrence of a field such as `float_data`.

    `is_single` says that it is one number and not a block of them.
    """

    number: int
    data: Buffer
    is_single: bool = False
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TensorProto:
    """A tensor with its numbers: in raw bytes, in typed fields, as strings, or in a file of their own."""

    name: str = ""
    data_type: int = DataType.UNDEFINED
    dims: tuple[int, ...] = ()
    raw: Buffer | None = field(default=None, repr=False)
    typed: tuple[TypedBlock, ...] = field(default=(), repr=False)
    external: Properties = ()
    is_external: bool = False
    doc: str = ""
    metadata: Properties = ()
    has_segment: bool = False

    @property
    def element(self) -> ElementType | None:
        """Our element type; None where we have none for it."""
        return ELEMENTS.get(self.data_type)


@dataclass(frozen=True, slots=True)
class SparseTensor:
    """A tensor of which only some numbers are stored, with their places."""

    values: TensorProto
    indices: TensorProto
    dims: tuple[int, ...]


Dimension: TypeAlias = int | str | None
"""An extent: a number, the name of one that the run tells, or unknown."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a tensor; a shape of None is not known at all."""

    data_type: int
    shape: tuple[Dimension, ...] | None = None

    @property
    def element(self) -> ElementType | None:
        """Our element type; None where we have none for it."""
        return ELEMENTS.get(self.data_type)


@dataclass(frozen=True, slots=True)
class OtherType:
    """A type that is no tensor: `sequence`, `optional`, `map`, `sparse_tensor` or `opaque`, of what."""

    kind: str
    inner: ValueType | None = None


ValueType: TypeAlias = TensorType | OtherType


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """What is known of a value: its name and its type."""

    name: str
    type: ValueType | None = None
    doc: str = ""
    metadata: Properties = ()


AttributeValue: TypeAlias = (
    "float | int | bytes | TensorProto | SparseTensor | Graph | ValueType | tuple[float, ...]"
    " | tuple[int, ...] | tuple[bytes, ...] | tuple[TensorProto, ...] | tuple[SparseTensor, ...]"
    " | tuple[Graph, ...] | tuple[ValueType, ...] | None"
)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a node; `reference` names the attribute of the function around it that it is."""

    name: str
    kind: int
    value: AttributeValue = None
    reference: str = ""
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One call of an operator or a function; an empty name of an input or output says that it is absent."""

    op_type: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    domain: str = MAIN_DOMAIN
    name: str = ""
    overload: str = ""
    doc: str = ""
    metadata: Properties = ()

    def attribute(self, name: str) -> Attribute | None:
        """The attribute of a name."""
        return next((item for item in self.attributes if item.name == name), None)

    @property
    def title(self) -> str:
        """The node as messages name it: its own name, else what it makes."""
        return self.name or next(filter(None, self.outputs), self.op_type)


@dataclass(frozen=True, slots=True)
class QuantAnnotation:
    """The tensors that hold the parameters of a tensor's quantisation, by their roles."""

    tensor: str
    parameters: Properties = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph: nodes in topological order, what goes in and out, and the tensors whose numbers are known."""

    name: str = ""
    nodes: tuple[Node, ...] = ()
    inputs: tuple[ValueInfo, ...] = ()
    outputs: tuple[ValueInfo, ...] = ()
    initializers: tuple[TensorProto, ...] = ()
    sparse_initializers: tuple[SparseTensor, ...] = ()
    values: tuple[ValueInfo, ...] = ()
    quantization: tuple[QuantAnnotation, ...] = ()
    doc: str = ""
    metadata: Properties = ()


@dataclass(frozen=True, slots=True)
class OpsetImport:
    """A version of the operators of a domain that a model or a function is written in."""

    domain: str
    version: int


@dataclass(frozen=True, slots=True)
class Function:
    """An operator that the model defines itself, by nodes."""

    name: str
    domain: str = MAIN_DOMAIN
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    """Attributes that a call has to give."""
    defaults: tuple[Attribute, ...] = ()
    """Attributes with the values that they have where a call does not give them."""
    nodes: tuple[Node, ...] = ()
    opsets: tuple[OpsetImport, ...] = ()
    values: tuple[ValueInfo, ...] = ()
    overload: str = ""
    doc: str = ""
    metadata: Properties = ()


@dataclass(frozen=True, slots=True)
class Model:
    """A model: a graph with the versions that it is written in, and functions."""

    graph: Graph
    ir_version: int = 0
    opsets: tuple[OpsetImport, ...] = ()
    functions: tuple[Function, ...] = ()
    producer: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc: str = ""
    metadata: Properties = ()
    has_training: bool = False
    """Whether the file also holds graphs for training, which are not read."""

    def version_of(self, domain: str) -> int | None:
        """The version of the operators of a domain, where the model imports it."""
        return version_in(self.opsets, domain)


def version_in(opsets: tuple[OpsetImport, ...], domain: str) -> int | None:
    """The version of a domain among imports."""
    wanted = plain_domain(domain)
    return next((item.version for item in opsets if plain_domain(item.domain) == wanted), None)


def plain_domain(domain: str) -> str:
    """A domain by its shorter name."""
    return MAIN_DOMAIN if domain == "ai.onnx" else domain


def subgraphs(node: Node) -> Iterator[tuple[str, Graph]]:
    """The graphs among the attributes of a node, by the names of these."""
    for item in node.attributes:
        values = item.value if isinstance(item.value, tuple) else (item.value,)
        for value in values:
            if isinstance(value, Graph):
                yield item.name, value
