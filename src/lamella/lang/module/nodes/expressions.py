"""Expressions: constants, names, calls and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.source import Span, where


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer literal."""

    value: int
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Real:
    """A literal with a point or an exponent."""

    value: float
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Bool:
    """`true` or `false`."""

    value: bool
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    value: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Null:
    """`None`."""

    span: Span = where()


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier that is used."""

    id: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Member:
    """`operand.field`: a sub-parameter, a saved tensor, `x.shape`, a qualified name."""

    operand: Expr
    field: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Slice:
    """`begin:end` as an index; a missing bound is that end of the dimension."""

    begin: Expr | None
    end: Expr | None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Rest:
    """`...` as an index: all the dimensions that are not named."""

    span: Span = where()


@dataclass(frozen=True, slots=True)
class Index:
    """`operand[item, …]`: an element, a view of a tensor, a range of blocks."""

    operand: Expr
    items: tuple[Subscript, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument, or `name=value`."""

    name: str | None
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Call:
    """`callee(argument, …)`: an intrinsic of the constant world, a source that makes a tensor, a built-in constant."""

    callee: Expr
    arguments: tuple[Argument, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class List:
    """`[item, …]`; `...` between two items stands for the whole numbers between them."""

    items: tuple[Expr | Rest, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Set:
    """`{item, …}`: a list whose order and repetitions mean nothing."""

    items: tuple[Expr, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class DictEntry:
    """`key: value` of a dict; the key is a name or a string."""

    key: str
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Dict:
    """`{key: value, …}`."""

    entries: tuple[DictEntry, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Unary:
    """`-a`, `not a`, or `!a` in a condition of `@assert` and `@probe`."""

    sign: str
    operand: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one precedence level from left to right, flat however long: `first (sign operand)…`.

    The levels, loosest first: `or ||`, `and &&`, comparisons with `in` and `not in`, `+ -`, `* / // %`. `**` binds
    tighter than a unary sign and to the right: it is a chain of two operands.
    """

    first: Expr
    rest: tuple[tuple[str, Expr], ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Select:
    """`value if condition else otherwise`."""

    value: Expr
    condition: Expr
    otherwise: Expr
    span: Span = where()


Expr: TypeAlias = (
    Integer
    | Real
    | Bool
    | Text
    | Null
    | Name
    | Member
    | Index
    | Call
    | List
    | Set
    | Dict
    | Unary
    | Chain
    | Select
)
Subscript: TypeAlias = Expr | Slice | Rest


# --- types: of config parameters, of tensors, of what `params:` declares ------------------------------------


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


# --- traversal ----------------------------------------------------------------------------------------------


def names_in(*parts: Expr | Star | Unchanged) -> Iterator[str]:
    """The names that expressions use, from left to right."""
    return (name.id for name in name_nodes(*parts))


def name_nodes(*parts: Subscript | Star | Unchanged) -> Iterator[Name]:
    """The nodes of the names that expressions use, from left to right; the callee of a call is none of them."""
    # A stack of its own instead of recursion: chains of members and calls in hostile files are long.
    todo: list[Subscript | Star | Unchanged] = list(reversed(parts))
    while todo:
        item = todo.pop()
        if isinstance(item, Name):
            yield item
        elif not isinstance(item, Rest | Star | Unchanged):
            todo += reversed(parts_of(item))


def parts_of(expr: Expr | Slice) -> list[Subscript]:
    """What stands directly in an expression; the callee of a call is no value."""
    match expr:
        case Chain(first, rest):
            return [first, *(operand for _, operand in rest)]
        case Unary(_, operand) | Member(operand, _):
            return [operand]
        case Select(value, condition, otherwise):
            return [value, condition, otherwise]
        case Index(operand, items):
            return [operand, *items]
        case Slice(begin, end):
            return [bound for bound in (begin, end) if bound is not None]
        case List(items) | Set(items):
            return list(items)
        case Dict(entries):
            return [entry.value for entry in entries]
        case Call(_, arguments):
            return [argument.value for argument in arguments]
    return []
