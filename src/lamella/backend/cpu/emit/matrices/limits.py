"""Cooperative matrices that no code is written for, because it would be too long to be compiled in reasonable time."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.kernels.rewrite import walk
from lamella.lang.tensor.nodes import (
    CoopInsert,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopStore,
    Function,
    Instruction,
    Program,
)
from lamella.lang.tensor.rules import running as rules

MAX_COMPONENTS = 1 << 12
"""Components of a matrix."""
MAX_ROWS = 1 << 9
"""Rows of a matrix: LLVM takes very long vectors apart slowly."""
MAX_VECTORS = 1 << 15
"""Vectors that the instructions of one kernel load, store and compute: each has code of its own."""
LANES = 16
"""Rows of a vector, as they are counted here."""
ACCESSED = 4
"""Components that one instruction of an access handles, at worst."""


def find_long_code(program: Program) -> list[Diagnostic]:
    """What makes the code of a program too long; at most one finding for each kernel."""
    return [item for function in program.functions for item in _judge(function)]


def _judge(function: Function) -> Iterator[Diagnostic]:
    known: dict[str, Coopmatrix] = {}
    total = 0
    for statement in walk(function.body):
        type_ = _matrix_of(statement.instruction, known)
        if type_ is None:
            continue
        known.update((item.name, type_) for item in statement.results)
        if type_.rows > MAX_ROWS or type_.rows * type_.columns > MAX_COMPONENTS:
            rows, columns = type_.rows, type_.columns
            yield rules.MATRIX_LIMIT.at(
                statement.span, rows=rows, columns=columns, most=MAX_ROWS, limit=MAX_COMPONENTS
            )
            return
        total += _vectors(statement.instruction, type_, known)
        if total > MAX_VECTORS:
            yield rules.MATRIX_CODE.at(statement.span, name=function.name, count=total, limit=MAX_VECTORS)
            return


def _matrix_of(instruction: Instruction, known: dict[str, Coopmatrix]) -> Coopmatrix | None:
    """The matrix that an instruction makes or stores."""
    if isinstance(instruction, CoopStore):
        return known.get(instruction.value.name)
    found = getattr(instruction, "type", None)
    return found if isinstance(found, Coopmatrix) else None


def _vectors(instruction: Instruction, type_: Coopmatrix, known: dict[str, Coopmatrix]) -> int:
    """How many vectors, or scalars of a matrix_b, an instruction makes; an access moves lanes about as well."""
    count = type_.rows * type_.columns
    if isinstance(instruction, CoopInsert):
        return LANES
    if type_.use == "matrix_b":
        return count
    if isinstance(instruction, CoopLoad | CoopStore):
        return -(-count // ACCESSED)
    depth = 1
    if isinstance(instruction, CoopMulAdd) and instruction.left.name in known:
        depth = known[instruction.left.name].columns
    return -(-type_.rows // LANES) * type_.columns * depth
