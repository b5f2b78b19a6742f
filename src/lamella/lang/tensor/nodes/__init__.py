"""The tensor language on one page: the nodes of a program, in the words of the specification.

Spans and notes are carried and never compared, so `parse(write(p)) == p` is plain equality.
"""

from __future__ import annotations

from typing import TypeAlias

from lamella.base.records import dataclass
from lamella.base.source import Span, Trivia, beside, where
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

# --- instructions -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """A local identifier without its `%`; a numbered one has no leading zeros."""

    name: str
    span: Span = where()


Number: TypeAlias = bool | int | float | tuple[float, float]
IndexOrSize: TypeAlias = int | Value


# --- mixed instructions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    """`constant 1.0 : f32`; a complex value is a pair. Its span is that of the number."""

    value: Number
    type: Type
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Arith:
    """`arith.add %a, %b : f32`, with one operand `arith.neg %a : f32`, with three `arith.select %c, %a, %b : f32`.

    `function` is the word behind the dot.
    """

    function: str
    operands: tuple[Value, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Compare:
    """`cmp.lt %a, %b : bool`."""

    function: str
    left: Value
    right: Value
    type: Type


@dataclass(frozen=True, slots=True)
class Math:
    """`math.exp %a : f32`, and `math.pow %a, %b : f32` with two operands."""

    function: str
    operands: tuple[Value, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    """`cast %a : f32`."""

    operand: Value
    type: Type


@dataclass(frozen=True, slots=True)
class Builtin:
    """`builtin.group_id : index`; those of subgroups are SPMD instructions.

    An extension: `builtin.group_id.y`, the number of the work-group along another axis of the launch.
    """

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Load:
    """`load %t[%i, %j] : f32`."""

    operand: Value
    indices: tuple[Value, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Store:
    """`store %v, %t[%i, %j]`; the flag is empty, `atomic` or `atomic_add`."""

    value: Value
    operand: Value
    indices: tuple[Value, ...]
    flag: str = ""


@dataclass(frozen=True, slots=True)
class SizeOf:
    """`size %t[0] : index`."""

    operand: Value
    mode: int
    type: Type = INDEX


@dataclass(frozen=True, slots=True)
class Slice:
    """`offset:size`; a size of 0 removes the mode."""

    offset: IndexOrSize
    size: IndexOrSize = 0


@dataclass(frozen=True, slots=True)
class Subview:
    """`subview %t[0:4, %i] : memref<…>`."""

    operand: Value
    slices: tuple[Slice, ...]
    type: Memref


@dataclass(frozen=True, slots=True)
class Expand:
    """`expand %t[1 -> 2 x %n] : memref<…>`."""

    operand: Value
    mode: int
    sizes: tuple[IndexOrSize, ...]
    type: Memref


@dataclass(frozen=True, slots=True)
class Fuse:
    """`fuse %t[0, 1] : memref<…>`."""

    operand: Value
    first: int
    last: int
    type: Memref


@dataclass(frozen=True, slots=True)
class Barrier:
    """`barrier.global.local`."""

    on_global: bool = False
    on_local: bool = False


@dataclass(frozen=True, slots=True)
class Yield:
    """`yield (%a, %b)`."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class For:
    """`for %i:index=%from,%to,%step init(%x=%x0) -> (f32) { … } {unroll=true}`."""

    variable: Value
    begin: Value
    end: Value
    body: Region
    step: Value | None = None
    type: Scalar = INDEX
    carried: tuple[tuple[Value, Value], ...] = ()
    """Each carried value with what it starts from."""
    types: tuple[Type, ...] = ()
    attributes: Dictionary | None = None


@dataclass(frozen=True, slots=True)
class If:
    """`if %c -> (f32) { … } else { … }`."""

    condition: Value
    then: Region
    otherwise: Region | None = None
    types: tuple[Type, ...] = ()


# --- collective instructions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alloca:
    """`alloca {alignment=64} : memref<f32x4,local>`."""

    type: Memref
    attributes: Dictionary | None = None


@dataclass(frozen=True, slots=True)
class LifetimeStop:
    """`lifetime_stop %t`."""

    operand: Value


@dataclass(frozen=True, slots=True)
class Blas:
    """`gemm.n.t.atomic %alpha, %A, %B, %beta, %C` and its kind: axpby, cumsum, gemm, gemv, ger, hadamard, sum.

    `transposes` holds what the instruction has: two for gemm, one for axpby, gemv and sum. `mode` is cumsum's.
    """

    function: str
    operands: tuple[Value, ...]
    transposes: tuple[bool, ...] = ()
    atomic: bool = False
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class Foreach:
    """`foreach (%i,%j):index=(%a,%b),(%c,%d) { … }`."""

    variables: tuple[Value, ...]
    begins: tuple[Value, ...]
    ends: tuple[Value, ...]
    body: Region
    type: Scalar = INDEX


@dataclass(frozen=True, slots=True)
class ForeachTile:
    """`foreach_tile (%i,%j):index=(%a,%b),(%c,%d) as (%m,%n)<=(32,16) { … }`, an extension.

    The indices are cut into tiles; each tile is done by one subgroup. A variable is the first index of a tile, a size
    (`%m`) how many indices the tile has, as many as the number behind `<=` says but for the last ones.
    """

    variables: tuple[Value, ...]
    begins: tuple[Value, ...]
    ends: tuple[Value, ...]
    sizes: tuple[Value, ...]
    tile: tuple[int, ...]
    body: Region
    type: Scalar = INDEX


@dataclass(frozen=True, slots=True)
class Parallel:
    """`parallel { … }`."""

    body: Region


# --- SPMD instructions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CoopLoad:
    """`cooperative_matrix_load.n.rows_checked %M[%x, %y] : coopmatrix<…>`; `checked` is rows, cols, both or empty.

    Where M is of order 3 the access is packed: component (i, k) is M[k mod p, x+i, (y+k) div p], p the first size of M.
    """

    operand: Value
    row: Value
    column: Value
    type: Coopmatrix
    transposed: bool = False
    checked: str = ""


@dataclass(frozen=True, slots=True)
class CoopMulAdd:
    """`cooperative_matrix_mul_add %a, %b, %c : coopmatrix<…>`."""

    left: Value
    right: Value
    accumulator: Value
    type: Coopmatrix


@dataclass(frozen=True, slots=True)
class CoopScale:
    """`cooperative_matrix_scale %s, %m : coopmatrix<…>`."""

    scalar: Value
    operand: Value
    type: Coopmatrix


@dataclass(frozen=True, slots=True)
class CoopStore:
    """`cooperative_matrix_store.rows_checked.atomic_add %v, %M[%x, %y]`; packed where M is of order 3."""

    value: Value
    operand: Value
    row: Value
    column: Value
    checked: str = ""
    flag: str = ""


@dataclass(frozen=True, slots=True)
class CoopConstruct:
    """`cooperative_matrix_construct %s : coopmatrix<…>`, an extension: every component is the scalar.

    Where the operand is a cooperative matrix of one row or one column, every row or column is that one.
    """

    scalar: Value
    type: Coopmatrix


@dataclass(frozen=True, slots=True)
class CoopReduce:
    """`cooperative_matrix_reduce_max.column %m : coopmatrix<f32x1xN,matrix_acc>`, an extension.

    A `column` reduction has the sum (`add`) or an extreme of each column, a `row` reduction that of each row.
    """

    function: str
    mode: str
    operand: Value
    type: Coopmatrix


@dataclass(frozen=True, slots=True)
class CoopExtract:
    """`cooperative_matrix_extract %m[3] : f32`, an extension: a component of those that a work-item holds."""

    operand: Value
    component: int
    type: Type


@dataclass(frozen=True, slots=True)
class CoopInsert:
    """`cooperative_matrix_insert %s, %m[3] : coopmatrix<…>`, an extension: the matrix with one component replaced."""

    scalar: Value
    operand: Value
    component: int
    type: Coopmatrix


@dataclass(frozen=True, slots=True)
class CoopApply:
    """`cooperative_matrix_apply (%i,%j,%v)=%m -> coopmatrix<…> { … yield (%w) }`, an extension.

    The body is executed for each component by the work-item that holds it, with row and column (i32) and value.
    """

    row: Value
    column: Value
    value: Value
    operand: Value
    type: Coopmatrix
    body: Region


@dataclass(frozen=True, slots=True)
class AtomicUpdate:
    """`atomic_add %v, %t[%i] : f32`, an extension: add, max or min; gives what stood there before."""

    function: str
    value: Value
    operand: Value
    indices: tuple[Value, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class SubgroupBroadcast:
    """`subgroup_broadcast %a, %lane : f32`."""

    operand: Value
    lane: Value
    type: Type


@dataclass(frozen=True, slots=True)
class SubgroupOperation:
    """`subgroup_add.reduce %a : f32`: add, max or min as reduce, inclusive_scan or exclusive_scan."""

    function: str
    form: str
    operand: Value
    type: Type


Instruction: TypeAlias = (
    Constant
    | Arith
    | Compare
    | Math
    | Cast
    | Builtin
    | Load
    | Store
    | SizeOf
    | Subview
    | Expand
    | Fuse
    | Barrier
    | Yield
    | For
    | If
    | Alloca
    | LifetimeStop
    | Blas
    | Foreach
    | ForeachTile
    | Parallel
    | CoopLoad
    | CoopMulAdd
    | CoopScale
    | CoopStore
    | CoopConstruct
    | CoopReduce
    | CoopExtract
    | CoopInsert
    | CoopApply
    | AtomicUpdate
    | SubgroupBroadcast
    | SubgroupOperation
)


@dataclass(frozen=True, slots=True)
class Statement:
    """An instruction with the values it produces."""

    results: tuple[Value, ...]
    instruction: Instruction
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Region:
    """`{ … }`: statements in order."""

    statements: tuple[Statement, ...]
    span: Span = where()
    end: Trivia = beside()


# --- functions and the programs that hold them --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """`%A: memref<f32x4> {alignment=64}`."""

    value: Value
    type: Type
    attributes: Dictionary | None = None
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel: `func @name(parameters) attributes{…} { … }`; `name` is written without the `@`."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Region
    attributes: Dictionary | None = None
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Program:
    """The kernels of a file."""

    functions: tuple[Function, ...]
    span: Span = where()
    end: Trivia = beside()


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
    "CoopReduce",
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
