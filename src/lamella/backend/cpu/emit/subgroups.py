"""What the lanes of a subgroup do together: broadcast, reductions and scans; and the numbers that lanes go by.

A reduction adds halves of the vector, then halves of the half, and a scan adds in steps of 1, 2, 4, … lanes: sums of
floating-point numbers are rounded in that order, not in the order of the lanes. Lanes that do not run take no part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.memory.lanes import first_lane, pick_lane
from lamella.backend.cpu.emit.memory.vectors import shuffle
from lamella.backend.cpu.emit.scalars import combine, identity, make_constant
from lamella.backend.cpu.emit.values import LLVM, Lanes, llvm
from lamella.lang.tensor.nodes import Builtin, SubgroupBroadcast, SubgroupOperation
from lamella.lang.tensor.nodes.types import COMPLEX, INTEGERS


def emit_builtin(here: Here, instruction: Builtin) -> Lanes:
    """Give the number that a builtin stands for."""
    match instruction.name:
        case "group_id":
            return integers.dynamic(here.group_id)
        case "group_size":
            return integers.dynamic(here.group_count)
        case "num_subgroups":
            return integers.number(here.subgroups, "i32")
        case "subgroup_size":
            return integers.number(here.subgroup_size, "i32")
        case "subgroup_id" if here.subgroups > 1:
            return integers.dynamic(here.subgroup_id, "i32")
        case "subgroup_local_id" if here.lanes > 1:
            return integers.affine(here, "0", 1, "i32", divisor=0)
        case _:
            return integers.number(0, "i32")


# --- broadcast ----------------------------------------------------------------------------------------------


def emit_broadcast(here: Here, instruction: SubgroupBroadcast) -> Lanes:
    """Emit the value of one lane for all; a lane that the subgroup does not have wraps round."""
    value, lane = here.scalar(instruction.operand.name), here.scalar(instruction.lane.name)
    if value.is_uniform:
        return value
    if isinstance(lane.constant, int):
        number = str(lane.constant % here.lanes)
    else:
        number = _within(here, lane if lane.is_uniform else _agreed(here, lane))
    return pick_lane(here, integers.spread(here, value), number)


def _within(here: Here, lane: Lanes) -> str:
    low = here.out.value(f"and i32 {lane.operand}, {here.lanes - 1}")
    return here.out.value(f"zext i32 {low} to i64")


def _agreed(here: Here, lane: Lanes) -> Lanes:
    """A number that all lanes which run have in common."""
    return pick_lane(here, integers.spread(here, lane), first_lane(here))


# --- reductions and scans -----------------------------------------------------------------------------------


def emit_operation(here: Here, instruction: SubgroupOperation) -> Lanes:
    """Emit a reduction or a scan over the lanes."""
    value, function = here.scalar(instruction.operand.name), instruction.function
    if here.lanes == 1:
        return identity(function, value.element) if instruction.form == "exclusive_scan" else value
    lanes = _present(here, function, integers.spread(here, value))
    if instruction.form == "reduce":
        return reduce_lanes(here, function, lanes)
    scanned = _scan(here, function, lanes)
    return scanned if instruction.form == "inclusive_scan" else _exclude(here, function, scanned)


def reduce_lanes(here: Here, function: str, value: Lanes) -> Lanes:
    """All lanes of a vector, whose number is a power of two, combined by add, max or min."""
    while value.count > 1:
        half = value.count // 2
        low, high = (_slice(here, value, start, half) for start in (0, half))
        value = combine(here, function, low, high)
    return value


def _slice(here: Here, value: Lanes, start: int, count: int) -> Lanes:
    if count == 1:
        return pick_lane(here, value, str(start))
    return _move(here, value, None, range(start, start + count))


def _scan(here: Here, function: str, value: Lanes) -> Lanes:
    """Each lane with all before it; a lane that has nobody so far before it stays as it is."""
    distance = 1
    while distance < here.lanes:
        lanes = range(here.lanes)
        before = _move(here, value, None, [max(0, lane - distance) for lane in lanes])
        both = combine(here, function, before, value)
        kept = [lane if lane < distance else here.lanes + lane for lane in lanes]
        value = _move(here, value, both, kept)
        distance *= 2
    return value


def _exclude(here: Here, function: str, scanned: Lanes) -> Lanes:
    """Each lane with those before it alone; the first has nothing."""
    start = integers.spread(here, identity(function, scanned.element))
    moved = _move(here, start, scanned, [0, *range(here.lanes, 2 * here.lanes - 1)])
    return moved if here.mask is None else combine(here, function, start, moved)


def _move(here: Here, first: Lanes, second: Lanes | None, lanes: Sequence[int]) -> Lanes:
    """A vector of lanes of one value or two, part by part."""
    kind = llvm(first.element, first.count)
    others = ["poison"] * len(first.parts) if second is None else second.parts
    pairs = zip(first.parts, others, strict=True)
    parts = [shuffle(here, kind, one, other, lanes) for one, other in pairs]
    return Lanes(first.element, tuple(parts), len(lanes))


def _present(here: Here, function: str, value: Lanes) -> Lanes:
    """The lanes that run; the others hold what changes nothing, and nothing is known of them as integers."""
    if here.mask is None:
        return Lanes(value.element, value.parts, value.count)
    kind, part = llvm(value.element, value.count), LLVM[value.element]
    chosen = [
        here.out.value(
            f"select <{value.count} x i1> {here.mask}, {kind} {operand}, {kind} splat ({part} {absent})"
        )
        for operand, absent in zip(value.parts, _absent(function, value.element).parts, strict=True)
    ]
    return Lanes(value.element, tuple(chosen), value.count)


def _absent(function: str, element: str) -> Lanes:
    """What changes no other value at all: 0 would make -0 positive, and infinity would hide NaN."""
    if element in INTEGERS:
        return identity(function, element)
    if element in COMPLEX:
        return make_constant((-0.0, -0.0), element)
    return make_constant(-0.0 if function == "add" else math.nan, element)
