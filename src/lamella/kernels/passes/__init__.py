"""Passes: each takes a program in the tensor language and gives another one that does the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from math import gcd
from typing import TypeAlias

from lamella.base.arena import Arena, aligned
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.liveness import last_uses
from lamella.base.records import dataclass, replace
from lamella.base.suggest import list_known
from lamella.base.watching import timed_pass
from lamella.kernels.build import Builder, FreshNames, names_of, regions
from lamella.kernels.fragments import keeps_components
from lamella.kernels.hazards import STACK_OFFSET, Memories, MemoryCell, conflict, find_memories, local_size
from lamella.kernels.passes.fold_constants import EFFECTS, fold_constants, fold_function
from lamella.kernels.passes.lower_foreach import lower_foreach
from lamella.kernels.passes.lower_linalg import lower_linalg
from lamella.kernels.passes.raise_loads import raise_loads
from lamella.kernels.passes.unroll import unroll
from lamella.kernels.rewrite import (
    change_functions,
    copy_region,
    make_names_unique,
    rename_region,
    rewrite,
    split_yield,
    used_values,
    walk,
    with_regions,
)
from lamella.kernels.sizes import choose_sizes, default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor import extensions
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.layout import component_count, component_place
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    Barrier,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopApply,
    CoopExtract,
    CoopInsert,
    Coopmatrix,
    Dictionary,
    DictionaryEntry,
    For,
    Foreach,
    Function,
    If,
    Instruction,
    LifetimeStop,
    Parallel,
    Program,
    Region,
    Scalar,
    SizeOf,
    Statement,
    Value,
)
from lamella.lang.tensor.rules import running as rules

# --- the pass that puts barriers where work-items would else see memory too early or too late ---------------


Accesses: TypeAlias = Mapping[MemoryCell, int]


def insert_barriers(program: Program, _: Target) -> Program:
    """A program in which conflicting statements of collective regions are separated by barriers."""
    return change_functions(program, _insert)


def _insert(function: Function) -> Function:
    outer = [item.instruction for item in function.body.statements if not _is_plain(item.instruction)]
    if len(outer) == 1 and isinstance(outer[0], Parallel):  # nothing stands before it or behind
        return function
    work = _Barriers(find_memories(function))
    return replace(function, body=rewrite(function.body, work.visit))


def _is_plain(instruction: Instruction) -> bool:
    """Whether an instruction gives a value of numbers alone."""
    return isinstance(instruction, (Constant, Builtin, Arith, Cast, Compare, SizeOf))


@dataclass(frozen=True, slots=True)
class Summary:
    """What statements do to memory as one: how each memory is accessed before a barrier and behind the last.

    `through` tells for global and for local memory whether some way leads past all barriers.
    """

    first: Accesses = field(default_factory=dict)
    last: Accesses = field(default_factory=dict)
    through: tuple[bool, bool] = (True, True)


NOTHING = Summary()


def _join(left: Accesses, right: Accesses) -> dict[MemoryCell, int]:
    found = dict(left)
    for cell, kind in right.items():
        found[cell] = found.get(cell, 0) | kind
    return found


def _passing(accesses: Accesses, through: tuple[bool, bool]) -> dict[MemoryCell, int]:
    """The accesses to memory that no barrier closes."""
    return {cell: kind for cell, kind in accesses.items() if through[cell.is_local]}


def _follow(before: Summary, behind: Summary) -> Summary:
    """What two pieces of a program do one after the other."""
    if behind is NOTHING or before is NOTHING:
        return before if behind is NOTHING else behind
    through = (before.through[0] and behind.through[0], before.through[1] and behind.through[1])
    first = _join(before.first, _passing(behind.first, before.through))
    return Summary(first, _join(_passing(before.last, behind.through), behind.last), through)


@dataclass(slots=True)
class _Barriers:
    """The pass on one function, region by region from the inside out."""

    memories: Memories
    summaries: dict[int, Summary] = field(default_factory=dict)
    """What regions do, by their identity: each stays alive in the one around it."""
    kept: list[Region] = field(default_factory=list)

    def visit(self, region: Region, spmd: bool) -> Region:
        """The region with its barriers."""
        path, found = NOTHING, []
        for statement in region.statements:
            if isinstance(statement.instruction, For) and not spmd:
                statement = self._separate_trips(statement, statement.instruction)
            summary = self._summary(statement.instruction)
            barrier = None if spmd else _needed(path.last, summary.first)
            if barrier is not None:
                path = _follow(path, _closed_by(barrier))
                found.append(Statement((), barrier, statement.span))
            path = _follow(path, summary)
            found.append(statement)
        return self._keep(_with(region, found), path)

    def _keep(self, region: Region, summary: Summary) -> Region:
        self.kept.append(region)
        self.summaries[id(region)] = summary
        return region

    def _separate_trips(self, statement: Statement, loop: For) -> Statement:
        """A loop whose trips do not disturb each other: where they would, each begins with a barrier."""
        summary = self.summaries[id(loop.body)]
        barrier = _needed(summary.last, summary.first)
        if barrier is None:
            return statement
        body = _with(loop.body, [Statement((), barrier, statement.span), *loop.body.statements])
        self._keep(body, _follow(_closed_by(barrier), summary))
        return replace(statement, instruction=with_regions(loop, [body]))

    def _summary(self, instruction: Instruction) -> Summary:
        if isinstance(instruction, Barrier):
            return _closed_by(instruction)
        inner = [self.summaries[id(region)] for region in regions(instruction)]
        if not inner:
            accesses: dict[MemoryCell, int] = {}
            for cell, kind in self.memories.accesses(instruction):
                accesses[cell] = accesses.get(cell, 0) | kind
            return Summary(accesses, accesses) if accesses else NOTHING
        if isinstance(instruction, If) and len(inner) == 2:
            return _either(*inner)
        if isinstance(instruction, For | Foreach | If):  # it may be that its region is never run
            return replace(inner[0], through=(True, True))
        return inner[0]


def _needed(before: Accesses, behind: Accesses) -> Barrier | None:
    """The barrier that separates accesses from those that follow; None where nothing conflicts."""
    spaces = {cell.is_local for cell, kind in behind.items() if conflict(before.get(cell, 0), kind)}
    return Barrier(False in spaces, True in spaces) if spaces else None


def _either(left: Summary, right: Summary) -> Summary:
    through = (left.through[0] or right.through[0], left.through[1] or right.through[1])
    return Summary(_join(left.first, right.first), _join(left.last, right.last), through)


def _closed_by(barrier: Barrier) -> Summary:
    return Summary(through=(not barrier.on_global, not barrier.on_local))


def _with(region: Region, statements: Sequence[Statement]) -> Region:
    return replace(region, statements=tuple(statements))


# --- the pass that gives each alloca its place in local memory: the lowest that is free for as long ---------


def place_locals(program: Program, target: Target) -> Program:
    """A program whose allocas have places; a kernel that needs more than the target has raises that as a finding."""
    return change_functions(program, lambda function: _place_locals_place(function, target))


def _place_locals_place(function: Function, target: Target) -> Function:
    places = _Stack(function.name, target)
    _walk(function.body, places)

    def visit(region: Region, _: bool) -> Region:
        return replace(region, statements=tuple(_placed(item, places.offsets) for item in region.statements))

    return replace(function, body=rewrite(function.body, visit)) if places.offsets else function


def _placed(statement: Statement, offsets: dict[str, int]) -> Statement:
    alloca = statement.instruction
    if not isinstance(alloca, Alloca) or not statement.results:
        return statement
    given = Dictionary() if alloca.attributes is None else alloca.attributes
    kept = [entry for entry in given.entries if entry.key != STACK_OFFSET]
    entries = sorted(
        [*kept, DictionaryEntry(STACK_OFFSET, offsets[statement.results[0].name])], key=lambda item: item.key
    )
    return replace(statement, instruction=replace(alloca, attributes=replace(given, entries=tuple(entries))))


def _walk(body: Region, stack: _Stack) -> None:
    """Follow the text: what a region allocates is free again at its end."""
    frames = [(iter(body.statements), 0)]
    while frames:
        statements, mark = frames[-1]
        statement = next(statements, None)
        if statement is None:
            stack.release(mark)
            frames.pop()
            continue
        match statement.instruction:
            case Alloca() as alloca if statement.results:
                stack.take(statement, alloca)
            case LifetimeStop(operand=operand):
                stack.free(operand.name)
            case instruction:
                inner = reversed(regions(instruction))
                frames += [(iter(region.statements), len(stack.taken)) for region in inner]


@dataclass(slots=True)
class _Stack:
    """Local memory while a function is walked: an arena, and the allocas that are alive in it."""

    name: str
    target: Target
    arena: Arena = field(default_factory=Arena)
    live: dict[str, tuple[int, int]] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    """What was allocated in the regions around the statement at hand, in order."""
    offsets: dict[str, int] = field(default_factory=dict)

    def release(self, mark: int) -> None:
        """Free what was allocated since a number of others were."""
        while len(self.taken) > mark:
            self.free(self.taken.pop())

    def free(self, name: str) -> None:
        """The end of a life; one that has ended already stays so."""
        place = self.live.pop(name, None)
        if place is not None:
            self.arena.free(*place)

    def take(self, statement: Statement, alloca: Alloca) -> None:
        """The lowest place that is free and aligned."""
        size, name = local_size(alloca.type), statement.results[0].name
        alignment = self._alignment(alloca)
        room = aligned(size, alignment)  # what padding would leave free fits nothing
        begin = self.arena.first_fit(room, alignment) if size else 0
        limit = self.target.local_bytes
        if begin + size > limit:
            values = {"name": self.name, "bytes": begin + size, "target": self.target.name, "limit": limit}
            raise LamellaError([rules.LOCAL_LIMIT.at(statement.span, hint=None, labels=(), **values)])
        self.offsets[name] = begin
        if size:
            self.live[name] = (begin, begin + room)
            self.taken.append(name)

    def _alignment(self, alloca: Alloca) -> int:
        asked = None if alloca.attributes is None else alloca.attributes.find("alignment")
        element = BYTES[alloca.type.element]
        return max(self.target.default_alignment, element, asked if isinstance(asked, int) else 1)


# --- the pass that writes extensions of the language in its other instructions: tiles, axes of a ------------


I32 = Scalar("i32")


def lower_extensions(program: Program, target: Target) -> Program:
    """A program without `foreach_tile`, axes and, but for tensor cores and tables, `cooperative_matrix_apply`."""
    return change_functions(program, lambda function: _lower_function(function, target))


def _lower_function(function: Function, target: Target) -> Function:
    if any(isinstance(item.instruction, CoopApply) for item in walk(function.body)):
        function = fold_function(function)  # before bodies are copied, not in each of the copies
        if target.tensor_cores and keeps_components(make_names_unique(function), target):
            return extensions.lower_extensions(make_names_unique(function), _keep_apply)
    lanes, names = default_sizes(function).subgroup_size, names_of(function)

    def lower_apply(statement: Statement, apply: CoopApply) -> Sequence[Statement]:
        if is_look_up(apply) and not target.has_threads:
            return _keep_apply(statement, apply)
        return _lower_apply(statement, apply, names, lanes)

    return extensions.lower_extensions(function, lower_apply)


def is_look_up(apply: CoopApply) -> bool:
    """Whether a body picks one of some numbers by the value alone: `v == a ? x : v == b ? y : …`."""
    compared = False
    for statement in split_yield(apply.body)[0]:
        match statement.instruction:
            case Compare(function="eq", left=left) if left == apply.value:
                compared = True
            case Constant() | Arith(function="select"):
                continue
            case _:
                return False
    return compared


def _keep_apply(statement: Statement, apply: CoopApply) -> Sequence[Statement]:
    return (replace(statement, instruction=apply),)


def _lower_apply(
    statement: Statement, apply: CoopApply, names: FreshNames, lanes: int
) -> Sequence[Statement]:
    builder = Builder(names, statement.span)
    lane = builder.builtin("subgroup_local_id", I32)
    matrix, shared = apply.operand, _take_shared(apply)
    parts: dict[int, CoopApply] = {}
    """What is left for each component of a row, what all of them share being computed."""
    for component in range(component_count(apply.type, lanes)):
        place = _place(builder, apply.type, lanes, lane, component)
        value = builder.value(CoopExtract(apply.operand, component, Scalar(apply.type.element)))
        first, last = (component_place(apply.type, lanes, item, component) for item in (0, lanes - 1))
        if first is None or last is None:  # no item between them lies farther out
            result = _apply_inside(builder, apply, place, value)
        elif apply.type.use == "matrix_b" or not shared:
            result = _write_body(builder, apply, (*place, value))
        else:
            if first[0] not in parts:
                parts[first[0]] = _write_shared(builder, apply, shared, place[0])
            result = _write_body(builder, parts[first[0]], (*place, value))
        matrix = builder.value(CoopInsert(result, matrix, component, apply.type))
    *rest, end = builder.statements
    return (*rest, replace(end, results=statement.results))


def _take_shared(apply: CoopApply) -> list[Statement]:
    """The statements of a body that depend on the row alone, where none of it has an effect."""
    if any(isinstance(item.instruction, EFFECTS) for item in walk(apply.body)):
        return []
    changing = {apply.column.name, apply.value.name}
    found = []
    for statement in split_yield(apply.body)[0]:
        inside = walk(Region((statement,)))
        if changing.isdisjoint(value.name for item in inside for value in used_values(item.instruction)):
            found.append(statement)
        else:
            changing |= {value.name for value in statement.results}
    return found


def _write_shared(builder: Builder, apply: CoopApply, shared: Sequence[Statement], row: Value) -> CoopApply:
    """Compute what the components of a row share; gives what is left of the body."""
    copied = copy_region(Region(tuple(shared)), builder.names, {apply.row.name: row})
    for item in copied.statements:
        builder.add_statement(item)
    made = {
        old.name: new
        for one, other in zip(shared, copied.statements, strict=True)
        for old, new in zip(one.results, other.results, strict=True)
    }
    own = {id(item) for item in shared}
    rest = tuple(item for item in apply.body.statements if id(item) not in own)
    return replace(apply, body=rename_region(Region(rest), made))


def _place(
    builder: Builder, type_: Coopmatrix, lanes: int, lane: Value, component: int
) -> tuple[Value, Value]:
    """The row and the column of a work-item's component."""
    if type_.use == "matrix_b":
        number = _add(builder, lane, component * lanes)
        rows = builder.constant(type_.rows, I32)
        return builder.arith("rem", number, rows, type_=I32), builder.arith("div", number, rows, type_=I32)
    side = gcd(type_.rows, lanes)
    row, column = component_place(type_, lanes, 0, component) or (0, 0)
    if side == lanes:
        return _add(builder, lane, row), builder.constant(column, I32)
    rows = builder.constant(side, I32)
    low, high = (builder.arith(function, lane, rows, type_=I32) for function in ("rem", "div"))
    return _add(builder, low, row), _add(builder, high, column)


def _add(builder: Builder, value: Value, number: int) -> Value:
    return value if number == 0 else builder.arith("add", value, builder.constant(number, I32), type_=I32)


def _write_body(builder: Builder, apply: CoopApply, given: Sequence[Value]) -> Value:
    """A copy of the body for one component; gives what it yields."""
    names = (apply.row.name, apply.column.name, apply.value.name)
    copied = copy_region(apply.body, builder.names, dict(zip(names, given, strict=True)))
    statements, (result,) = split_yield(copied)
    for item in statements:
        builder.add_statement(item)
    return result


def _apply_inside(builder: Builder, apply: CoopApply, place: tuple[Value, Value], value: Value) -> Value:
    """The body where the component is one of the matrix, else the value as it is, which nobody takes."""
    inside = builder.compare("lt", place[1], builder.constant(apply.type.columns, I32))
    then, otherwise = builder.inner(), builder.inner()
    then.give(_write_body(then, apply, (*place, value)))
    otherwise.give(value)
    element = Scalar(apply.type.element)
    return builder.value(If(inside, then.region(), otherwise.region(), (element,)))


# --- the pass that says where local memory is used for the last time, so that others may have it ------------


def stop_lifetimes(program: Program, _: Target) -> Program:
    """Liveness of local memory: each alloca is stopped behind its last use, through any view, in its own region."""
    return change_functions(program, _stop)


def _stop(function: Function) -> Function:
    if not any(isinstance(item.instruction, Alloca) for item in walk(function.body)):
        return function
    work = _Lifetimes(dict(find_memories(function).roots))
    return replace(function, body=rewrite(function.body, work.visit))


@dataclass(slots=True)
class _Lifetimes:
    """The pass on one function, region by region from the inside out."""

    roots: dict[str, str]
    used: dict[int, set[str]] = field(default_factory=dict)
    """The memories that regions use, by their identity."""
    kept: list[Region] = field(default_factory=list)
    """The regions themselves, which stay alive so."""

    def visit(self, region: Region, _: bool) -> Region:
        """The region with the ends of what it allocates; ends that it had before are made anew."""
        statements = [item for item in region.statements if not isinstance(item.instruction, LifetimeStop)]
        last = last_uses(map(self._uses, statements))
        found: list[Statement] = []
        stops = _stops(statements, last)
        for position, statement in enumerate(statements):
            found.append(statement)
            found += [Statement((), LifetimeStop(item), statement.span) for item in stops.get(position, ())]
        new = replace(region, statements=tuple(found))
        self.kept.append(new)
        self.used[id(new)] = set(last)
        return new

    def _uses(self, statement: Statement) -> set[str]:
        """The memories that a statement uses or makes views of, in its regions too."""
        own = {
            self.roots[item.name] for item in used_values(statement.instruction) if item.name in self.roots
        }
        for region in regions(statement.instruction):
            own |= self.used[id(region)]
        return own


def _stops(statements: list[Statement], last: dict[str, int]) -> dict[int, list[Value]]:
    """What ends behind which statement: an alloca that nobody uses ends at once."""
    found: dict[int, list[Value]] = {}
    for position, statement in enumerate(statements):
        if isinstance(statement.instruction, Alloca):
            for value in statement.results:
                found.setdefault(last.get(value.name, position), []).append(value)
    return found


# --- the pass that writes the sizes of a kernel into its attributes, so that all that follows can -----------


def write_sizes(function: Function, target: Target) -> Function:
    """The kernel with `subgroup_size` and `work_group_size`, as it asks for them or as they fit the target."""
    sizes = choose_sizes(function, target)
    given = Dictionary() if function.attributes is None else function.attributes
    chosen = (
        DictionaryEntry("subgroup_size", sizes.subgroup_size),
        DictionaryEntry("work_group_size", sizes.work_group_size),
    )
    kept = [entry for entry in given.entries if entry.key not in ("subgroup_size", "work_group_size")]
    entries = tuple(sorted([*kept, *chosen], key=lambda entry: entry.key))
    return replace(function, attributes=replace(given, entries=entries))


__all__ = ["PASSES", "Pass", "lower"]


@dataclass(frozen=True, slots=True)
class Pass:
    """A step on the way to machine code."""

    name: str
    run: Callable[[Program, Target], Program]


def _choose_sizes(program: Program, target: Target) -> Program:
    return change_functions(program, lambda function: write_sizes(function, target))


# Barriers come last: local memory that two allocas share one after the other must be left before it is taken again.
PASSES: tuple[Pass, ...] = (
    Pass("choose-sizes", _choose_sizes),
    Pass("lower-extensions", lower_extensions),
    Pass("unroll", unroll),
    Pass("lower-linalg", lower_linalg),
    Pass("lower-foreach", lower_foreach),
    Pass("fold-constants", fold_constants),
    Pass("raise-loads", raise_loads),
    Pass("stop-lifetimes", stop_lifetimes),
    Pass("place-locals", place_locals),
    Pass("insert-barriers", insert_barriers),
)
"""All passes in their order."""


def lower(program: Program, target: Target, after: str | None = None) -> Program:
    """What the passes make of a program without errors; all of them, or up to and with the one that is named."""
    names = [item.name for item in PASSES]
    if after is not None and after not in names:
        raise InputError(f"there is no pass '{after}'", hint=list_known(after, names, "passes are:"))
    found = program
    for name, changed in each_pass(program, target):
        found = changed
        if name == after:
            break
    return found


def each_pass(program: Program, target: Target) -> Iterator[tuple[str, Program]]:
    """What stands behind each pass, by its name, in their order."""
    found = change_functions(program, make_names_unique)
    for item in PASSES:
        with timed_pass(item.name):
            found = item.run(found, target)
        yield item.name, found
