"""What an instruction is called, where it may stand, and the types of what it gives."""

from __future__ import annotations

from lamella.base.source import Span
from lamella.lang.tensor.nodes import (
    INDEX,
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
    CoopReduce,
    CoopScale,
    CoopStore,
    Expand,
    For,
    Foreach,
    ForeachTile,
    Fuse,
    If,
    Instruction,
    LifetimeStop,
    Load,
    Math,
    Parallel,
    Parameter,
    Region,
    SizeOf,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Subview,
    Type,
    Yield,
)

WORDS: dict[type[Instruction], str] = {
    Constant: "constant",
    Cast: "cast",
    Load: "load",
    SizeOf: "size",
    Subview: "subview",
    Expand: "expand",
    Fuse: "fuse",
    Barrier: "barrier",
    Yield: "yield",
    For: "for",
    If: "if",
    Alloca: "alloca",
    LifetimeStop: "lifetime_stop",
    Foreach: "foreach",
    ForeachTile: "foreach_tile",
    Parallel: "parallel",
    CoopApply: "cooperative_matrix_apply",
    CoopConstruct: "cooperative_matrix_construct",
    CoopExtract: "cooperative_matrix_extract",
    CoopInsert: "cooperative_matrix_insert",
    CoopLoad: "cooperative_matrix_load",
    CoopMulAdd: "cooperative_matrix_mul_add",
    CoopScale: "cooperative_matrix_scale",
    CoopStore: "cooperative_matrix_store",
    SubgroupBroadcast: "subgroup_broadcast",
}


def word_of(instruction: Instruction) -> str:
    """The word that an instruction begins with."""
    match instruction:
        case Arith(function=function):
            return f"arith.{function}"
        case Compare(function=function):
            return f"cmp.{function}"
        case Math(function=function):
            return f"math.{function}"
        case Builtin(name=name):
            return f"builtin.{name}"
        case Blas(function=function):
            return function
        case AtomicUpdate(function=function):
            return f"atomic_{function}"
        case CoopReduce(function=function):
            return f"cooperative_matrix_reduce_{function}"
        case SubgroupOperation(function=function, form=form):
            return f"subgroup_{function}.{form}"
        case Store(flag=flag):
            return f"store.{flag}" if flag else "store"
        case _:
            return WORDS[type(instruction)]


COLLECTIVE = frozenset((Alloca, LifetimeStop, Foreach, ForeachTile, Parallel, Blas))
MATRICES = (CoopLoad, CoopMulAdd, CoopScale, CoopStore, CoopConstruct, CoopReduce, CoopInsert, CoopApply)
COOPERATIVE = frozenset((*MATRICES, SubgroupBroadcast, SubgroupOperation))


def is_collective(instruction: Instruction) -> bool:
    """Whether all work-items do an instruction together."""
    return type(instruction) in COLLECTIVE


def is_cooperative(instruction: Instruction) -> bool:
    """Whether the work-items of a subgroup do an instruction together."""
    return type(instruction) in COOPERATIVE


def result_types(instruction: Instruction) -> tuple[Type, ...]:
    """The types of the values that an instruction gives, as the program writes them."""
    match instruction:
        case Arith() | Load() | Constant() | Cast() | CoopInsert() | CoopExtract() | Compare():
            return (instruction.type,)  # what most are is asked for first
        case For(types=types) | If(types=types):
            return types
        case SizeOf():
            return (INDEX,)
        case Store() | CoopStore() | Barrier() | Yield() | LifetimeStop() | Blas() | Parallel():
            return ()
        case Foreach() | ForeachTile():
            return ()
        case _:
            return (instruction.type,)


BODIED = (For, Foreach, ForeachTile, Parallel, CoopApply)
"""The instructions that have one region."""


def regions_of(statement: Statement) -> tuple[Region, ...]:
    """The regions that an instruction contains, in order."""
    instruction = statement.instruction
    if isinstance(instruction, BODIED):
        return (instruction.body,)
    if isinstance(instruction, If):
        return (
            (instruction.then,)
            if instruction.otherwise is None
            else (instruction.then, instruction.otherwise)
        )
    return ()


def header_span(statement: Statement) -> Span:
    """The place of an instruction, up to its first region."""
    regions = regions_of(statement)
    return cut_before(statement.span, regions[0].span) if regions else statement.span


def cut_before(whole: Span, inner: Span) -> Span:
    """The part of a place that stands before an inner one, without the blanks between them."""
    if inner.source is not whole.source or not whole.start < inner.start <= whole.end:
        return whole
    text = whole.source.text[whole.start : inner.start]
    return Span(whole.source, whole.start, whole.start + max(1, len(text.rstrip())))


def type_span(item: Statement | Parameter) -> Span:
    """The place of a parameter's type, or of the type that an instruction ends with."""
    span = item.span if isinstance(item, Parameter) else header_span(item)
    text = span.text
    if isinstance(item, Parameter):
        colon, brace = text.find(":"), text.find("{")
        end = brace if brace > colon else len(text)
    else:
        colon, end = text.rfind(":"), len(text)
    return span if colon < 0 else _without_blanks(span, colon + 1, end)


def _without_blanks(span: Span, first: int, last: int) -> Span:
    text = span.text[first:last]
    start = span.start + first + len(text) - len(text.lstrip())
    return Span(span.source, start, max(start + 1, start + len(text.strip())))
