"""Types: of config parameters, of tensors, of what `params:` declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.source import Span, where
from lamella.lang.module.nodes.expressions import Argument, Expr


@dataclass(frozen=True, slots=True)
class ConfigType:
    """`int`, `float`, `bool`, `string` or `dtype`; `[int]` as a list; `enum(a, b)` with its choices; `T?`."""

    name: str
    choices: tuple[str, ...] = ()
    listed: bool = False
    optional: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Star:
    """`*`: any number of dimensions, leading ones in a tensor type."""

    span: Span = where()


@dataclass(frozen=True, slots=True)
class Unchanged:
    """`[...]`: the shape of a tensor that exists already, where only its annotations change."""

    span: Span = where()


@dataclass(frozen=True, slots=True)
class TensorType:
    """`[dim, …, dtype]`, with `?` when the tensor may be None; `scalar` is the type without dimensions.

    The older spellings `Tensor[…]` and `Tensor<[…]>` are read into this node, with a note.
    """

    dims: tuple[Dim, ...]
    dtype: str | None = None
    optional: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class TupleType:
    """`(type, …)`, the types of several tensors."""

    items: tuple[TensorType, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class SequenceType:
    """`tuple<type>`: any number of tensors, for primitives whose number of inputs or outputs is open.

    The specification's own `tuple(type for i in range(n))` and `name...` are read into this node.
    """

    item: TensorType | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class ScalarType:
    """`int` or `float` as the type of an input: a number that the caller gives, or a dimension that it binds."""

    name: str
    optional: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class InstanceType:
    """`Module(argument, …)` in `params:`, by a name that may be qualified; without arguments all are defaults."""

    module: str
    arguments: tuple[Argument, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class ArrayType:
    """`[size] x element`, also written with `×` or as `Array<size, element>`."""

    size: Expr
    element: InstanceType | TensorType
    span: Span = where()


@dataclass(frozen=True, slots=True)
class TiedType:
    """`tied_to(path)`: the storage of another parameter."""

    path: Path
    span: Span = where()


@dataclass(frozen=True, slots=True)
class PathPart:
    """`name`, `name[{placeholder}]`, `name[3]` or `name[{i}][{e}]`; a placeholder is a string, an index a number."""

    name: str
    indices: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Path:
    """The place of a parameter below a declaration, `blocks[{i}].attention.qkv_weight`."""

    parts: tuple[PathPart, ...]
    span: Span = where()


Dim: TypeAlias = Expr | Star | Unchanged
PortType: TypeAlias = TensorType | TupleType | SequenceType | ScalarType
ParamType: TypeAlias = TensorType | InstanceType | ArrayType | TiedType
