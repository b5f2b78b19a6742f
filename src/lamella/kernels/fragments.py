"""Tensor-core fragments: which kernels can hold their cooperative matrices in the register layout of `mma`."""

from __future__ import annotations

from lamella.kernels.rewrite import used_values, walk
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor import result_types
from lamella.lang.tensor.nodes import (
    Arith,
    Blas,
    Cast,
    Constant,
    CoopApply,
    CoopConstruct,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopReduce,
    CoopScale,
    CoopStore,
    For,
    Foreach,
    ForeachTile,
    Function,
    If,
    Instruction,
    Memref,
    Type,
    Yield,
)
from lamella.lang.tensor.nodes.types import STORED_FLOATS

WARP = 32
ROWS, COLUMNS, DEPTH = 8, 16, 16
"""What one instruction computes: rows and columns of C, and the length of its sums."""
FACTORS = ("bf16", "f16")
SUMS = "f32"
STEADY = ("f32", "bf16", "f16")
"""Element types of matrices that are stored."""


def suits_fragments(function: Function, target: Target, factors: tuple[str, ...] = FACTORS) -> bool:
    """Whether every cooperative matrix of a kernel can be a fragment, and there is a product of such matrices."""
    if not target.tensor_cores or default_sizes(function).subgroup_size != WARP:
        return False
    found, known = [item.instruction for item in walk(function.body)], types_of(function)
    return any(isinstance(item, CoopMulAdd) for item in found) and all(
        _suits(item, known, factors) for item in found
    )


def keeps_components(function: Function, target: Target) -> bool:
    """Whether regions for single components can stay until fragments are known: nothing becomes matrices later."""
    found = [item.instruction for item in walk(function.body)]
    if any(isinstance(item, Blas | Foreach | ForeachTile) for item in found):
        return False
    # Of numbers of 8 bits rows may be those of threads too: each has as many of them.
    even = all(item.type.rows % WARP == 0 for item in found if isinstance(item, CoopApply))
    narrow = target.has_warpgroups and even and suits_fragments(function, target, STORED_FLOATS)
    return narrow or suits_fragments(function, target)


def types_of(function: Function) -> dict[str, Type]:
    """The types of all values of a kernel whose names are unique."""
    known: dict[str, Type] = {item.value.name: item.type for item in function.parameters}
    for statement in walk(function.body):
        node = statement.instruction
        known.update(zip((item.name for item in statement.results), result_types(node), strict=False))
        if isinstance(node, For):
            known.update(zip((name.name for name, _ in node.carried), node.types, strict=False))
    return known


def _suits(instruction: Instruction, known: dict[str, Type], factors: tuple[str, ...]) -> bool:
    types = [item for item in result_types(instruction) if isinstance(item, Coopmatrix)]
    match instruction:
        case CoopMulAdd():
            sides = [known.get(item.name) for item in (instruction.left, instruction.right)]
            elements = {item.element for item in sides if isinstance(item, Coopmatrix)}
            alike = (len(elements) == 1 or elements <= set(STORED_FLOATS)) and elements <= set(factors)
            return alike and _is_sum(instruction.type, (SUMS,))
        case CoopLoad():
            held = _is_factor(instruction.type, factors) or _is_sum(instruction.type, STEADY)
            return held and _is_plain(known.get(instruction.operand.name))
        case CoopStore():
            stored = known.get(instruction.value.name)
            held = isinstance(stored, Coopmatrix) and _is_sum(stored, STEADY) and not instruction.flag
            return held and _is_plain(known.get(instruction.operand.name))
        case Cast() if types and types[0].use != "matrix_acc":
            source = known.get(instruction.operand.name)
            return (
                types[0].use == "matrix_b"
                and _is_factor(types[0], FACTORS)
                and source == replace_sum(types[0])
            )
        case For():
            return all(_is_sum(item, STEADY) or _is_factor(item, FACTORS) for item in types)
        case Constant() | CoopConstruct() | CoopScale() | CoopApply() | Arith() | Cast() | If():
            return all(_is_sum(item, STEADY) for item in types)
        case CoopReduce():
            operand = known.get(instruction.operand.name)
            whole = isinstance(operand, Coopmatrix) and operand.rows > 1 < operand.columns
            return whole and all(_is_sum(item, STEADY) for item in types)
        case _:
            return not types and not _reads_matrix(instruction, known)


def _reads_matrix(instruction: Instruction, known: dict[str, Type]) -> bool:
    found = (known.get(item.name) for item in used_values(instruction))
    return not isinstance(instruction, Yield) and any(isinstance(item, Coopmatrix) for item in found)


def _is_plain(type_: Type | None) -> bool:
    """Whether a memref has rows and columns alone; one more mode is that of a packed access."""
    return isinstance(type_, Memref) and type_.order == 2


def replace_sum(type_: Coopmatrix) -> Coopmatrix:
    """The sums of f32 that a factor is made of by a cast."""
    return Coopmatrix(SUMS, type_.rows, type_.columns, "matrix_acc")


def _is_sum(type_: Coopmatrix, elements: tuple[str, ...]) -> bool:
    """Whole fragments, or one row or one column of them."""
    rows, columns = type_.rows % ROWS == 0, type_.columns % COLUMNS == 0
    whole = (rows or type_.rows == 1) and (columns or type_.columns == 1) and (rows or columns)
    return type_.use == "matrix_acc" and type_.element in elements and whole


def _is_factor(type_: Coopmatrix, elements: tuple[str, ...]) -> bool:
    if type_.element not in elements or type_.use == "matrix_acc":
        return False
    if type_.use == "matrix_a":
        return type_.rows % ROWS == 0 and type_.columns % DEPTH == 0
    return type_.rows % DEPTH == 0 and type_.columns % COLUMNS == 0
