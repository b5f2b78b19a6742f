"""Instructions that the work-items of a subgroup execute together: scans, broadcast, cooperative matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import accumulate
from types import MappingProxyType

import numpy as np

from lamella.backend.arguments import dtype_of
from lamella.backend.interpreter.arithmetic import (
    Number,
    accumulation,
    compute_binary,
    convert,
    element_name,
    is_integer,
)
from lamella.backend.interpreter.evaluate import held_component
from lamella.backend.interpreter.memory import MemrefReference
from lamella.backend.interpreter.state import RunValue, Worker
from lamella.base.arrays import Array
from lamella.lang.tensor import nodes
from lamella.lang.tensor.rules import running as rules
from lamella.ops.fault import Fault

TOGETHER = (
    nodes.SubgroupOperation,
    nodes.SubgroupBroadcast,
    nodes.CoopLoad,
    nodes.CoopMulAdd,
    nodes.CoopScale,
    nodes.CoopStore,
    nodes.CoopConstruct,
    nodes.CoopReduce,
    nodes.CoopInsert,
)
WORDS: Mapping[type, str] = MappingProxyType(
    {
        nodes.SubgroupBroadcast: "subgroup_broadcast",
        nodes.CoopLoad: "cooperative_matrix_load",
        nodes.CoopMulAdd: "cooperative_matrix_mul_add",
        nodes.CoopScale: "cooperative_matrix_scale",
        nodes.CoopStore: "cooperative_matrix_store",
        nodes.CoopConstruct: "cooperative_matrix_construct",
        nodes.CoopReduce: "cooperative_matrix_reduce",
        nodes.CoopInsert: "cooperative_matrix_insert",
        nodes.CoopApply: "cooperative_matrix_apply",
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
    if isinstance(instruction, nodes.CoopInsert):
        return [(_insert(instruction, lanes),)] * len(lanes)
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
    refuse_different(item, item.lane, lanes)
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
            refuse_different(instruction, operand, lanes)


def refuse_different(instruction: nodes.Instruction, operand: nodes.Value, lanes: Sequence[Worker]) -> None:
    """An operand of a cooperative instruction is the same for the whole subgroup."""
    first = lanes[0].values[operand.name]
    if not all(_same(first, lane.values[operand.name]) for lane in lanes[1:]):
        raise Fault(rules.NOT_UNIFORM, name=operand.name, instruction=name_of(instruction))


def _same(left: RunValue, right: RunValue) -> bool:
    if left is right:
        return True
    if isinstance(left, MemrefReference) and isinstance(right, MemrefReference):
        layout = (left.offset, left.shape, left.stride) == (right.offset, right.shape, right.stride)
        return layout and left.memory is right.memory
    return np.asarray(left).tobytes() == np.asarray(right).tobytes()


# --- cooperative matrices -----------------------------------------------------------------------------------


def _overlap(start: int, count: int, size: int, checked: bool) -> tuple[int, int] | None:
    """The components of a mode that lie inside a memref; None where some do not and nothing says to leave them out."""
    first, last = max(0, -start), min(count, size - start)
    if checked:
        return first, max(first, last)
    return (0, count) if (first, last) == (0, count) else None


def _block(
    memref: MemrefReference, start: tuple[int, int], shape: tuple[int, ...], checked: tuple[bool, bool]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where the components that are accessed stand in the matrix, and where in the memref."""
    inner, outer = [], []
    for mode in range(2):
        begin, packs = start[mode], _packs(memref)[mode]
        size = packs * memref.shape[mode - 2]
        found = _overlap(begin, shape[mode], size, checked[mode])
        if found is None:
            index, own = (size if 0 <= begin < size else begin) // packs, mode + len(memref.shape) - 2
            raise Fault(rules.OUT_OF_BOUNDS, index=index, mode=own, name=memref.name, size=memref.shape[own])
        inner.append(slice(*found))
        outer.append(slice(begin + found[0], begin + found[1]))
    return tuple(inner), tuple(outer)


def _packs(memref: MemrefReference) -> tuple[int, int]:
    """How many rows and columns of the matrix one index of the memref stands for."""
    return 1, memref.shape[0] if len(memref.shape) == 3 else 1


def _refuse_inside_pack(memref: MemrefReference, column: int) -> None:
    pack = _packs(memref)[1]
    if pack == 0 or column % pack:
        raise Fault(rules.PACKED_POSITION, column=column, name=memref.name, pack=pack)


def _places(memref: MemrefReference, block: tuple[slice, ...]) -> tuple[slice | Array, ...]:
    """Where the rows and columns of a matrix stand in a memref: M[k mod p, x+i, (y+k) div p] where it is packed."""
    if len(memref.shape) == 2:
        return block
    pack, (rows, columns) = memref.shape[0], (np.arange(item.start, item.stop) for item in block)
    return columns % pack, rows[:, None], columns // pack


def _checks(word: str) -> tuple[bool, bool]:
    """Whether rows and columns are checked; the word may be written with its ending."""
    word = word.removesuffix("_checked")
    return word in ("rows", "both"), word in ("cols", "both")


def _load(worker: Worker, item: nodes.CoopLoad) -> tuple[RunValue, ...]:
    """Component (i, j) is M[x+i, y+j], or M[x+j, y+i] transposed; what a check leaves out is 0."""
    source, start = worker.reference(item.operand), (worker.integer(item.row), worker.integer(item.column))
    _refuse_inside_pack(source, start[1])
    worker.group.refuse_matrix(item.type)
    found = np.zeros((item.type.rows, item.type.columns), dtype_of(item.type.element))
    rows, columns = _checks(item.checked)
    seen, checked = (found.T, (columns, rows)) if item.transposed else (found, (rows, columns))
    inner, outer = _block(source, start, seen.shape, checked)
    seen[inner] = source.read()[_places(source, outer)]
    return (found,)


def _store(worker: Worker, item: nodes.CoopStore) -> tuple[RunValue, ...]:
    target, start = worker.reference(item.operand), (worker.integer(item.row), worker.integer(item.column))
    _refuse_inside_pack(target, start[1])
    values = np.asarray(worker.number(item.value))
    inner, outer = _block(target, start, values.shape, _checks(item.checked))
    memory, places = target.write_all(), _places(target, outer)
    stored = values[inner]
    memory[places] = compute_binary("add", memory[places], stored) if item.flag == "atomic_add" else stored
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


def _construct(worker: Worker, item: nodes.CoopConstruct) -> tuple[RunValue, ...]:
    worker.group.refuse_matrix(item.type)
    return (np.broadcast_to(worker.number(item.scalar), (item.type.rows, item.type.columns)).copy(),)


def _reduce(worker: Worker, item: nodes.CoopReduce) -> tuple[RunValue, ...]:
    """Component by component, in the type of the matrix."""
    worker.group.refuse_matrix(item.type)
    matrix = np.asarray(worker.number(item.operand))
    lines = matrix if item.mode == "column" else matrix.T
    total = lines[:1]
    for line in lines[1:]:
        total = np.asarray(compute_binary(item.function, total, line[None]))
    return (total if item.mode == "column" else total.T,)


def _insert(item: nodes.CoopInsert, lanes: Sequence[Worker]) -> Number:
    """The matrix with a component of each work-item replaced; what lies behind the last column is nobody's."""
    refuse_different(item, item.operand, lanes)
    found = np.array(lanes[0].number(item.operand))
    for lane in lanes:
        place = held_component(lane, item.type, item.component)
        if place is not None:
            found[place] = lane.number(item.scalar)
    return found


COOPERATIVE: Mapping[type, Callable[..., tuple[RunValue, ...]]] = MappingProxyType(
    {
        nodes.CoopLoad: _load,
        nodes.CoopMulAdd: _multiply_add,
        nodes.CoopScale: _scale,
        nodes.CoopStore: _store,
        nodes.CoopConstruct: _construct,
        nodes.CoopReduce: _reduce,
    }
)
