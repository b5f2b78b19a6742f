"""Load hoisting for GPUs (instruction scheduling): loads stand first, so that many are in flight at once.

Threads issue their instructions in order, and no assembler moves a load past a store that might alias it, or past a
division, which is a branch to it. Here it is known: a memref that a kernel only loads from is none that it writes,
since a launch refuses arrays that overlap. So loads stand where the statements begin that run in a row, with what
computes their places. Those of memory that no other kernel writes either stand where the work-items begin: a GPU runs
them while the predecessor still works (programmatic dependent launch).
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
    Alloca,
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
BEHIND_BYTES = 32
"""The same of what stands behind a barrier outside of branches, and may be loaded before it."""
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
    named = {item.value.name for item in function.parameters if isinstance(item.type, Memref)}
    named |= {
        value.name
        for item in walk(function.body)
        if isinstance(item.instruction, Alloca)
        for value in item.results
    }
    names = names_of(function)
    body = rewrite(function.body, lambda region, _: _flatten(_join_branches(region), fixed, names))
    body = rewrite(body, lambda region, _: _raise(region, fixed, named))
    early = (fixed & _promised(function, "unchanging")) | _promised(function, "settled")
    if not early:
        return replace(function, body=body)
    sizes = {
        item.value.name: prod(extent or 0 for extent in item.type.shape)
        for item in function.parameters
        if isinstance(item.type, Memref) and item.value.name in early
    }
    return replace(function, body=_raise_to_start(body, (sizes, fixed), names))


def _promised(function: Function, promise: str) -> set[str]:
    """The parameters of which something is promised."""
    return {
        item.value.name
        for item in function.parameters
        if item.attributes is not None and item.attributes.find(promise) is True
    }


def _raise_to_start(body: Region, memory: tuple[Mapping[str, int], set[str]], names: FreshNames) -> Region:
    """A body in which loads of memory that is early stand first in what work-items do, before every barrier.

    Those of the largest arrays come first, as far as there is room: a matrix before a vector. Behind them stands what
    branches behind barriers load of such memory alone, then single numbers of memory that the kernel does not write,
    a little of what is loaded from there behind barriers, and what other branches load: all of these wait for the
    kernel in front once.
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
            makers, branches, others = _raise_from_branches(inner.statements, (fixed, early), names)
            soon = [item for item in branches if _loads_alone(item, early)]
            late = [item for item in branches if not _loads_alone(item, early)]
            barriers = [place for place, item in enumerate(others) if isinstance(item.instruction, Barrier)]
            others = _loads_first(others, fixed, BEHIND_BYTES, since=barriers[0] if barriers else len(others))
            later = _loads_first([*late, *others], fixed & numbers, NUMBER_BYTES)
            first = _loads_first([*makers, *soon, *later], early, EARLY_BYTES, early)
            changed = replace(statement.instruction, body=replace(inner, statements=tuple(first)))
            rest = body.statements[number + 1 :]
            before = body.statements[:number]
            return replace(body, statements=(*before, replace(statement, instruction=changed), *rest))
    return body


def _loads_alone(statement: Statement, early: Collection[str]) -> bool:
    """Whether a branch loads nothing but memory that is early."""
    node = statement.instruction
    inside = walk(node.then) if isinstance(node, If) else ()
    return all(
        item.instruction.operand.name in early for item in inside if isinstance(item.instruction, Load)
    )


def _join_branches(region: Region) -> Region:
    """A region in which branches on one condition that follow each other are one, so that they load at once."""
    found: list[Statement] = []
    last: int | None = None
    for statement in region.statements:
        node = statement.instruction
        if isinstance(node, If) and not node.types and node.otherwise is None:
            before = None if last is None else found[last].instruction
            if last is not None and isinstance(before, If) and before.condition == node.condition:
                del found[last]
                kept = [item for item in before.then.statements if not isinstance(item.instruction, Yield)]
                then = with_statements(node.then, [*kept, *node.then.statements])
                statement = replace(statement, instruction=replace(node, then=then))
            last = len(found)
        elif not isinstance(node, PURE):
            last = None
        found.append(statement)
    return replace(region, statements=tuple(found))


def _flatten(region: Region, fixed: set[str], names: FreshNames) -> Region:
    """A region in which a branch that does nothing but lead to another one is one with it, on both conditions.

    What computes the second condition is done by all work-items.
    """
    found: list[Statement] = []
    for statement in region.statements:
        node = statement.instruction
        inner = _only_leads(node, fixed) if isinstance(node, If) else None
        if isinstance(node, If) and inner is not None:
            *before, last = inner
            branch = last.instruction
            both = names.new()
            if isinstance(branch, If):
                kind = Scalar("bool")
                joined = Arith("and", (node.condition, branch.condition), kind)
                found += [*before, Statement((both,), joined)]
                statement = replace(last, instruction=replace(branch, condition=both))
        found.append(statement)
    return replace(region, statements=tuple(found))


def _only_leads(node: If, fixed: set[str]) -> list[Statement] | None:
    """What a branch does before the one branch that it ends with; None where it does more than compute."""
    inner = [item for item in node.then.statements if not isinstance(item.instruction, Yield)]
    last = inner[-1].instruction if inner else None
    if node.types or node.otherwise is not None or not isinstance(last, If):
        return None
    if last.types or last.otherwise is not None:
        return None
    is_safe = all(isinstance(item.instruction, PURE) or _is_number(item, fixed) for item in inner[:-1])
    return inner if is_safe else None


def _is_number(statement: Statement, memory: Collection[str]) -> bool:
    """Whether a statement loads a single number of some memory."""
    node = statement.instruction
    return isinstance(node, Load) and not node.indices and node.operand.name in memory


def _raise(region: Region, fixed: set[str], named: set[str]) -> Region:
    """A region in which loads stand first in each row of plain statements."""
    found: list[Statement] = []
    row: list[Statement] = []
    for statement in region.statements:
        if isinstance(statement.instruction, PLAIN) or _only_stores(statement):
            row.append(statement)
            continue
        # Other regions, barriers and whatever else waits for others: loads stay behind it.
        found += [*_loads_first(row, _find_still(row, fixed, named)), statement]
        row = []
    return replace(region, statements=(*found, *_loads_first(row, _find_still(row, fixed, named))))


def _only_stores(statement: Statement) -> bool:
    """Whether a branch stores what is known before it, as one does that tells a fault."""
    node = statement.instruction
    return (
        isinstance(node, If)
        and not node.types
        and all(
            isinstance(item.instruction, (*PURE, Store, Yield))
            for item in walk(Region((statement,)))
            if item is not statement
        )
    )


def _find_still(row: Sequence[Statement], fixed: set[str], named: set[str]) -> set[str]:
    """The memrefs that a row of statements may load first: those of the kernel that nothing in the row stores to.

    Memory that has a name of its own, a parameter or an alloca, never overlaps another one that is written.
    """
    inside = [item.instruction for item in walk(Region(tuple(row)))]
    stored = {node.operand.name for node in inside if isinstance(node, Store)}
    if not stored or not stored <= named:
        return fixed
    loaded = {node.operand.name for node in inside if isinstance(node, Load)}
    return fixed | ((loaded & named) - stored)


def _loads_first(
    row: Sequence[Statement],
    fixed: Collection[str],
    room: int = MOST_BYTES,
    worth: Mapping[str, int] | None = None,
    since: int = 0,
) -> list[Statement]:
    """Statements with loads, and what computes their places, before the others; both keep their order.

    Where there is no room for all, those are chosen whose arrays are worth most, else the first ones; those that stand
    before the number `since` stay.
    """
    makers = {value.name: item for item in row for value in item.results}
    early: set[int] = set()
    loads = [
        (item.instruction, item)
        for item in row[since:]
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
    statements: Sequence[Statement], memory: tuple[set[str], Collection[str]], names: FreshNames
) -> tuple[list[Statement], list[Statement], list[Statement]]:
    """What stands before branches that load, these, and the rest: what other branches waited for is loaded there.

    Of memory that is early it is loaded at once, of other memory where a branch stands behind a barrier.
    """
    fixed, early = memory
    makers = {value.name: item for item in statements for value in item.results}
    first: list[Statement] = []
    moved: dict[int, Statement] = {}
    rest: list[Statement] = []
    is_behind = False
    for statement in statements:
        node = statement.instruction
        is_behind |= isinstance(node, Barrier)
        wanted = fixed | set(early) if is_behind else set(early)
        taken = _split_branch(node, (wanted, early), makers, names) if isinstance(node, If) else None
        if taken is None:
            rest.append(statement)
            continue
        before, branch, changed = taken
        moved |= {id(item): item for item in before}
        first.append(branch)
        rest.append(replace(statement, instruction=changed))
    start = [item for item in statements if id(item) in moved]
    return start, first, [item for item in rest if id(item) not in moved]


def _split_branch(
    node: If, memory: tuple[set[str], Collection[str]], makers: Mapping[str, Statement], names: FreshNames
) -> tuple[list[Statement], Statement, If] | None:
    """What stands before a branch, the branch that loads, and what is left of it; None where it loads nothing."""
    if node.otherwise is not None or node.types:
        return None
    wanted, early = memory
    inside = _find_branch_loads(node.then, wanted)
    chosen = {id(item) for item in inside}
    others = [item for item in walk(node.then) if id(item) not in chosen]
    used = {value.name for item in others for value in used_values(item.instruction)}
    given = [item for item in inside if isinstance(item.instruction, Load) and item.results[0].name in used]
    own = {value.name for item in inside for value in item.results}
    outside = [value for item in inside for value in used_values(item.instruction) if value.name not in own]
    places = _makers_of([node.condition, *outside], makers, early)
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


def _makers_of(
    values: Sequence[Value], makers: Mapping[str, Statement], early: Collection[str] = ()
) -> list[Statement] | None:
    """The statements that compute values; None where one of them waits for memory, but for numbers that are early."""
    found: dict[int, Statement] = {}
    for value in values:
        maker = makers.get(value.name)
        if maker is None:
            continue
        chain = [maker, *_chain_of(maker, makers)]
        if not all(isinstance(item.instruction, PURE) or _is_number(item, early) for item in chain):
            return None
        found |= {id(item): item for item in chain}
    return list(found.values())
