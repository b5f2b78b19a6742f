"""The tensor language on one page: the nodes of a program, in the words of the specification.

Spans and notes are carried and never compared, so `parse(write(p)) == p` is plain equality.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamella.base.source import Notes, Span, beside, where
from lamella.lang.tensor.nodes.instructions import (
    Alloca,
    Arith,
    AtomicUpdate,
    Barrier,
    Blas,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopApply,
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    CoopMulAdd,
    CoopScale,
    CoopStore,
    Expand,
    For,
    Foreach,
    ForeachTile,
    Fuse,
    If,
    IndexOrSize,
    Instruction,
    LifetimeStop,
    Load,
    Math,
    Number,
    Parallel,
    Region,
    SizeOf,
    Slice,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Subview,
    Value,
    Yield,
)
from lamella.lang.tensor.nodes.types import (
    BOOL,
    INDEX,
    Attribute,
    Coopmatrix,
    Dictionary,
    DictionaryEntry,
    Group,
    Memref,
    Scalar,
    Size,
    Text,
    Type,
    make_memref,
    packed_stride,
)

# --- functions and the programs that hold them --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """`%A: memref<f32x4> {alignment=64}`."""

    value: Value
    type: Type
    attributes: Dictionary | None = None
    span: Span = where()
    notes: Notes = beside()


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel: `func @name(parameters) attributes{…} { … }`; `name` is written without the `@`."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Region
    attributes: Dictionary | None = None
    span: Span = where()
    notes: Notes = beside()


@dataclass(frozen=True, slots=True)
class Program:
    """The kernels of a file."""

    functions: tuple[Function, ...]
    span: Span = where()
    end: Notes = beside()


__all__ = [
    "BOOL",
    "INDEX",
    "Alloca",
    "Arith",
    "AtomicUpdate",
    "Attribute",
    "Barrier",
    "Blas",
    "Builtin",
    "Cast",
    "Compare",
    "Constant",
    "CoopApply",
    "CoopConstruct",
    "CoopExtract",
    "CoopInsert",
    "CoopLoad",
    "CoopMulAdd",
    "CoopScale",
    "CoopStore",
    "Coopmatrix",
    "Dictionary",
    "DictionaryEntry",
    "Expand",
    "For",
    "Foreach",
    "ForeachTile",
    "Function",
    "Fuse",
    "Group",
    "If",
    "IndexOrSize",
    "Instruction",
    "LifetimeStop",
    "Load",
    "Math",
    "Memref",
    "Number",
    "Parallel",
    "Parameter",
    "Program",
    "Region",
    "Scalar",
    "Size",
    "SizeOf",
    "Slice",
    "Statement",
    "Store",
    "SubgroupBroadcast",
    "SubgroupOperation",
    "Subview",
    "Text",
    "Type",
    "Value",
    "Yield",
    "make_memref",
    "packed_stride",
]
