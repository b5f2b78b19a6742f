"""From a program to text for LLVM: checked, lowered in its own language, emitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd

from lamella.backend.cpu.compiled import Compiled, Entry
from lamella.backend.cpu.emit import threads
from lamella.backend.cpu.emit.control.carry import Merge, choose, settle
from lamella.backend.cpu.emit.control.masks import any_lane, both, less, masked, others
from lamella.backend.cpu.emit.control.phases import Phases, count_uses, emit_phases
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.integers import WIDTHS, add, first_of, number, spread
from lamella.backend.cpu.emit.mathematics import emit_math
from lamella.backend.cpu.emit.matrices import (
    constant_matrix,
    emit_construct,
    emit_coop_load,
    emit_coop_store,
    emit_extract,
    emit_insert,
    emit_mul_add,
    emit_scale,
    emit_tile_loop,
    find_long_code,
)
from lamella.backend.cpu.emit.memory import (
    emit_expand,
    emit_fuse,
    emit_load,
    emit_size,
    emit_store,
    emit_subview,
    emit_update,
    load_parameter,
    make_local,
)
from lamella.backend.cpu.emit.scalars import emit_arith, emit_cast, emit_compare, emit_constant
from lamella.backend.cpu.emit.subgroups import emit_broadcast, emit_builtin, emit_operation
from lamella.backend.cpu.emit.text import Writer
from lamella.backend.cpu.emit.threads import enter_thread
from lamella.backend.cpu.emit.values import LLVM, Lanes, RunValue
from lamella.backend.cpu.emit.varying import find_varying
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.gc import gc_paused
from lamella.base.source import Span
from lamella.kernels.locals import local_bytes, stack_offset
from lamella.kernels.passes import lower
from lamella.kernels.sizes import check_sizes, default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor import check
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    AtomicUpdate,
    Barrier,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopScale,
    CoopStore,
    Expand,
    For,
    Foreach,
    Function,
    Fuse,
    If,
    LifetimeStop,
    Load,
    Math,
    Parallel,
    Program,
    Region,
    SizeOf,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Subview,
    Value,
    Yield,
)

# --- `for`: one counter where all lanes agree, a mask of running lanes where they do not --------------------


LARGEST_TWICE = 60
"""Statements of a body that is written twice: for whole vectors, and for the rest."""


@dataclass(slots=True)
class Course:
    """A loop while it is written."""

    node: For
    begin: Lanes
    end: Lanes
    step: Lanes
    varying: Sequence[bool]
    """Which carried values differ from lane to lane."""


def emit_for(here: Here, node: For, results: Sequence[Value]) -> list[RunValue]:
    """Write a loop; its results are settled values."""
    if node.carried and isinstance(node.types[0], Coopmatrix):
        tiles = emit_tile_loop(here, node)
        if tiles is not None:
            return list(tiles)
    begin, end = here.scalar(node.begin.name), here.scalar(node.end.name)
    step = here.scalar(node.step.name) if node.step is not None else number(1, begin.element)
    varying = [name.name in here.varying for name, _ in node.carried]
    course = Course(node, begin, end, step, varying)
    start = [
        settle(here, here.values[value.name], wide)
        for (_, value), wide in zip(node.carried, varying, strict=True)
    ]
    if begin.is_uniform and end.is_uniform and step.is_uniform:
        return _agreed(here, course, start)
    if _has_even_lanes(here, course):
        course.begin, start = _whole_vectors(here, course, start)
    return _diverged(here, course, start)


def _agreed(here: Here, course: Course, start: list[RunValue]) -> list[RunValue]:
    """All lanes run the same trips."""
    divisor = gcd(course.begin.divisor, course.step.divisor)
    return _trips(here, course, start, course.begin, course.end.operand, divisor)[1]


def _trips(
    here: Here, course: Course, start: list[RunValue], begin: Lanes, end: str, divisor: int
) -> tuple[Lanes, list[RunValue]]:
    """Count from a uniform number (or the one of lane 0) up to an end; gives the counter and the values after."""
    out, kind = here.out, LLVM[begin.element]
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
        counter = Lanes(begin.element, (first,), divisor=divisor)
    merge = Merge(here, [counter, *start])
    merge.receive([counter, *start], before)
    now, *carried = merge.values
    values = _body(here, course, now, carried)
    following = add(here, _as_lanes(now), course.step)
    condition = out.value(f"icmp slt {kind} {first_of(following)}, {end}")
    merge.receive([following, *values], out.block)
    merge.close()
    end_block = out.block
    out.branch(condition, body, after)
    out.begin(after)
    if entered:
        return _as_lanes(following), values
    left = Merge(here, [counter, *start])
    left.receive([counter, *start], before)
    left.receive([following, *values], end_block)
    last, *rest = left.close()
    return _as_lanes(last), rest


def _is_entered(course: Course, begin: Lanes, end: str) -> bool:
    """Whether it is known that there is a trip."""
    known = begin.constant
    return isinstance(known, int) and end.lstrip("-").isdigit() and known < int(end)


def _as_lanes(value: RunValue) -> Lanes:
    if not isinstance(value, Lanes):
        raise TypeError("a loop counts integers")
    return value


def _body(here: Here, course: Course, now: RunValue, carried: Sequence[RunValue]) -> list[RunValue]:
    here.values[course.node.variable.name] = now
    for (name, _), value in zip(course.node.carried, carried, strict=True):
        here.values[name.name] = value
    found = here.walk(here, course.node.body.statements)
    return [settle(here, value, wide) for value, wide in zip(found, course.varying, strict=True)]


def _has_even_lanes(here: Here, course: Course) -> bool:
    """Whether lanes count side by side to a common end, so that whole vectors need no mask."""
    begin, step = course.begin, course.step.constant
    return (
        here.mask is None
        and begin.base is not None
        and begin.step > 0
        and course.end.is_uniform
        and isinstance(step, int)
        and step > 0
        and _ahead(here, begin) < 1 << (WIDTHS[begin.element] - 1)
        and _is_small(course.node.body)
    )


def _ahead(here: Here, begin: Lanes) -> int:
    """How far the last lane is ahead of the first."""
    return (here.lanes - 1) * begin.step


def _is_small(region: Region) -> bool:
    """Whether a body may be written twice."""
    inner = any(isinstance(item.instruction, For | Foreach | If) for item in region.statements)
    return not inner and len(region.statements) <= LARGEST_TWICE


def _whole_vectors(here: Here, course: Course, start: list[RunValue]) -> tuple[Lanes, list[RunValue]]:
    """The trips in which every lane runs: as long as the last one does."""
    begin, kind = course.begin, LLVM[course.begin.element]
    # An end near the least number must not wrap to a limit near the largest.
    operands = f"{kind} {course.end.operand}, {kind} {_ahead(here, begin)}"
    limit = here.out.intrinsic(kind, f"llvm.ssub.sat.{kind}", operands)
    divisor = gcd(begin.divisor, course.step.divisor)
    return _trips(here, course, start, begin, limit, divisor)


def _diverged(here: Here, course: Course, start: list[RunValue]) -> list[RunValue]:
    """Lanes run until each has reached its end."""
    out = here.out
    begin = course.begin
    if begin.is_uniform or (begin.base is not None and course.step.is_uniform):
        begin = replace(begin, constant=None)
    else:
        begin = _plain(here, begin)
    if not course.step.is_uniform:
        begin = _plain(here, begin)
    active = both(here, here.mask, less(here, begin, course.end))
    wide = [settle(here, value, True) for value in start]
    body, after, before = out.label("lanes"), out.label("done"), out.block
    out.branch(any_lane(here, active), body, after)
    out.begin(body)
    running = Lanes("bool", (active,), here.lanes)
    merge = Merge(here, [begin, running, *wide])
    merge.receive([begin, running, *wide], before)
    now, mask, *carried = merge.values
    lanes = _as_lanes(mask).operand
    with masked(here, lanes):
        values = _body(here, course, now, carried)
    values = [choose(here, lanes, new, old) for new, old in zip(values, carried, strict=True)]
    following = add(here, _as_lanes(now), course.step)
    still = both(here, lanes, less(here, following, course.end))
    merge.receive([following, Lanes("bool", (still,), here.lanes), *values], out.block)
    merge.close()
    end = out.block
    out.branch(any_lane(here, still), body, after)
    out.begin(after)
    left = Merge(here, wide)
    left.receive(wide, before)
    left.receive(values, end)
    return left.close()


def _plain(here: Here, value: Lanes) -> Lanes:
    """An integer of each lane of which nothing is known."""
    wide = spread(here, value)
    return Lanes(wide.element, wide.parts, here.lanes)


# --- statements in order: each instruction is given to the part that emits its kind -------------------------


# --- `if`: a jump where all lanes agree, masks where they do not --------------------------------------------


def emit_if(here: Here, node: If, results: Sequence[Value]) -> list[RunValue]:
    """Write a branch; its results are settled values."""
    condition = here.scalar(node.condition.name)
    varying = [item.name in here.varying for item in results]
    if isinstance(condition.constant, bool):
        taken = node.then if condition.constant else node.otherwise
        return _side(here, taken, varying)
    if condition.is_uniform:
        return _jump(here, condition.operand, node, varying)
    return _diverge(here, condition.operand, node, varying)


def _side(here: Here, region: Region | None, varying: Sequence[bool]) -> list[RunValue]:
    values = here.walk(here, region.statements) if region is not None else ()
    return [settle(here, value, wide) for value, wide in zip(values, varying, strict=bool(varying))]


def _jump(here: Here, condition: str, node: If, varying: Sequence[bool]) -> list[RunValue]:
    out = here.out
    then, otherwise, after = out.label("then"), out.label("else"), out.label("after")
    out.branch(condition, then, otherwise if node.otherwise is not None else after)
    out.begin(then)
    first, from_first = _side(here, node.then, varying), out.block
    out.jump(after)
    if node.otherwise is None:
        out.begin(after)
        return []
    out.begin(otherwise)
    second, from_second = _side(here, node.otherwise, varying), out.block
    out.jump(after)
    out.begin(after)
    merge = Merge(here, first)
    merge.receive(first, from_first)
    merge.receive(second, from_second)
    return merge.close()


def _diverge(here: Here, condition: str, node: If, varying: Sequence[bool]) -> list[RunValue]:
    first = _guarded(here, both(here, here.mask, condition), node.then, varying)
    if node.otherwise is None:
        return []
    second = _guarded(here, both(here, here.mask, others(here, condition)), node.otherwise, varying)
    return [choose(here, condition, one, other) for one, other in zip(first, second, strict=True)]


def _guarded(here: Here, mask: str, region: Region, varying: Sequence[bool]) -> list[RunValue]:
    """Some lanes run a region; where none does it is jumped over, so that a region always has a running lane."""
    out = here.out
    some, after, before = out.label("some"), out.label("none"), out.block
    out.branch(any_lane(here, mask), some, after)
    out.begin(some)
    with masked(here, mask):
        values = _side(here, region, varying)
    end = out.block
    out.jump(after)
    out.begin(after)
    merge = Merge(here, values)
    merge.receive(values, end)
    merge.receive_nothing(before)
    return merge.close()


EMIT: dict[type, Callable[..., RunValue | None]] = {
    Constant: lambda here, node: (
        constant_matrix(here, node) if isinstance(node.type, Coopmatrix) else emit_constant(here, node)
    ),
    Arith: emit_arith,
    Compare: emit_compare,
    Math: emit_math,
    Cast: emit_cast,
    Builtin: emit_builtin,
    Load: emit_load,
    Store: emit_store,
    AtomicUpdate: emit_update,
    SizeOf: emit_size,
    Subview: emit_subview,
    Expand: emit_expand,
    Fuse: emit_fuse,
    CoopLoad: emit_coop_load,
    CoopMulAdd: emit_mul_add,
    CoopScale: emit_scale,
    CoopStore: emit_coop_store,
    CoopConstruct: emit_construct,
    CoopExtract: emit_extract,
    CoopInsert: emit_insert,
    SubgroupBroadcast: emit_broadcast,
    SubgroupOperation: emit_operation,
}
"""What emits each instruction that has no region."""


def _store_together(here: Here, instruction: CoopStore) -> None:
    """Store a matrix that all threads of a subgroup hold: when all have it, and by one of them."""
    out = here.out
    threads.wait_for_subgroup(here)
    store, after = out.label("store"), out.label("stored")
    out.branch(threads.is_first_lane(here), store, after)
    out.begin(store)
    emit_coop_store(here, instruction)
    out.jump(after)
    out.begin(after)
    threads.wait_for_subgroup(here)


THREADS: dict[type, Callable[..., RunValue | None]] = {
    Builtin: threads.emit_builtin,
    CoopStore: _store_together,
    SubgroupBroadcast: threads.emit_broadcast,
    SubgroupOperation: threads.emit_operation,
}
"""What is emitted in another way where each work-item is a thread."""


def walk(here: Here, statements: Sequence[Statement]) -> tuple[RunValue, ...]:
    """Emit statements; gives what the last of them yields."""
    for statement in statements:
        instruction = statement.instruction
        if isinstance(instruction, Yield):
            return tuple(here.values[item.name] for item in instruction.values)
        comment_source(here, statement.span)
        _emit(here, statement)
    return ()


def _emit(here: Here, statement: Statement) -> None:
    instruction = statement.instruction
    if isinstance(instruction, For):
        _name(here, statement, emit_for(here, instruction, statement.results))
    elif isinstance(instruction, If):
        _name(here, statement, emit_if(here, instruction, statement.results))
    elif isinstance(instruction, Parallel):
        emit_parallel(here, instruction)
    elif isinstance(instruction, Alloca):
        _name(here, statement, [make_local(here, instruction.type, stack_offset(instruction) or 0)])
    elif isinstance(instruction, Barrier):
        if here.threads:
            threads.wait_for_group(here)
    elif not isinstance(instruction, LifetimeStop):
        emit = THREADS.get(type(instruction)) if here.threads else None
        found = (emit or EMIT[type(instruction)])(here, instruction)
        _name(here, statement, [] if found is None else [found])


def _name(here: Here, statement: Statement, values: Sequence[RunValue]) -> None:
    for name, value in zip(statement.results, values, strict=False):
        here.values[name.name] = value


def comment_source(here: Here, span: Span) -> None:
    """Show the line of the source that the code comes from, once for neighbouring statements of one line."""
    if not span.source.text:
        return
    line = span.text.partition("\n")[0].strip()
    if line and line != here.shown:
        here.out.comment(line[:100])
        here.shown = line


def emit_parallel(here: Here, node: Parallel) -> None:
    """All work-items of the group run the body: lanes of a subgroup at once, subgroups one after the other."""
    here.lanes, here.collective = 1 if here.threads else here.subgroup_size, False
    if here.threads or here.subgroups == 1:
        walk(here, node.body.statements)
    else:
        emit_phases(here, node.body.statements, Phases(used=count_uses(node.body)))
    here.lanes, here.collective = 1, True


# --- A lowered program as one LLVM module: a function for each kernel that runs a range of its --------------


def emit_program(program: Program, lowered: Program, target: Target) -> Compiled:
    """The LLVM text of a program that the passes have lowered for a target."""
    declarations: dict[str, None] = {}
    definitions, entries = [], []
    for place, function in enumerate(lowered.functions):
        out = Writer(declarations=declarations)
        symbol = f"kernel_{place}"
        here = _enter(function, out, target)
        if here.threads:
            _emit_thread(here, function)
        else:
            _emit_range(here, function)
        definitions.append(_define(symbol, here))
        entries.append(Entry(function.name, symbol, local_bytes(function)))
    text = "\n\n".join(["\n".join(declarations), *definitions])
    return Compiled(text + "\n", tuple(entries), program, lowered)


def _define(symbol: str, here: Here) -> str:
    """The definition of a kernel; one for threads gets no range, because each work-group finds out who it is."""
    head = f"define void @{symbol}(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch) nounwind {{"
    if here.threads:
        head = f"define ptx_kernel void @{symbol}(ptr %args, i64 %groups) nounwind {{"
    return f"{head}\nentry:\n{here.out.body()}\n}}"


def _enter(function: Function, out: Writer, target: Target) -> Here:
    sizes = default_sizes(function)
    size, (rows, columns) = sizes.subgroup_size, sizes.work_group_size
    return Here(
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
    )


def _load_parameters(here: Here, function: Function) -> None:
    slot = 0
    for parameter in function.parameters:
        here.values[parameter.value.name], slot = load_parameter(here, parameter, slot)


def _emit_thread(here: Here, function: Function) -> None:
    """One work-item of one work-group."""
    here.items = 1  # each of them runs the collective regions itself
    enter_thread(here, default_sizes(function).work_group_size[0], local_bytes(function))
    _load_parameters(here, function)
    walk(here, function.body.statements)
    here.out.line("ret void")


def _emit_range(here: Here, function: Function) -> None:
    """Parameters are read once; then a loop over the work-groups of the range."""
    _load_parameters(here, function)
    _emit_groups(here, function)
    here.out.line("ret void")


def _emit_groups(here: Here, function: Function) -> None:
    out = here.out
    before, body, after = out.label("start"), out.label("group"), out.label("done")
    out.jump(before)
    out.begin(before)
    out.branch(out.value("icmp slt i64 %first, %last"), body, after)
    out.begin(body)
    hole, here.group_id = out.hole(), out.name()
    walk(here, function.body.statements)
    following = out.value(f"add i64 {here.group_id}, 1")
    out.fill(hole, f"{here.group_id} = phi i64 [%first, %{before}], [{following}, %{out.block}]")
    out.branch(out.value(f"icmp slt i64 {following}, %last"), body, after)
    out.begin(after)


def emit(program: Program, target: Target) -> Compiled:
    """The LLVM text of a program for a target; a program with errors raises them."""
    with gc_paused():
        found = errors(check(program, memory=False)) or [
            item for function in program.functions for item in check_sizes(function, target)
        ]
        if found:
            raise LamellaError(found)
        lowered = lower(program, target)
        found = find_long_code(lowered)
        if found:
            raise LamellaError(found)
        return emit_program(program, lowered, target)
