"""Subgroup operations on lanes of vectors: broadcast, reductions and scans; and the numbers that lanes go by.

A reduction adds halves of the vector, then halves of the half (a tree), and a scan adds in steps of 1, 2, 4, … lanes:
sums of floating-point numbers are rounded in that order, not in the order of the lanes. Lanes that do not run take no
part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext, Emitters
from lamella.backend.cpu.emit.memory.addresses import first_lane, pick_lane, shuffle
from lamella.backend.cpu.emit.scalars import combine, identity, make_constant
from lamella.backend.cpu.emit.values import LLVM, ScalarValue, llvm
from lamella.lang.tensor.nodes import Builtin, SubgroupBroadcast, SubgroupOperation
from lamella.lang.tensor.nodes.types import COMPLEX, INTEGERS


def emit_builtin(context: EmitContext, instruction: Builtin) -> ScalarValue:
    """Give the number that a builtin stands for."""
    match instruction.name:
        case "group_id":
            return integers.dynamic(context.group_id)
        case "group_size":
            return integers.dynamic(context.group_count)
        case "num_subgroups":
            return integers.number(context.subgroups, "i32")
        case "subgroup_size":
            return integers.number(context.subgroup_size, "i32")
        case "subgroup_id" if context.subgroups > 1:
            return integers.dynamic(context.subgroup_id, "i32")
        case "subgroup_local_id" if context.lanes > 1:
            return integers.affine(context, "0", 1, "i32", divisor=0)
        case _:
            return integers.number(0, "i32")


# --- broadcast ----------------------------------------------------------------------------------------------


def emit_broadcast(context: EmitContext, instruction: SubgroupBroadcast) -> ScalarValue:
    """Emit the value of one lane for all; a lane that the subgroup does not have wraps round."""
    value, lane = context.scalar(instruction.operand.name), context.scalar(instruction.lane.name)
    if value.is_uniform:
        return value
    if isinstance(lane.constant, int):
        number = str(lane.constant % context.lanes)
    else:
        number = _within(context, lane if lane.is_uniform else _agreed(context, lane))
    return pick_lane(context, integers.spread(context, value), number)


def _within(context: EmitContext, lane: ScalarValue) -> str:
    low = context.out.value(f"and i32 {lane.operand}, {context.lanes - 1}")
    return context.out.value(f"zext i32 {low} to i64")


def _agreed(context: EmitContext, lane: ScalarValue) -> ScalarValue:
    """A number that all lanes which run have in common."""
    return pick_lane(context, integers.spread(context, lane), first_lane(context))


# --- reductions and scans -----------------------------------------------------------------------------------


def emit_operation(context: EmitContext, instruction: SubgroupOperation) -> ScalarValue:
    """Emit a reduction or a scan over the lanes."""
    value, function = context.scalar(instruction.operand.name), instruction.function
    if context.lanes == 1:
        return identity(function, value.element) if instruction.form == "exclusive_scan" else value
    lanes = _present(context, function, integers.spread(context, value))
    if instruction.form == "reduce":
        return reduce_lanes(context, function, lanes)
    scanned = _scan(context, function, lanes)
    return scanned if instruction.form == "inclusive_scan" else _exclude(context, function, scanned)


def reduce_lanes(context: EmitContext, function: str, value: ScalarValue) -> ScalarValue:
    """All lanes of a vector, whose number is a power of two, combined by add, max or min."""
    while value.count > 1:
        half = value.count // 2
        low, high = (_slice(context, value, start, half) for start in (0, half))
        value = combine(context, function, low, high)
    return value


def _slice(context: EmitContext, value: ScalarValue, start: int, count: int) -> ScalarValue:
    if count == 1:
        return pick_lane(context, value, str(start))
    return _move(context, value, None, range(start, start + count))


def _scan(context: EmitContext, function: str, value: ScalarValue) -> ScalarValue:
    """Each lane with all before it; a lane that has nobody so far before it stays as it is."""
    distance = 1
    while distance < context.lanes:
        lanes = range(context.lanes)
        before = _move(context, value, None, [max(0, lane - distance) for lane in lanes])
        both = combine(context, function, before, value)
        kept = [lane if lane < distance else context.lanes + lane for lane in lanes]
        value = _move(context, value, both, kept)
        distance *= 2
    return value


def _exclude(context: EmitContext, function: str, scanned: ScalarValue) -> ScalarValue:
    """Each lane with those before it alone; the first has nothing."""
    start = integers.spread(context, identity(function, scanned.element))
    moved = _move(context, start, scanned, [0, *range(context.lanes, 2 * context.lanes - 1)])
    return moved if context.mask is None else combine(context, function, start, moved)


def _move(
    context: EmitContext, first: ScalarValue, second: ScalarValue | None, lanes: Sequence[int]
) -> ScalarValue:
    """A vector of lanes of one value or two, part by part."""
    kind = llvm(first.element, first.count)
    others = ["poison"] * len(first.parts) if second is None else second.parts
    pairs = zip(first.parts, others, strict=True)
    parts = [shuffle(context, kind, one, other, lanes) for one, other in pairs]
    return ScalarValue(first.element, tuple(parts), len(lanes))


def _present(context: EmitContext, function: str, value: ScalarValue) -> ScalarValue:
    """The lanes that run; the others hold what changes nothing, and nothing is known of them as integers."""
    if context.mask is None:
        return ScalarValue(value.element, value.parts, value.count)
    kind, part = llvm(value.element, value.count), LLVM[value.element]
    chosen = [
        context.out.value(
            f"select <{value.count} x i1> {context.mask}, {kind} {operand}, {kind} splat ({part} {absent})"
        )
        for operand, absent in zip(value.parts, _absent(function, value.element).parts, strict=True)
    ]
    return ScalarValue(value.element, tuple(chosen), value.count)


def _absent(function: str, element: str) -> ScalarValue:
    """What changes no other value at all: 0 would make -0 positive, and infinity would hide NaN."""
    if element in INTEGERS:
        return identity(function, element)
    if element in COMPLEX:
        return make_constant((-0.0, -0.0), element)
    return make_constant(-0.0 if function == "add" else math.nan, element)


EMITTERS: Emitters = {
    Builtin: emit_builtin,
    SubgroupBroadcast: emit_broadcast,
    SubgroupOperation: emit_operation,
}
"""What emits each instruction of this kind."""
