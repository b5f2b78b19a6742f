"""Instructions that the work-items of a subgroup execute together: scans, broadcast, cooperative matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import accumulate
from types import MappingProxyType

import numpy as np

from lamella.backend.interpreter.arithmetic import compute_binary
from lamella.backend.interpreter.faults import Fault
from lamella.backend.interpreter.memory import Reference
from lamella.backend.interpreter.numbers import (
    Number,
    accumulation,
    convert,
    dtype_of,
    element_name,
    is_integer,
)
from lamella.backend.interpreter.state import RunValue, Worker
from lamella.lang.tensor import nodes
from lamella.lang.tensor.rules import running as rules

TOGETHER = (
    nodes.SubgroupOperation,
    nodes.SubgroupBroadcast,
    nodes.CoopLoad,
    nodes.CoopMulAdd,
    nodes.CoopScale,
    nodes.CoopStore,
)
WORDS: Mapping[type, str] = MappingProxyType(
    {
        nodes.SubgroupBroadcast: "subgroup_broadcast",
        nodes.CoopLoad: "cooperative_matrix_load",
        nodes.CoopMulAdd: "cooperative_matrix_mul_add",
        nodes.CoopScale: "cooperative_matrix_scale",
        nodes.CoopStore: "cooperative_matrix_store",
    }
)


def name_of(instruction: nodes.Instruction) -> str:
    """The word of an instruction that a subgroup executes together."""
    if isinstance(instruction, nodes.SubgroupOperation):
        return f"subgroup_{instruction.function}.{instruction.form}"
    return WORDS[type(instruction)]


def execute_together(instruction: nodes.Instruction, lanes: Sequence[Worker]) -> list[tuple[RunValue, ...]]:
    """The results of an instruction for each work-item of a subgroup."""
    if isinstance(instruction, nodes.SubgroupOperation):
        return [
            (value,) for value in _scan(instruction, [lane.number(instruction.operand) for lane in lanes])
        ]
    if isinstance(instruction, nodes.SubgroupBroadcast):
        return [(_broadcast(instruction, lanes),)] * len(lanes)
    _refuse_varying(instruction, lanes)
    return [COOPERATIVE[type(instruction)](lanes[0], instruction)] * len(lanes)


# --- scans and broadcast ------------------------------------------------------------------------------------


def _scan(item: nodes.SubgroupOperation, values: list[Number]) -> list[Number]:
    def combine(left: Number, right: Number) -> Number:
        return compute_binary(item.function, left, right)

    running = list(accumulate(values, combine))
    if item.form == "reduce":
        return [running[-1]] * len(values)
    return running if item.form == "inclusive_scan" else [_identity(item, values[0]), *running[:-1]]


def _identity(item: nodes.SubgroupOperation, like: Number) -> Number:
    """The value that changes nothing: 0, or the least or greatest of the type."""
    dtype = like.dtype
    if item.function == "add":
        return dtype.type(0)
    least = item.function == "max"
    if is_integer(dtype):
        bounds = np.iinfo(dtype)
        return dtype.type(bounds.min if least else bounds.max)
    return dtype.type(-np.inf if least else np.inf)


def _broadcast(item: nodes.SubgroupBroadcast, lanes: Sequence[Worker]) -> Number:
    _refuse_different(item, item.lane, lanes)
    lane = lanes[0].integer(item.lane)
    if not 0 <= lane < len(lanes):
        raise Fault(rules.WRONG_LANE, lane=lane, size=len(lanes))
    return lanes[lane].number(item.operand)


# --- uniform operands ---------------------------------------------------------------------------------------


def _refuse_varying(instruction: nodes.Instruction, lanes: Sequence[Worker]) -> None:
    """All operands of a cooperative instruction are dynamically uniform."""
    for field in fields(instruction):
        operand = getattr(instruction, field.name)
        if isinstance(operand, nodes.Value):
            _refuse_different(instruction, operand, lanes)


def _refuse_different(instruction: nodes.Instruction, operand: nodes.Value, lanes: Sequence[Worker]) -> None:
    first = lanes[0].values[operand.name]
    if not all(_same(first, lane.values[operand.name]) for lane in lanes[1:]):
        raise Fault(rules.NOT_UNIFORM, name=operand.name, instruction=name_of(instruction))


def _same(left: RunValue, right: RunValue) -> bool:
    if left is right:
        return True
    if isinstance(left, Reference) and isinstance(right, Reference):
        layout = (left.offset, left.shape, left.stride) == (right.offset, right.shape, right.stride)
        return layout and left.memory is right.memory
    return np.asarray(left).tobytes() == np.asarray(right).tobytes()


# --- cooperative matrices -----------------------------------------------------------------------------------


def _positions(
    shape: tuple[int, ...], start: tuple[int, int], bounds: tuple[int, ...], checked: tuple[bool, bool]
) -> Iterator[tuple[int, int, int, int]]:
    """Row and column of each component with its place in the memref, without those that a check leaves out."""
    for row, column in np.ndindex(*shape):
        x, y = start[0] + row, start[1] + column
        inside_rows = not checked[0] or 0 <= x < bounds[0]
        if inside_rows and (not checked[1] or 0 <= y < bounds[1]):
            yield row, column, x, y


def _checks(word: str) -> tuple[bool, bool]:
    """Whether rows and columns are checked; the word may be written with its ending."""
    word = word.removesuffix("_checked")
    return word in ("rows", "both"), word in ("cols", "both")


def _load(worker: Worker, item: nodes.CoopLoad) -> tuple[RunValue, ...]:
    """Component (i, j) is M[x+i, y+j], or M[x+j, y+i] transposed; what a check leaves out is 0."""
    source, start = worker.reference(item.operand), (worker.integer(item.row), worker.integer(item.column))
    found = np.zeros((item.type.rows, item.type.columns), dtype_of(item.type.element))
    rows, columns = _checks(item.checked)
    seen, checked = (found.T, (columns, rows)) if item.transposed else (found, (rows, columns))
    for i, j, x, y in _positions(seen.shape, start, source.shape, checked):
        seen[i, j] = source.load((x, y))
    return (found,)


def _store(worker: Worker, item: nodes.CoopStore) -> tuple[RunValue, ...]:
    target, start = worker.reference(item.operand), (worker.integer(item.row), worker.integer(item.column))
    values = np.asarray(worker.number(item.value))
    for i, j, x, y in _positions(values.shape, start, target.shape, _checks(item.checked)):
        value = values[i, j]
        if item.flag == "atomic_add":
            value = compute_binary("add", target.load((x, y)), value)
        target.store(value, (x, y))
    return ()


def _multiply_add(worker: Worker, item: nodes.CoopMulAdd) -> tuple[RunValue, ...]:
    """D := A B + C, computed in the accumulation type of C and rounded once."""
    left, right = np.asarray(worker.number(item.left)), np.asarray(worker.number(item.right))
    added = np.asarray(worker.number(item.accumulator))
    wide = accumulation(element_name(added.dtype))
    whole = np.matmul(convert(left, wide), convert(right, wide)) + convert(added, wide)
    return (convert(whole, item.type.element),)


def _scale(worker: Worker, item: nodes.CoopScale) -> tuple[RunValue, ...]:
    matrix = np.asarray(worker.number(item.operand))
    return (compute_binary("mul", matrix, worker.number(item.scalar)),)


COOPERATIVE: Mapping[type, Callable[..., tuple[RunValue, ...]]] = MappingProxyType(
    {nodes.CoopLoad: _load, nodes.CoopMulAdd: _multiply_add, nodes.CoopScale: _scale, nodes.CoopStore: _store}
)
