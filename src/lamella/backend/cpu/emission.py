"""From a program to text for LLVM: checked, lowered in its own language, emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod

from lamella.backend.arguments import written_parameters
from lamella.backend.cpu.compiled import Compiled, KernelSymbol
from lamella.backend.cpu.emit import fragments, matrices, memory, scalars, subgroups, threads, warps
from lamella.backend.cpu.emit.context import EmitContext, Emitters
from lamella.backend.cpu.emit.control.phases import (
    Merge,
    SpillTable,
    any_lane,
    both,
    choose,
    count_uses,
    emit_phases,
    less,
    masked,
    others,
    settle,
)
from lamella.backend.cpu.emit.integers import WIDTHS, add, first_of, number, spread
from lamella.backend.cpu.emit.mathematics import emit_math
from lamella.backend.cpu.emit.matrices import (
    constant_matrix,
    emit_tile_loop,
    find_long_code,
)
from lamella.backend.cpu.emit.memory import (
    load_parameter,
    make_local,
)
from lamella.backend.cpu.emit.pipeline_plan import WIDE, PipelinePlan, find_pipeline
from lamella.backend.cpu.emit.pipelines import ProductEmitter
from lamella.backend.cpu.emit.scalars import emit_constant
from lamella.backend.cpu.emit.scalars.byte_pairs import load_pair, note_pairs
from lamella.backend.cpu.emit.stream_plan import StreamPlan, find_stream
from lamella.backend.cpu.emit.text import IrWriter
from lamella.backend.cpu.emit.threads import (
    begin_early,
    enter_thread,
    wait_at_first_dependence,
    wait_for_predecessor,
)
from lamella.backend.cpu.emit.tile_streams import StreamEmitter
from lamella.backend.cpu.emit.values import LLVM, MemrefValue, RunValue, ScalarValue
from lamella.backend.cpu.emit.varying import find_varying
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.gc import gc_paused
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.kernels.fragments import suits_fragments
from lamella.kernels.hazards import local_bytes, stack_offset
from lamella.kernels.passes import lower
from lamella.kernels.rewrite import walk as walk_region
from lamella.kernels.sizes import check_sizes, default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor import check
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Alloca,
    Barrier,
    Constant,
    Coopmatrix,
    For,
    Foreach,
    Function,
    If,
    LifetimeStop,
    Math,
    Memref,
    Parallel,
    Program,
    Region,
    Statement,
    Store,
    Value,
    Yield,
)
from lamella.lang.tensor.nodes.types import STORED_FLOATS

# --- `for`: one counter where all lanes agree, a mask of running lanes where they do not --------------------


LARGEST_TWICE = 60
"""Statements of a body that is written twice: for whole vectors, and for the rest."""


@dataclass(slots=True)
class LoopBlocks:
    """A loop while it is written."""

    node: For
    begin: ScalarValue
    end: ScalarValue
    step: ScalarValue
    varying: Sequence[bool]
    """Which carried values differ from lane to lane."""


def emit_for(context: EmitContext, node: For, results: Sequence[Value]) -> list[RunValue]:
    """Write a loop; its results are settled values."""
    if node.carried and isinstance(node.types[0], Coopmatrix):
        tiles = emit_tile_loop(context, node)
        if tiles is not None:
            return list(tiles)
    begin, end = context.scalar(node.begin.name), context.scalar(node.end.name)
    step = context.scalar(node.step.name) if node.step is not None else number(1, begin.element)
    varying = [name.name in context.varying for name, _ in node.carried]
    course = LoopBlocks(node, begin, end, step, varying)
    start = [
        settle(context, context.values[value.name], wide)
        for (_, value), wide in zip(node.carried, varying, strict=True)
    ]
    if begin.is_uniform and end.is_uniform and step.is_uniform:
        return _agreed(context, course, start)
    if _has_even_lanes(context, course):
        course.begin, start = _whole_vectors(context, course, start)
    return _diverged(context, course, start)


def _agreed(context: EmitContext, course: LoopBlocks, start: list[RunValue]) -> list[RunValue]:
    """All lanes run the same trips."""
    divisor = gcd(course.begin.divisor, course.step.divisor)
    return _trips(context, course, start, course.begin, course.end.operand, divisor)[1]


def _trips(
    context: EmitContext,
    course: LoopBlocks,
    start: list[RunValue],
    begin: ScalarValue,
    end: str,
    divisor: int,
) -> tuple[ScalarValue, list[RunValue]]:
    """Count from a uniform number (or the one of lane 0) up to an end; gives the counter and the values after."""
    out, kind = context.out, LLVM[begin.element]
    first = begin.base if begin.base is not None else begin.operand
    body, after, before = out.label("loop"), out.label("done"), out.block
    entered = _is_entered(course, begin, end)
    if not entered:
        out.branch(out.value(f"icmp slt {kind} {first}, {end}"), body, after)
    else:
        out.jump(body)
    out.begin(body)
    counter = replace(begin, parts=(), base=first, constant=None, divisor=divisor)
    if begin.is_uniform:
        counter = ScalarValue(begin.element, (first,), divisor=divisor)
    merge = Merge(context, [counter, *start])
    merge.receive([counter, *start], before)
    now, *carried = merge.values
    values = _body(context, course, now, carried)
    following = add(context, _as_lanes(now), course.step)
    condition = out.value(f"icmp slt {kind} {first_of(following)}, {end}")
    merge.receive([following, *values], out.block)
    merge.close()
    end_block = out.block
    out.branch(condition, body, after)
    out.begin(after)
    if entered:
        return _as_lanes(following), values
    left = Merge(context, [counter, *start])
    left.receive([counter, *start], before)
    left.receive([following, *values], end_block)
    last, *rest = left.close()
    return _as_lanes(last), rest


def _is_entered(course: LoopBlocks, begin: ScalarValue, end: str) -> bool:
    """Whether it is known that there is a trip."""
    known = begin.constant
    return isinstance(known, int) and end.lstrip("-").isdigit() and known < int(end)


def _as_lanes(value: RunValue) -> ScalarValue:
    if not isinstance(value, ScalarValue):
        raise TypeError("a loop counts integers")
    return value


def _body(
    context: EmitContext, course: LoopBlocks, now: RunValue, carried: Sequence[RunValue]
) -> list[RunValue]:
    context.values[course.node.variable.name] = now
    for (name, _), value in zip(course.node.carried, carried, strict=True):
        context.values[name.name] = value
    found = context.walk(context, course.node.body.statements)
    return [settle(context, value, wide) for value, wide in zip(found, course.varying, strict=True)]


def _has_even_lanes(context: EmitContext, course: LoopBlocks) -> bool:
    """Whether lanes count side by side to a common end, so that whole vectors need no mask."""
    begin, step = course.begin, course.step.constant
    return (
        context.mask is None
        and begin.base is not None
        and begin.step > 0
        and course.end.is_uniform
        and isinstance(step, int)
        and step > 0
        and _ahead(context, begin) < 1 << (WIDTHS[begin.element] - 1)
        and _is_small(course.node.body)
    )


def _ahead(context: EmitContext, begin: ScalarValue) -> int:
    """How far the last lane is ahead of the first."""
    return (context.lanes - 1) * begin.step


def _is_small(region: Region) -> bool:
    """Whether a body may be written twice."""
    inner = any(isinstance(item.instruction, For | Foreach | If) for item in region.statements)
    return not inner and len(region.statements) <= LARGEST_TWICE


def _whole_vectors(
    context: EmitContext, course: LoopBlocks, start: list[RunValue]
) -> tuple[ScalarValue, list[RunValue]]:
    """The trips in which every lane runs: as long as the last one does."""
    begin, kind = course.begin, LLVM[course.begin.element]
    # An end near the least number must not wrap to a limit near the largest.
    operands = f"{kind} {course.end.operand}, {kind} {_ahead(context, begin)}"
    limit = context.out.intrinsic(kind, f"llvm.ssub.sat.{kind}", operands)
    divisor = gcd(begin.divisor, course.step.divisor)
    return _trips(context, course, start, begin, limit, divisor)


def _diverged(context: EmitContext, course: LoopBlocks, start: list[RunValue]) -> list[RunValue]:
    """Lanes run until each has reached its end."""
    out = context.out
    begin = course.begin
    if begin.is_uniform or (begin.base is not None and course.step.is_uniform):
        begin = replace(begin, constant=None)
    else:
        begin = _plain(context, begin)
    if not course.step.is_uniform:
        begin = _plain(context, begin)
    active = both(context, context.mask, less(context, begin, course.end))
    wide = [settle(context, value, True) for value in start]
    body, after, before = out.label("lanes"), out.label("done"), out.block
    out.branch(any_lane(context, active), body, after)
    out.begin(body)
    running = ScalarValue("bool", (active,), context.lanes)
    merge = Merge(context, [begin, running, *wide])
    merge.receive([begin, running, *wide], before)
    now, mask, *carried = merge.values
    lanes = _as_lanes(mask).operand
    with masked(context, lanes):
        values = _body(context, course, now, carried)
    values = [choose(context, lanes, new, old) for new, old in zip(values, carried, strict=True)]
    following = add(context, _as_lanes(now), course.step)
    still = both(context, lanes, less(context, following, course.end))
    merge.receive([following, ScalarValue("bool", (still,), context.lanes), *values], out.block)
    merge.close()
    end = out.block
    out.branch(any_lane(context, still), body, after)
    out.begin(after)
    left = Merge(context, wide)
    left.receive(wide, before)
    left.receive(values, end)
    return left.close()


def _plain(context: EmitContext, value: ScalarValue) -> ScalarValue:
    """An integer of each lane of which nothing is known."""
    wide = spread(context, value)
    return ScalarValue(wide.element, wide.parts, context.lanes)


# --- statements in order: each instruction is given to the part that emits its kind -------------------------


# --- `if`: a jump where all lanes agree, masks where they do not --------------------------------------------


def emit_if(context: EmitContext, node: If, results: Sequence[Value]) -> list[RunValue]:
    """Write a branch; its results are settled values."""
    condition = context.scalar(node.condition.name)
    varying = [item.name in context.varying for item in results]
    if isinstance(condition.constant, bool):
        taken = node.then if condition.constant else node.otherwise
        return _side(context, taken, varying)
    if condition.is_uniform:
        return _jump(context, condition.operand, node, varying)
    return _diverge(context, condition.operand, node, varying)


def _side(context: EmitContext, region: Region | None, varying: Sequence[bool]) -> list[RunValue]:
    values = context.walk(context, region.statements) if region is not None else ()
    return [settle(context, value, wide) for value, wide in zip(values, varying, strict=bool(varying))]


def _jump(context: EmitContext, condition: str, node: If, varying: Sequence[bool]) -> list[RunValue]:
    out = context.out
    then, otherwise, after = out.label("then"), out.label("else"), out.label("after")
    out.branch(condition, then, otherwise if node.otherwise is not None else after)
    out.begin(then)
    first, from_first = _side(context, node.then, varying), out.block
    out.jump(after)
    if node.otherwise is None:
        out.begin(after)
        return []
    out.begin(otherwise)
    second, from_second = _side(context, node.otherwise, varying), out.block
    out.jump(after)
    out.begin(after)
    merge = Merge(context, first)
    merge.receive(first, from_first)
    merge.receive(second, from_second)
    return merge.close()


def _diverge(context: EmitContext, condition: str, node: If, varying: Sequence[bool]) -> list[RunValue]:
    first = _guarded(context, both(context, context.mask, condition), node.then, varying)
    if node.otherwise is None:
        return []
    second = _guarded(
        context, both(context, context.mask, others(context, condition)), node.otherwise, varying
    )
    return [choose(context, condition, one, other) for one, other in zip(first, second, strict=True)]


def _guarded(context: EmitContext, mask: str, region: Region, varying: Sequence[bool]) -> list[RunValue]:
    """Some lanes run a region; where none does it is jumped over, so that a region always has a running lane."""
    out = context.out
    some, after, before = out.label("some"), out.label("none"), out.block
    out.branch(any_lane(context, mask), some, after)
    out.begin(some)
    with masked(context, mask):
        values = _side(context, region, varying)
    end = out.block
    out.jump(after)
    out.begin(after)
    merge = Merge(context, values)
    merge.receive(values, end)
    merge.receive_nothing(before)
    return merge.close()


def _emit_constant(context: EmitContext, node: Constant) -> RunValue:
    if not isinstance(node.type, Coopmatrix):
        return emit_constant(context, node)
    if context.fragments:
        return fragments.constant_matrix(context, node)
    return warps.constant_matrix(context, node) if context.threads else constant_matrix(context, node)


EMIT: Emitters = {
    Constant: _emit_constant,
    Math: emit_math,
    **scalars.EMITTERS,
    **memory.EMITTERS,
    **matrices.EMITTERS,
    **subgroups.EMITTERS,
}
"""What emits each instruction that has no region."""


THREADS: Emitters = {**EMIT, **threads.EMITTERS, **warps.EMITTERS}
"""What emits each instruction where each work-item is a thread."""
FRAGMENTS: Emitters = {**THREADS, **fragments.EMITTERS}
"""The same where the tensor cores compute products."""


def _emitters(context: EmitContext) -> Emitters:
    if not context.threads:
        return EMIT
    return FRAGMENTS if context.fragments else THREADS


def walk(context: EmitContext, statements: Sequence[Statement]) -> tuple[RunValue, ...]:
    """Emit statements; gives what the last of them yields."""
    note_pairs(context, statements)
    for statement in statements:
        instruction = statement.instruction
        if context.stream is not None and context.stream.take(statement):
            continue
        if isinstance(instruction, Yield):
            return tuple(context.values[item.name] for item in instruction.values)
        comment_source(context, statement.span)
        _emit(context, statement)
    return ()


def _emit(context: EmitContext, statement: Statement) -> None:
    instruction = statement.instruction
    wait_at_first_dependence(context, instruction)
    if context.pairs and load_pair(context, statement):
        return
    if isinstance(instruction, For):
        _name(context, statement, emit_for(context, instruction, statement.results))
    elif isinstance(instruction, If):
        _name(context, statement, emit_if(context, instruction, statement.results))
    elif isinstance(instruction, Parallel):
        emit_parallel(context, instruction)
    elif isinstance(instruction, Alloca):
        _name(context, statement, [make_local(context, instruction.type, stack_offset(instruction) or 0)])
    elif isinstance(instruction, Barrier):
        if context.threads:
            threads.block_barrier(context)
    elif not isinstance(instruction, LifetimeStop):
        found = _emitters(context)[type(instruction)](context, instruction)
        _name(context, statement, [] if found is None else [found])


def _name(context: EmitContext, statement: Statement, values: Sequence[RunValue]) -> None:
    for name, value in zip(statement.results, values, strict=False):
        context.values[name.name] = value


def comment_source(context: EmitContext, span: Span) -> None:
    """Show the line of the source that the code comes from, once for neighbouring statements of one line."""
    if not span.source.text:
        return
    line = span.text.partition("\n")[0].strip()
    if line and line != context.shown:
        context.out.comment(line[:100])
        context.shown = line


def emit_parallel(context: EmitContext, node: Parallel) -> None:
    """All work-items of the group run the body: lanes of a subgroup at once, subgroups one after the other."""
    context.lanes, context.collective = 1 if context.threads else context.subgroup_size, False
    if context.threads or context.subgroups == 1:
        walk(context, node.body.statements)
    else:
        emit_phases(context, node.body.statements, SpillTable(used=count_uses(node.body)))
    context.lanes, context.collective = 1, True


BLOCK_ITEMS = 128
"""Work-items of a block of several work-groups."""


# --- A lowered program as one LLVM module: a function for each kernel that runs a range of its --------------


def emit_program(program: Program, lowered: Program, target: Target, symbols: Sequence[str] = ()) -> Compiled:
    """The LLVM text of a program that the passes have lowered for a target; symbols are numbered unless given."""
    declarations: dict[str, None] = {}
    definitions, entries = [], []
    names = symbols or [f"kernel_{place}" for place in range(len(lowered.functions))]
    for symbol, function in zip(names, lowered.functions, strict=True):
        out = IrWriter(declarations=declarations)
        context = _enter(function, out, target)
        plan = _find_plan(context, function)
        together = _together(context, function) if plan is None else 1
        threads = context.items * together if plan is None else plan.threads
        if context.threads:
            _emit_thread(context, function, plan, together)
        else:
            _emit_range(context, function)
        bound = None if function.attributes is None else function.attributes.find("registers")
        registers = bound if isinstance(bound, int) and plan is None else None
        definitions.append(_define(symbol, context, threads, plan is not None, registers))
        pipeline = None if plan is None else plan.pipeline
        size = local_bytes(function)
        entries.append(KernelSymbol(function.name, symbol, size, pipeline, together, context.early))
    text = "\n\n".join(["\n".join(declarations), *definitions])
    return Compiled(text + "\n", tuple(entries), program, lowered)


def _is_other_pipeline(function: Function, target: Target) -> bool:
    """Whether a kernel multiplies numbers of single precision or of 8 bits that the copy engine brings."""
    kinds = ((WIDE,), STORED_FLOATS) if target.has_warpgroups else ()
    fits = any(suits_fragments(function, target, kind) for kind in kinds)
    return fits and find_pipeline(function, target) is not None


def _find_plan(context: EmitContext, function: Function) -> PipelinePlan | StreamPlan | None:
    """How a copy engine feeds a kernel, where one does."""
    if not context.fragments:
        return None
    return find_pipeline(function, context.target) or find_stream(function, context.target)


LEAST_REGISTERS, MOST_REGISTERS = 24, 255
"""Of a work-item of a GPU."""


def _define(symbol: str, context: EmitContext, threads: int, alone: bool, registers: int | None) -> str:
    """The definition of a kernel; one for threads gets no range, because each work-group finds out who it is.

    It says how many threads a block has: else registers might not do for them. One that is `alone` on its
    multiprocessor has all of them; another one may be bounded by its text.
    """
    head = f"define void @{symbol}(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch) nounwind {{"
    if context.threads:
        most = f'"nvvm.maxntid"="{threads}"' + ' "nvvm.minctasm"="1"' * alone
        if registers is not None:
            most += f' "nvvm.maxnreg"="{min(max(registers, LEAST_REGISTERS), MOST_REGISTERS)}"'
        head = f"define ptx_kernel void @{symbol}(ptr %args, i64 %groups) nounwind {most} {{"
    return f"{head}\nentry:\n{context.out.body()}\n}}"


def _enter(function: Function, out: IrWriter, target: Target) -> EmitContext:
    sizes = default_sizes(function)
    size, (rows, columns) = sizes.subgroup_size, sizes.work_group_size
    return EmitContext(
        out,
        target,
        walk,
        find_varying(function) if size > 1 else frozenset(),
        subgroup_size=size,
        subgroups=rows // size * columns,
        items=rows * columns,
        group_count="%groups",
        scratch="%scratch",
        threads=target.has_threads,
        fragments=suits_fragments(function, target) or _is_other_pipeline(function, target),
        early=target.has_dependent_launch and not _streams(function),
    )


LARGE_BYTES = 1 << 25
"""Arrays of a kernel that take longer than a start."""


def _streams(function: Function) -> bool:
    """Whether a kernel reads and writes much in turns: then its loads must pass its stores, and it starts late.

    Only loads of memory that never changes do so, and that of a kernel which starts early does.
    """
    types = [item.type for item in function.parameters if isinstance(item.type, Memref)]
    size = sum(BYTES[item.element] * prod(extent or 1 for extent in item.shape) for item in types)
    loops = [item.instruction for item in walk_region(function.body) if isinstance(item.instruction, For)]
    stores = any(isinstance(item.instruction, Store) for loop in loops for item in walk_region(loop.body))
    return size > LARGE_BYTES and stores


def _load_parameters(context: EmitContext, function: Function) -> None:
    slot, written = 0, written_parameters(function)
    for parameter in function.parameters:
        value, slot = load_parameter(context, parameter, slot)
        if isinstance(value, MemrefValue) and parameter.value.name not in written:
            value = replace(value, fixed=True)  # a launch refuses arrays that overlap one which is written
        context.values[parameter.value.name] = value


def _together(context: EmitContext, function: Function) -> int:
    """How many work-groups are one block: a multiprocessor has more room for threads than for blocks of one warp."""
    shares = local_bytes(function) or any(
        isinstance(item.instruction, Barrier) for item in walk_region(function.body)
    )
    alone = context.threads and context.subgroups == 1 and not shares
    return max(1, BLOCK_ITEMS // context.items) if alone else 1


def _emit_thread(
    context: EmitContext, function: Function, plan: PipelinePlan | StreamPlan | None, together: int
) -> None:
    """One work-item of one work-group; with a plan, of one work-group after another."""
    context.items = 1  # each of them runs the collective regions itself
    enter_thread(context, default_sizes(function).work_group_size[0], local_bytes(function), together)
    _load_parameters(context, function)
    if context.early:
        begin_early(context, function, is_copied=plan is not None)
    if plan is not None:
        if isinstance(plan, StreamPlan):
            StreamEmitter(context, plan).emit()
        else:
            ProductEmitter(context, plan).emit()
        return
    walk(context, function.body.statements)
    if context.waits is not None:
        wait_for_predecessor(context)  # the one behind waits for this one alone
    context.out.line("ret void")


def _emit_range(context: EmitContext, function: Function) -> None:
    """Parameters are read once; then a loop over the work-groups of the range."""
    _load_parameters(context, function)
    _emit_groups(context, function)
    context.out.line("ret void")


def _emit_groups(context: EmitContext, function: Function) -> None:
    out = context.out
    before, body, after = out.label("start"), out.label("group"), out.label("done")
    out.jump(before)
    out.begin(before)
    out.branch(out.value("icmp slt i64 %first, %last"), body, after)
    out.begin(body)
    hole, context.group_id = out.hole(), out.name()
    walk(context, function.body.statements)
    following = out.value(f"add i64 {context.group_id}, 1")
    out.fill(hole, f"{context.group_id} = phi i64 [%first, %{before}], [{following}, %{out.block}]")
    out.branch(out.value(f"icmp slt i64 {following}, %last"), body, after)
    out.begin(after)


def _in_registers(program: Program, target: Target) -> Program:
    """The kernels whose matrices are all in registers: tiles that are streamed are not."""
    held = [
        item
        for item in program.functions
        if not (suits_fragments(item, target) and find_stream(item, target) is not None)
    ]
    return replace(program, functions=tuple(held))


def emit(program: Program, target: Target) -> Compiled:
    """The LLVM text of a program for a target; a program with errors raises them."""
    verify(program, target)
    return _emit_verified(program, target)


def verify(program: Program, target: Target) -> None:
    """Raise what is wrong with a program."""
    with gc_paused():
        found = errors(check(program, memory=False)) or [
            item for function in program.functions for item in check_sizes(function, target)
        ]
    if found:
        raise LamellaError(found)


def emit_kernel(program: Program, target: Target, number: int, symbol: str) -> Compiled:
    """The LLVM text of one kernel of a program without errors, under a symbol."""
    kernel = program.functions[number]
    return _emit_verified(replace(program, functions=(kernel,)), target, [symbol])


def _emit_verified(program: Program, target: Target, symbols: Sequence[str] = ()) -> Compiled:
    with gc_paused():
        lowered = lower(program, target)
        found = find_long_code(_in_registers(lowered, target))
        if found:
            raise LamellaError(found)
        return emit_program(program, lowered, target, symbols)
