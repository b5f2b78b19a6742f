"""The pass that raises loads for machines whose work-items are threads, which then wait for all of them at once.

Threads issue their instructions in order, and no assembler moves a load past a store that might write what it reads, or
past a division, which is a branch to it. Here it is known: a memref that a kernel only loads from is none that it
writes, since a launch refuses arrays that overlap. So loads stand where the statements begin that run in a row, with
what computes their places. Those of memory that no other kernel writes either stand where the work-items begin: a GPU
runs them while the kernel before still works.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from lamella.kernels.build import FreshNames, names_of
from lamella.kernels.rewrite import (
    change_functions,
    copy_region,
    make_names_unique,
    rename_region,
    rewrite,
    used_values,
    walk,
    with_statements,
)
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Arith,
    Barrier,
    Builtin,
    Cast,
    Compare,
    Constant,
    Function,
    If,
    Load,
    Math,
    Memref,
    Parallel,
    Program,
    Region,
    Scalar,
    SizeOf,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Value,
    Yield,
)
from lamella.lang.tensor.nodes.types import INTEGERS

PURE = (Arith, Builtin, Cast, Compare, Constant, SizeOf)
"""Instructions that may be run earlier, whatever is between."""
PLAIN = (*PURE, Load, Math, Store, SubgroupBroadcast, SubgroupOperation, Yield)
"""Instructions that loads may be moved across."""
MOST_BYTES = 512
"""What a work-item loads at once, at most: registers hold it until it is used."""
EARLY_BYTES = 448
"""The same of what it loads before anything else."""
NUMBER_BYTES = 32
"""The same of single numbers."""
BRANCH_BYTES = 128
"""The same of what a branch behind a barrier loads."""
WHOLE_NUMBERS = tuple(map(Scalar, INTEGERS))


def raise_loads(program: Program, target: Target) -> Program:
    """A program whose loads of memory that nobody writes stand above what is computed before them, on threads."""
    return change_functions(program, _raise_function) if target.has_threads else program


def _raise_function(function: Function) -> Function:
    function = make_names_unique(function)
    statements = [item.instruction for item in walk(function.body)]
    others = {
        item.name
        for instruction in statements
        if not isinstance(instruction, Load | SizeOf)
        for item in used_values(instruction)
    }
    fixed = {
        item.value.name
        for item in function.parameters
        if isinstance(item.type, Memref) and item.value.name not in others
    }
    body = rewrite(function.body, lambda region, _: _raise(region, fixed))
    early = (fixed & _promised(function, "unchanging")) | _promised(function, "settled")
    if not early:
        return replace(function, body=body)
    sizes = {
        item.value.name: prod(extent or 0 for extent in item.type.shape)
        for item in function.parameters
        if isinstance(item.type, Memref) and item.value.name in early
    }
    return replace(function, body=_raise_to_start(body, (sizes, fixed), names_of(function)))


def _promised(function: Function, promise: str) -> set[str]:
    """The parameters of which something is promised."""
    return {
        item.value.name
        for item in function.parameters
        if item.attributes is not None and item.attributes.find(promise) is True
    }


def _raise_to_start(body: Region, memory: tuple[Mapping[str, int], set[str]], names: FreshNames) -> Region:
    """A body in which loads of memory that is early stand first in what work-items do, before every barrier.

    Those of the largest arrays come first, as far as there is room: a matrix before a vector. Behind them stand single
    numbers of memory that the kernel does not write, and what branches behind barriers load from there: all of them
    wait for the kernel in front once.
    """
    early, fixed = memory
    for number, statement in enumerate(body.statements):
        if isinstance(statement.instruction, Parallel):
            inner = statement.instruction.body
            numbers = {
                item.instruction.operand.name
                for item in inner.statements
                if isinstance(item.instruction, Load) and not item.instruction.indices
            }
            branches = _raise_from_branches(inner.statements, fixed, names)
            later = _loads_first(branches, fixed & numbers, NUMBER_BYTES)
            first = _loads_first(later, early, EARLY_BYTES, early)
            changed = replace(statement.instruction, body=replace(inner, statements=tuple(first)))
            rest = body.statements[number + 1 :]
            before = body.statements[:number]
            return replace(body, statements=(*before, replace(statement, instruction=changed), *rest))
    return body


def _raise(region: Region, fixed: set[str]) -> Region:
    """A region in which loads stand first in each row of plain statements."""
    found: list[Statement] = []
    row: list[Statement] = []
    for statement in region.statements:
        if isinstance(statement.instruction, PLAIN):
            row.append(statement)
            continue
        # Regions, barriers and whatever else waits for others: loads stay behind it.
        found += [*_loads_first(row, fixed), statement]
        row = []
    return replace(region, statements=(*found, *_loads_first(row, fixed)))


def _loads_first(
    row: Sequence[Statement],
    fixed: Collection[str],
    room: int = MOST_BYTES,
    worth: Mapping[str, int] | None = None,
) -> list[Statement]:
    """Statements with loads, and what computes their places, before the others; both keep their order.

    Where there is no room for all, those are chosen whose arrays are worth most, else the first ones.
    """
    makers = {value.name: item for item in row for value in item.results}
    early: set[int] = set()
    loads = [
        (item.instruction, item)
        for item in row
        if isinstance(item.instruction, Load) and item.instruction.operand.name in fixed
    ]
    loads.sort(key=lambda pair: -(worth or {}).get(pair[0].operand.name, 0))
    for node, statement in loads:
        if not isinstance(node.type, Scalar):
            continue
        places = _makers_of(node.indices, makers)
        size = BYTES.get(node.type.name, 8)
        if places is None or size > room:
            continue
        room -= size
        early |= {id(statement), *map(id, places)}
    if not early:
        return list(row)
    first = [item for item in row if id(item) in early]
    return [*first, *(item for item in row if id(item) not in early)]


# --- branches behind barriers -----------------------------------------------------------------------------------


def _raise_from_branches(
    statements: Sequence[Statement], fixed: set[str], names: FreshNames
) -> list[Statement]:
    """Statements in which branches behind a barrier load before it, each in a branch of its own at the start."""
    makers = {value.name: item for item in statements for value in item.results}
    first: list[Statement] = []
    moved: dict[int, Statement] = {}
    rest: list[Statement] = []
    is_behind = False
    for statement in statements:
        node = statement.instruction
        is_behind |= isinstance(node, Barrier)
        taken = _split_branch(node, fixed, makers, names) if is_behind and isinstance(node, If) else None
        if taken is None:
            rest.append(statement)
            continue
        before, branch, changed = taken
        moved |= {id(item): item for item in before}
        first.append(branch)
        rest.append(replace(statement, instruction=changed))
    start = [item for item in statements if id(item) in moved]
    return [*start, *first, *(item for item in rest if id(item) not in moved)]


def _split_branch(
    node: If, fixed: set[str], makers: Mapping[str, Statement], names: FreshNames
) -> tuple[list[Statement], Statement, If] | None:
    """What stands before a branch, the branch that loads, and what is left of it; None where it loads nothing."""
    if node.otherwise is not None or node.types:
        return None
    inside = _find_branch_loads(node.then, fixed)
    chosen = {id(item) for item in inside}
    others = [item for item in walk(node.then) if id(item) not in chosen]
    used = {value.name for item in others for value in used_values(item.instruction)}
    given = [item for item in inside if isinstance(item.instruction, Load) and item.results[0].name in used]
    own = {value.name for item in inside for value in item.results}
    outside = [value for item in inside for value in used_values(item.instruction) if value.name not in own]
    places = _makers_of([node.condition, *outside], makers)
    if not given or places is None:
        return None
    kinds = [item.instruction.type for item in given if isinstance(item.instruction, Load)]
    then = Region((*inside, Statement((), Yield(tuple(item.results[0] for item in given)))))
    zeros = [Statement((names.new(),), Constant(0 if kind in WHOLE_NUMBERS else 0.0, kind)) for kind in kinds]
    other = Region((*zeros, Statement((), Yield(tuple(item.results[0] for item in zeros)))))
    fresh = {item.results[0].name: names.new() for item in given}
    loading = If(node.condition, copy_region(then, names, {}), other, tuple(kinds))
    left = [item for item in node.then.statements if not (id(item) in chosen and item in given)]
    rest = rename_region(with_statements(node.then, left), fresh)
    return places, Statement(tuple(fresh.values()), loading), replace(node, then=rest)


def _find_branch_loads(region: Region, fixed: set[str]) -> list[Statement]:
    """The loads of a branch that wait for nothing in it but each other, with what computes their places."""
    ready: dict[str, Statement] = {}
    inner = {value.name for item in region.statements for value in item.results}
    loads, room = list[Statement](), BRANCH_BYTES
    for statement in region.statements:
        node = statement.instruction
        waits = any(item.name in inner and item.name not in ready for item in used_values(node))
        is_load = isinstance(node, Load) and node.operand.name in fixed and isinstance(node.type, Scalar)
        size = BYTES.get(node.type.name, 8) if isinstance(node, Load) and isinstance(node.type, Scalar) else 0
        if waits or not (isinstance(node, PURE) or (is_load and size <= room)):
            continue
        ready |= {value.name: statement for value in statement.results}
        if is_load:
            loads.append(statement)
            room -= size
    needed = {id(item) for item in loads}
    for item in loads:
        needed |= {id(found) for found in _chain_of(item, ready)}
    return [item for item in region.statements if id(item) in needed]


def _chain_of(statement: Statement, makers: Mapping[str, Statement]) -> list[Statement]:
    """All statements that a statement waits for, among some."""
    found: dict[int, Statement] = {}
    waiting = [item.name for item in used_values(statement.instruction)]
    while waiting:
        maker = makers.get(waiting.pop())
        if maker is not None and id(maker) not in found:
            found[id(maker)] = maker
            waiting += [item.name for item in used_values(maker.instruction)]
    return list(found.values())


def _makers_of(values: Sequence[Value], makers: Mapping[str, Statement]) -> list[Statement] | None:
    """The statements that compute values; None where one of them waits for memory."""
    found: dict[int, Statement] = {}
    for value in values:
        maker = makers.get(value.name)
        if maker is None:
            continue
        chain = [maker, *_chain_of(maker, makers)]
        if not all(isinstance(item.instruction, PURE) for item in chain):
            return None
        found |= {id(item): item for item in chain}
    return list(found.values())
