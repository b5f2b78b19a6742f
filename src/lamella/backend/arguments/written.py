"""Which parameters of a kernel are written, found through views and elements of groups."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.source import Span
from lamella.kernels.rewrite import used_values, walk
from lamella.lang.tensor.nodes import (
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
    Function,
    Fuse,
    If,
    Instruction,
    LifetimeStop,
    Load,
    Math,
    Memref,
    Parallel,
    Scalar,
    SizeOf,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Subview,
    Value,
    Yield,
)

READING = (
    Alloca
    | Arith
    | Barrier
    | Builtin
    | Cast
    | Compare
    | Constant
    | CoopApply
    | CoopConstruct
    | CoopExtract
    | CoopInsert
    | CoopLoad
    | CoopMulAdd
    | CoopScale
    | Expand
    | For
    | Foreach
    | ForeachTile
    | Fuse
    | If
    | LifetimeStop
    | Load
    | Math
    | Parallel
    | SizeOf
    | SubgroupBroadcast
    | SubgroupOperation
    | Subview
    | Yield
)
"""Instructions that write no memory themselves."""


def written_parameters(function: Function) -> dict[str, Span]:
    """The memref and group parameters that a kernel may write, each with the first place where it does."""
    roots = {
        item.value.name: item.value.name for item in function.parameters if not isinstance(item.type, Scalar)
    }
    found: dict[str, Span] = {}
    for statement in walk(function.body):
        for target in _written_values(statement.instruction):
            root = roots.get(target.name)
            if root is not None:
                found.setdefault(root, statement.span)
        _follow(statement, roots)
    return found


def written_value(instruction: Instruction) -> Value | None:
    """The memref that an instruction writes."""
    if isinstance(instruction, Store | CoopStore | AtomicUpdate):
        return instruction.operand
    return instruction.operands[-1] if isinstance(instruction, Blas) else None


def _written_values(instruction: Instruction) -> Iterator[Value]:
    """The memrefs that an instruction may write: of one that is not known here, all that it is given."""
    target = written_value(instruction)
    if target is not None:
        yield target
    elif not isinstance(instruction, READING):
        yield from used_values(instruction)


def viewed_value(instruction: Instruction) -> Value | None:
    """What an instruction makes a view of: a memref, or a group whose element it loads."""
    if isinstance(instruction, Subview | Expand | Fuse):
        return instruction.operand
    is_element = isinstance(instruction, Load) and isinstance(instruction.type, Memref)
    return instruction.operand if isinstance(instruction, Load) and is_element else None


def _follow(statement: Statement, roots: dict[str, str]) -> None:
    """Note what a result is a view of; a name may have meant something else in a region that has ended."""
    viewed = viewed_value(statement.instruction)
    root = None if viewed is None else roots.get(viewed.name)
    for result in statement.results:
        roots.pop(result.name, None)
        if root is not None:
            roots[result.name] = root
