"""Programs taken apart and put together again: values of instructions, walks over regions, copies with new names.

All walks are loops, so nesting costs no stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice, takewhile
from operator import is_, is_not
from types import MappingProxyType
from typing import TypeAlias, cast, get_args

from lamella.base.records import dataclass, replace
from lamella.kernels.build import HOLDERS, FreshNames, names_of, regions
from lamella.kernels.fold import wrap
from lamella.lang.tensor import result_types
from lamella.lang.tensor.check.context import defined_values
from lamella.lang.tensor.nodes import (
    Constant,
    CoopApply,
    CoopExtract,
    Coopmatrix,
    For,
    Foreach,
    ForeachTile,
    Function,
    If,
    Instruction,
    Number,
    Parallel,
    Program,
    Region,
    Scalar,
    Slice,
    Statement,
    Type,
    Value,
    Yield,
)
from lamella.lang.tensor.nodes.types import INTEGERS

Renaming: TypeAlias = Mapping[str, Value]
Visit: TypeAlias = Callable[[Region, bool], Region]
"""Makes a region of one whose inner regions are made already; the flag tells whether it is an SPMD region."""
VALUE_FIELDS: Mapping[type, tuple[str, ...]] = MappingProxyType(
    {
        kind: tuple(
            field.name
            for field in fields(kind)
            if any(word in str(field.type) for word in ("Value", "Slice", "IndexOrSize"))
        )
        for kind in get_args(Instruction)
    }
)
"""The fields of each instruction that hold values."""
FIELDS = MappingProxyType(
    {kind: tuple(field.name for field in fields(kind) if field.init) for kind in get_args(Instruction)}
)
"""All fields of each instruction, in order."""


# --- values of an instruction -------------------------------------------------------------------------------


def used_values(instruction: Instruction) -> Sequence[Value]:
    """The values that an instruction itself reads, those of its regions left out."""
    if type(instruction) in HOLDERS:
        return _used_by_holder(instruction)
    found: list[Value] = []
    for name in VALUE_FIELDS[type(instruction)]:
        _collect_values(getattr(instruction, name), found)
    return found


def _used_by_holder(instruction: Instruction) -> Sequence[Value]:
    match instruction:
        case For(begin=begin, end=end, step=step, carried=carried):
            return (begin, end, *(() if step is None else (step,)), *(start for _, start in carried))
        case Foreach(begins=begins, ends=ends) | ForeachTile(begins=begins, ends=ends):
            return (*begins, *ends)
        case CoopApply(operand=operand):
            return (operand,)
        case If(condition=condition):
            return (condition,)
        case _:
            return ()


def _collect_values(part: object, found: list[Value]) -> None:
    kind = type(part)
    if kind is Value:
        found.append(cast(Value, part))
    elif kind is tuple:
        for item in cast(tuple[object, ...], part):
            _collect_values(item, found)
    elif isinstance(part, Slice):
        found += [item for item in (part.offset, part.size) if isinstance(item, Value)]


def rename_values(instruction: Instruction, renaming: Renaming) -> Instruction:
    """An instruction with other names for its values, read or defined; its regions stay."""
    changes: dict[str, object] = {}
    kind = type(instruction)
    for name in VALUE_FIELDS[kind]:
        old = getattr(instruction, name)
        new = _renamed(old, renaming)
        if new is not old:
            changes[name] = new
    if not changes:
        return instruction
    # What `replace` of dataclasses does, without looking at the fields each time.
    make: Callable[..., Instruction] = kind
    return make(*[changes[name] if name in changes else getattr(instruction, name) for name in FIELDS[kind]])


def _renamed(part: object, renaming: Renaming) -> object:
    kind = type(part)
    if kind is Value:
        return renaming.get(cast(Value, part).name, part)
    if kind is tuple:
        return _renamed_all(cast(tuple[object, ...], part), renaming)
    if isinstance(part, Slice):
        offset, size = _renamed(part.offset, renaming), _renamed(part.size, renaming)
        return (
            part if offset is part.offset and size is part.size else Slice(cast(int, offset), cast(int, size))
        )
    return part


def _renamed_all(part: tuple[object, ...], renaming: Renaming) -> tuple[object, ...]:
    found = tuple([_renamed(item, renaming) for item in part])
    return part if all(map(is_, found, part)) else found


def with_regions(instruction: Instruction, found: Sequence[Region]) -> Instruction:
    """An instruction with other regions, as many as it has."""
    if isinstance(instruction, For | Foreach | ForeachTile | Parallel | CoopApply):
        return replace(instruction, body=found[0])
    if isinstance(instruction, If):
        return replace(instruction, then=found[0], otherwise=found[1] if len(found) > 1 else None)
    return instruction


# --- walks --------------------------------------------------------------------------------------------------


def walk(region: Region) -> Iterator[Statement]:
    """All statements in the order of the text, each before those of its regions."""
    waiting = [iter(region.statements)]
    while waiting:
        for statement in waiting[-1]:
            yield statement
            if type(statement.instruction) in HOLDERS:
                inner = regions(statement.instruction)
                waiting += [iter(item.statements) for item in reversed(inner)]
                break
        else:
            waiting.pop()


@dataclass(slots=True)
class _OpenRegion:
    """A region that is being rewritten, and what is done of it."""

    region: Region
    spmd: bool
    done: list[Statement]
    made: list[Region]
    """The new regions of the statement at hand."""


def _has_no_region(statement: Statement) -> bool:
    return type(statement.instruction) not in HOLDERS


def rewrite(region: Region, visit: Visit, spmd: bool = False) -> Region:
    """A region made anew from the inside out."""
    frames = [_OpenRegion(region, spmd, [], [])]
    while True:
        frame = frames[-1]
        if len(frame.done) == len(frame.region.statements):
            frames.pop()
            found = visit(with_statements(frame.region, frame.done), frame.spmd)
            if not frames:
                return found
            frames[-1].made.append(found)
            continue
        statement = frame.region.statements[len(frame.done)]
        if type(statement.instruction) not in HOLDERS:
            rest = islice(frame.region.statements, len(frame.done), None)
            frame.done += takewhile(_has_no_region, rest)
            continue
        inner = regions(statement.instruction)
        if len(frame.made) < len(inner):
            below = frame.spmd or isinstance(statement.instruction, Foreach | ForeachTile | Parallel)
            frames.append(_OpenRegion(inner[len(frame.made)], below, [], []))
            continue
        if any(map(is_not, frame.made, inner)):
            statement = replace(statement, instruction=with_regions(statement.instruction, frame.made))
        frame.done.append(statement)
        frame.made = []


def with_statements(region: Region, statements: Sequence[Statement]) -> Region:
    """A region with other statements; itself where they are the same, so that what is around it stays too."""
    if len(statements) == len(region.statements) and all(map(is_, statements, region.statements)):
        return region
    return replace(region, statements=tuple(statements))


def rename_region(region: Region, renaming: Renaming) -> Region:
    """A region in which values have other names, read or defined, down to the innermost region."""

    def visit(found: Region, _: bool = False) -> Region:
        return with_statements(found, [_rename_statement(item, renaming) for item in found.statements])

    if not renaming:
        return region
    flat = HOLDERS.isdisjoint(type(item.instruction) for item in region.statements)
    return visit(region) if flat else rewrite(region, visit)


def _rename_statement(statement: Statement, renaming: Renaming) -> Statement:
    results = tuple(renaming.get(item.name, item) for item in statement.results)
    instruction = rename_values(statement.instruction, renaming)
    if instruction is statement.instruction and results == statement.results:
        return statement
    return Statement(results, instruction, span=statement.span, notes=statement.notes)


def copy_region(region: Region, names: FreshNames, given: Renaming) -> Region:
    """A copy of a region whose own values have new names; `given` replaces values from outside."""
    fresh = {value.name: names.new() for value in defined_values(region)}
    return rename_region(region, {**fresh, **given})


# --- functions ----------------------------------------------------------------------------------------------


def change_functions(program: Program, change: Callable[[Function], Function]) -> Program:
    """A program with each function changed."""
    return replace(program, functions=tuple(change(item) for item in program.functions))


def make_names_unique(function: Function) -> Function:
    """The function with a name of its own for each value: regions side by side may use one name twice."""
    seen: set[str] = {item.value.name for item in function.parameters}
    twice: set[str] = set()
    for value in defined_values(function.body):
        (twice if value.name in seen else seen).add(value.name)
    if not twice:
        return function
    names = names_of(function)

    def visit(region: Region, _: bool) -> Region:
        own = {value.name: names.new() for value in _own_values(region) if value.name in twice}
        return rename_region(region, own)

    return replace(function, body=rewrite(_rename_loops(function.body, twice, names), visit))


def _own_values(region: Region) -> Iterator[Value]:
    """The values that the statements of a region itself define."""
    return (value for statement in region.statements for value in statement.results)


def _rename_loops(region: Region, twice: set[str], names: FreshNames) -> Region:
    """What loops define inside their regions; a result of theirs may have the same name, so this comes first."""

    def visit(found: Region, _: bool) -> Region:
        return with_statements(found, [_own_loop(item, twice, names) for item in found.statements])

    return rewrite(region, visit)


def _own_loop(statement: Statement, twice: set[str], names: FreshNames) -> Statement:
    instruction = statement.instruction
    if not isinstance(instruction, For | Foreach | ForeachTile | CoopApply):
        return statement
    renaming = {value.name: names.new() for value in loop_values(instruction) if value.name in twice}
    if not renaming:
        return statement
    body = rename_region(instruction.body, renaming)
    # No value that the head reads has the name of one that it defines: that would have been visible already.
    found = with_regions(rename_values(instruction, renaming), (body,))
    return replace(statement, instruction=found)


def loop_values(loop: For | Foreach | ForeachTile | CoopApply) -> tuple[Value, ...]:
    """The values that a loop or an apply defines for its body."""
    match loop:
        case Foreach(variables=variables):
            return variables
        case ForeachTile(variables=variables, sizes=sizes):
            return (*variables, *sizes)
        case CoopApply(row=row, column=column, value=value):
            return (row, column, value)
        case For(variable=variable, carried=carried):
            return (variable, *(value for value, _ in carried))


def types_of(function: Function) -> dict[str, Type]:
    """The type of each value of a function in which no name stands for two."""
    found: dict[str, Type] = {item.value.name: item.type for item in function.parameters}
    for statement in walk(function.body):
        found.update(defined_types(statement))
    return found


def defined_types(statement: Statement) -> Iterator[tuple[str, Type]]:
    """The names and types of what a statement defines: its results, and the variables of a loop."""
    instruction = statement.instruction
    names = (value.name for value in statement.results)
    yield from zip(names, result_types(instruction), strict=False)
    if isinstance(instruction, For):
        yield instruction.variable.name, instruction.type
        yield from zip((value.name for value, _ in instruction.carried), instruction.types, strict=False)
    elif isinstance(instruction, Foreach):
        yield from ((value.name, instruction.type) for value in instruction.variables)
    elif isinstance(instruction, ForeachTile):
        inner = (*instruction.variables, *instruction.sizes)
        yield from ((value.name, instruction.type) for value in inner)
    elif isinstance(instruction, CoopApply):
        yield from ((value.name, Scalar("i32")) for value in (instruction.row, instruction.column))
        yield instruction.value.name, Scalar(instruction.type.element)


def extracted_matrices(function: Function) -> dict[int, Coopmatrix]:
    """The type of the matrix that each extract takes a component of, by the id of the node.

    A name means what it was given last in the text: one that is visible is not given again.
    """
    known: dict[str, Type] = {}
    found: dict[int, Coopmatrix] = {}
    for statement in walk(function.body):
        node = statement.instruction
        kind = known.get(node.operand.name) if isinstance(node, CoopExtract) else None
        if isinstance(kind, Coopmatrix):
            found[id(node)] = kind
        known.update(defined_types(statement))
    return found


def constants_of(function: Function) -> dict[str, Number]:
    """The scalar constants of a function in which no name stands for two values."""
    found: dict[str, Number] = {}
    for statement in walk(function.body):
        number = constant_value(statement.instruction)
        if number is not None and statement.results:
            found[statement.results[0].name] = number
    return found


def constant_value(instruction: Instruction) -> Number | None:
    """The number that a scalar constant is: an integer that is too large for its type keeps its low bits."""
    if not isinstance(instruction, Constant) or not isinstance(instruction.type, Scalar):
        return None
    value, element = instruction.value, instruction.type.name
    return wrap(value, element) if isinstance(value, int) and element in INTEGERS else value


def split_yield(region: Region) -> tuple[tuple[Statement, ...], tuple[Value, ...]]:
    """The statements of a region without its yield, and what that yields."""
    last = region.statements[-1].instruction if region.statements else None
    if isinstance(last, Yield):
        return region.statements[:-1], last.values
    return region.statements, ()


def count_statements(statements: Iterable[Statement]) -> int:
    """How many statements there are, those of inner regions included."""
    return sum(1 for _ in walk(Region(tuple(statements))))
