"""SIMT emission: each work-item is a thread of its own, blocks are work-groups, warps are subgroups.

Values are scalars of a thread, so lanes, masks and the loops over subgroups of a processor are not needed. A subgroup
of fewer than 32 work-items is a part of a warp: what its threads do together names them alone, so that the others may
be elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from lamella.backend.arguments import written_parameters
from lamella.backend.cpu.emit import integers, subgroups
from lamella.backend.cpu.emit.context import EmitContext, Emitters
from lamella.backend.cpu.emit.scalars import combine, identity
from lamella.backend.cpu.emit.values import LLVM, MemrefValue, ScalarValue
from lamella.kernels.build import regions
from lamella.kernels.rewrite import walk
from lamella.lang.tensor.check.kinds import BYTES, component_of
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    Builtin,
    Cast,
    Compare,
    Constant,
    For,
    Function,
    If,
    Instruction,
    LifetimeStop,
    Load,
    Math,
    Memref,
    Parallel,
    SizeOf,
    SubgroupBroadcast,
    SubgroupOperation,
    Yield,
)

WARP = 32
GRAIN = 16
"""The granularity of a bulk prefetch in bytes."""
REGISTER = "llvm.nvvm.read.ptx.sreg"


def enter_thread(context: EmitContext, rows: int, local_bytes: int, together: int = 1) -> None:
    """Find out which work-item this is: its group, subgroup and lane, and where the local memory of the group lies.

    Of several work-groups that share a block those behind the last leave at once.
    """
    out = context.out
    block = out.intrinsic("i32", f"{REGISTER}.ctaid.x", "")
    context.group_id = out.value(f"zext i32 {block} to i64")
    row, column = (out.intrinsic("i32", f"{REGISTER}.tid.{axis}", "") for axis in "xy")
    if together > 1:
        first = out.value(f"mul i64 {context.group_id}, {together}")
        context.group_id = out.value(f"add i64 {first}, {out.value(f'zext i32 {column} to i64')}")
        column = "0"
        some, none = out.label("some"), out.label("none")
        out.branch(out.value(f"icmp slt i64 {context.group_id}, %groups"), some, none)
        out.begin(none)
        out.line("ret void")
        out.begin(some)
    size = context.subgroup_size
    context.lane = out.value(f"and i32 {row}, {size - 1}")
    tile = out.value(f"lshr i32 {row}, {size.bit_length() - 1}")
    before = out.value(f"mul i32 {column}, {rows // size}")
    context.subgroup_id = out.value(f"add i32 {before}, {tile}")
    if size < WARP:
        own = out.intrinsic("i32", f"{REGISTER}.laneid", "")
        first = out.value(f"and i32 {own}, {-size}")
        context.members = out.value(f"shl i32 {(1 << size) - 1}, {first}")
    if local_bytes:
        memory = f"@local_{local_bytes}"
        out.need(f"{memory} = internal addrspace(3) global [{local_bytes} x i8] undef, align 128")
        context.scratch = out.value(f"addrspacecast ptr addrspace(3) {memory} to ptr")


FETCHED_BYTES = (1 << 18, 48 << 20)
"""The sizes of an array that is worth a prefetch before the wait, and still stays in the cache."""
MOSTLY = 0.8
"""The part of all bytes of a kernel that such an array has: a matrix beside vectors."""


AHEAD = (128, 256, 384, 512)
"""Prefetch distances: the offsets in bytes of the slots of the next launches."""
PAGE = 4096
"""Bytes of memory that are there where one of them is."""


def _prefetch_slots(context: EmitContext) -> None:
    """Prefetch the slots of the next launches of a list, in the first work-group: the addresses of their arrays.

    Between two runs of a list the cache has held all its weights, so that they would wait for memory twice.
    """
    out = context.out
    fetch, skip = out.label("ahead"), out.label("on")
    out.branch(out.value(f"icmp eq i64 {context.group_id}, 0"), fetch, skip)
    out.begin(fetch)
    start = out.value("ptrtoint ptr %args to i64")
    page = out.value(f"and i64 {start}, {-PAGE}")
    for distance in AHEAD:
        # Not beyond the page: there may be nothing behind it.
        inside = out.value(f"and i64 {out.value(f'add i64 {start}, {distance}')}, {PAGE - 1}")
        place = out.value(f"or i64 {page}, {inside}")
        out.line(f'call void asm sideeffect "prefetch.global.L2 [$0];", "l"(i64 {place})')
    out.jump(skip)
    out.begin(skip)


def begin_early(context: EmitContext, function: Function, is_copied: bool) -> None:
    """Programmatic dependent launch: let dependents start, prefetch, and wait for the predecessor where TMA copies.

    A launch that settles lets its dependents start only when it has waited itself.
    """
    context.settles = function.attributes is not None and function.attributes.find("settles") is True
    if not context.settles:
        _launch_dependents(context)
    _prefetch_slots(context)
    if is_copied:
        wait_for_predecessor(context)
    else:
        _prefetch_matrix(context, function)
        context.waits = _find_early_arrays(function)


def _launch_dependents(context: EmitContext) -> None:
    """Programmatic dependent launch: let the next kernel start as soon as resources are free; it waits itself."""
    context.out.line('call void asm sideeffect "griddepcontrol.launch_dependents;", "~{memory}"()')


def _find_early_arrays(function: Function) -> frozenset[str]:
    """The arrays that may be read before the wait for the predecessor: those promised by the launch list.

    Those that are unchanging nobody writes while the list runs: weights. The writers of those that are settled have
    ended when this one starts, and this one reads nothing that counts where it writes: caches, positions.
    """
    return frozenset(
        item.value.name
        for item in function.parameters
        if item.attributes is not None
        and (item.attributes.find("unchanging") is True or item.attributes.find("settled") is True)
    )


NUMBERS = (Alloca, Arith, Builtin, Cast, Compare, Constant, LifetimeStop, Math, Parallel, SizeOf, Yield)
"""Instructions that touch no memory themselves."""


def wait_at_first_dependence(context: EmitContext, instruction: Instruction) -> None:
    """Wait for the predecessor where an instruction is the first that depends on it.

    Loads of weights that stand before it are in flight while that kernel still runs.
    """
    if context.waits is None:
        return
    if not _is_independent(instruction, context.waits):
        wait_for_predecessor(context)
    elif isinstance(instruction, If):
        # Else LLVM moves the loads before it behind it, where they wait for those that it makes.
        context.out.line('call void asm sideeffect "", "~{memory}"()')


def _is_independent(instruction: Instruction, early: frozenset[str], branch: bool = False) -> bool:
    """Whether an instruction touches early arrays alone: a branch that loads of them too.

    Work-items that begin in a branch would wait there, and those of the other branch would not.
    """
    if isinstance(instruction, If) or (branch and isinstance(instruction, Parallel)):
        return all(
            _is_independent(item.instruction, early, branch=True)
            for region in regions(instruction)
            for item in region.statements
        )
    is_load = isinstance(instruction, Load) and instruction.operand.name in early
    return is_load or isinstance(instruction, NUMBERS)


def _prefetch_matrix(context: EmitContext, function: Function) -> None:
    """Prefetch a large matrix to the second-level cache before the wait, a part in each work-group.

    Which part a work-group reads does not matter: together they fetch all of it. What a predecessor that still runs
    writes is only read behind the wait, whatever lies in the cache.
    """
    written = written_parameters(function)
    types = [(item.value.name, item.type) for item in function.parameters if isinstance(item.type, Memref)]
    sizes = {
        name: BYTES[type_.element] * prod(extent or 0 for extent in type_.shape) for name, type_ in types
    }
    least, most = FETCHED_BYTES
    name = max(sizes, key=sizes.__getitem__, default=None)
    if name is None or name in written or not least <= sizes[name] <= most:
        return
    if name in _find_early_arrays(function) and not _is_read_in_loops(function, name):
        return  # registers hold it before the wait
    matrix = context.values[name]
    if not isinstance(matrix, MemrefValue) or sizes[name] < MOSTLY * sum(sizes.values()):
        return
    out, size = context.out, sizes[name] // GRAIN * GRAIN
    fetch, skip = out.label("fetch"), out.label("fetched")
    first = out.value(f"or i32 {context.lane}, {context.subgroup_id}")
    out.branch(out.value(f"icmp eq i32 {first}, 0"), fetch, skip)
    out.begin(fetch)
    # Whole grains for each work-group; the last may have fewer, or none.
    rounded = out.value(f"add i64 %groups, {size // GRAIN - 1}")
    part = out.value(f"mul i64 {out.value(f'udiv i64 {rounded}, %groups')}, {GRAIN}")
    begin = out.value(f"mul i64 {context.group_id}, {part}")
    begin = out.value(
        f"select i1 {out.value(f'icmp ult i64 {begin}, {size}')}, i64 {begin}, i64 {size - GRAIN}"
    )
    rest = out.value(f"sub i64 {size}, {begin}")
    length = out.value(f"select i1 {out.value(f'icmp ult i64 {part}, {rest}')}, i64 {part}, i64 {rest}")
    place = out.value(f"addrspacecast ptr {matrix.pointer.operand} to ptr addrspace(1)")
    start = out.value(f"getelementptr i8, ptr addrspace(1) {place}, i64 {begin}")
    bytes_ = out.value(f"trunc i64 {length} to i32")
    out.line(
        'call void asm sideeffect "cp.async.bulk.prefetch.L2.global [$0], $1;", "l,r"'
        f"(ptr addrspace(1) {start}, i32 {bytes_})"
    )
    out.jump(skip)
    out.begin(skip)


def _is_read_in_loops(function: Function, name: str) -> bool:
    loops = [item.instruction for item in walk(function.body) if isinstance(item.instruction, For)]
    inside = (item.instruction for loop in loops for item in walk(loop.body))
    return any(isinstance(item, Load) and item.operand.name == name for item in inside)


def wait_for_predecessor(context: EmitContext) -> None:
    """Wait until the predecessor has ended (`griddepcontrol.wait`).

    Arrays that nobody writes are read by instructions that may move past any other (`ld.global.nc`): so their addresses
    are only known behind the wait, but for those that are read before.
    """
    out, early = context.out, context.waits or frozenset()
    context.waits = None
    out.line('call void asm sideeffect "griddepcontrol.wait;", "~{memory}"()')
    if context.settles:
        _launch_dependents(context)
    for name, value in context.values.items():
        if isinstance(value, MemrefValue) and name not in early and not value.type.local:
            place = out.value(f"addrspacecast ptr {value.pointer.operand} to ptr addrspace(1)")
            move = 'asm sideeffect "mov.b64 $0, $1;", "=l,l"'
            known = out.value(f"call ptr addrspace(1) {move}(ptr addrspace(1) {place})")
            pointer = out.value(f"addrspacecast ptr addrspace(1) {known} to ptr")
            context.values[name] = replace(value, pointer=ScalarValue("ptr", (pointer,)))


def block_barrier(context: EmitContext) -> None:
    """A barrier of the block (work-group)."""
    context.out.need("declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)")
    context.out.line("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)")


def warp_barrier(context: EmitContext) -> None:
    """A barrier of the subgroup."""
    context.out.need("declare void @llvm.nvvm.bar.warp.sync(i32)")
    context.out.line(f"call void @llvm.nvvm.bar.warp.sync(i32 {context.members})")


def is_first_lane(context: EmitContext) -> str:
    """Whether this is the first work-item of its subgroup, an i1."""
    return context.out.value(f"icmp eq i32 {context.lane}, 0")


def emit_builtin(context: EmitContext, instruction: Builtin) -> ScalarValue:
    """Give the number that a builtin stands for; a work-item knows itself which one it is."""
    own = {"subgroup_id": context.subgroup_id, "subgroup_local_id": context.lane}
    if instruction.name in own:
        return integers.dynamic(own[instruction.name], "i32")
    return subgroups.emit_builtin(context, instruction)


# --- what the work-items of a subgroup do together ----------------------------------------------------------


def emit_broadcast(context: EmitContext, instruction: SubgroupBroadcast) -> ScalarValue:
    """Emit the value of one lane for all."""
    lane = context.scalar(instruction.lane.name)
    return _shuffle(context, "idx", context.scalar(instruction.operand.name), lane.operand)


def from_lane(context: EmitContext, value: ScalarValue, lane: str) -> ScalarValue:
    """Shuffle: the value of the work-item whose number in the subgroup this one gives, an i32 operand."""
    return _shuffle(context, "idx", value, lane)


def choose(context: EmitContext, test: str, then: ScalarValue, otherwise: ScalarValue) -> ScalarValue:
    """One of two values by an i1 of this work-item."""
    kind = LLVM[then.element]
    pairs = zip(then.parts, otherwise.parts, strict=True)
    parts = [context.out.value(f"select i1 {test}, {kind} {one}, {kind} {other}") for one, other in pairs]
    return ScalarValue(then.element, tuple(parts))


def of_lane(context: EmitContext, value: ScalarValue, lane: int) -> ScalarValue:
    """Broadcast of the value of one work-item of the subgroup."""
    return _shuffle(context, "idx", value, str(lane))


def choose_lane(context: EmitContext, element: str, parts: Sequence[Sequence[str]]) -> ScalarValue:
    """Of the values for each work-item of a subgroup, part by part, the one of this work-item."""
    found = ScalarValue(element, tuple(part[0] for part in parts))
    for lane in range(1, len(parts[0])):
        own = ScalarValue(element, tuple(part[lane] for part in parts))
        found = _select(context, f"icmp eq i32 {context.lane}, {lane}", own, found)
    return found


def emit_operation(context: EmitContext, instruction: SubgroupOperation) -> ScalarValue:
    """Emit a reduction or a scan by shuffles over 1, 2, 4, … lanes."""
    value, function = context.scalar(instruction.operand.name), instruction.function
    distances = [1 << step for step in range(context.subgroup_size.bit_length() - 1)]
    if instruction.form == "reduce":
        return reduce_lanes(context, function, value)
    for distance in distances:
        below = _shuffle(context, "up", value, str(distance))
        value = _select(
            context,
            f"icmp uge i32 {context.lane}, {distance}",
            combine(context, function, below, value),
            value,
        )
    if instruction.form == "inclusive_scan":
        return value
    before = _shuffle(context, "up", value, "1")
    return _select(context, f"icmp eq i32 {context.lane}, 0", identity(function, value.element), before)


def reduce_lanes(
    context: EmitContext, function: str, value: ScalarValue, distances: Sequence[int] = ()
) -> ScalarValue:
    """Butterfly reduction over the subgroup, or over the lanes that differ in some bits of their numbers."""
    every = [1 << step for step in reversed(range(context.subgroup_size.bit_length() - 1))]
    for distance in distances or every:
        value = combine(context, function, value, _shuffle(context, "bfly", value, str(distance)))
    return value


def _select(context: EmitContext, condition: str, then: ScalarValue, otherwise: ScalarValue) -> ScalarValue:
    return choose(context, context.out.value(condition), then, otherwise)


def _shuffle(context: EmitContext, way: str, value: ScalarValue, distance: str) -> ScalarValue:
    """The value of another lane, part by part."""
    parts = [_shuffle_part(context, way, component_of(value.element), part, distance) for part in value.parts]
    return ScalarValue(value.element, tuple(parts))


def _shuffle_part(context: EmitContext, way: str, element: str, operand: str, distance: str) -> str:
    out, width, kind = context.out, 8 * BYTES[element], LLVM[element]
    bits = operand if kind.startswith("i") else out.value(f"bitcast {kind} {operand} to i{width}")
    if element == "bool":
        width = 1
    words = _split(context, bits, width)
    moved = [_shuffle_word(context, way, word, distance) for word in words]
    joined = _join(context, moved, width)
    return joined if kind.startswith("i") else out.value(f"bitcast i{width} {joined} to {kind}")


def _split(context: EmitContext, bits: str, width: int) -> list[str]:
    """The words of 32 bits of a number."""
    if width == 32:
        return [bits]
    if width < 32:
        return [context.out.value(f"zext i{width} {bits} to i32")]
    low = context.out.value(f"trunc i64 {bits} to i32")
    high = context.out.value(f"lshr i64 {bits}, 32")
    return [low, context.out.value(f"trunc i64 {high} to i32")]


def _join(context: EmitContext, words: Sequence[str], width: int) -> str:
    if width == 32:
        return words[0]
    if width < 32:
        return context.out.value(f"trunc i32 {words[0]} to i{width}")
    low, high = (context.out.value(f"zext i32 {word} to i64") for word in words)
    moved = context.out.value(f"shl i64 {high}, 32")
    return context.out.value(f"or i64 {low}, {moved}")


def _shuffle_word(context: EmitContext, way: str, word: str, distance: str) -> str:
    """The word of another thread; the bound keeps a shuffle inside the part of the warp that the subgroup is."""
    bound = (WARP - context.subgroup_size << 8) | (0 if way == "up" else WARP - 1)
    operands = f"i32 {context.members}, i32 {word}, i32 {distance}, i32 {bound}"
    return context.out.intrinsic("i32", f"llvm.nvvm.shfl.sync.{way}.i32", operands)


EMITTERS: Emitters = {
    Builtin: emit_builtin,
    SubgroupBroadcast: emit_broadcast,
    SubgroupOperation: emit_operation,
}
"""What emits each instruction of this kind."""
