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

from lamella.kernels.rewrite import change_functions, make_names_unique, rewrite, used_values, walk
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Arith,
    Builtin,
    Cast,
    Compare,
    Constant,
    Function,
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
    Yield,
)

PURE = (Arith, Builtin, Cast, Compare, Constant, SizeOf)
"""Instructions that may be run earlier, whatever is between."""
PLAIN = (*PURE, Load, Math, Store, SubgroupBroadcast, SubgroupOperation, Yield)
"""Instructions that loads may be moved across."""
MOST_BYTES = 512
"""What a work-item loads at once, at most: registers hold it until it is used."""
EARLY_BYTES = 256
"""The same of what it loads before anything else."""


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
    unchanging = {
        item.value.name
        for item in function.parameters
        if item.attributes is not None and item.attributes.find("unchanging") is True
    }
    sizes = {
        item.value.name: prod(extent or 0 for extent in item.type.shape)
        for item in function.parameters
        if isinstance(item.type, Memref) and item.value.name in fixed & unchanging
    }
    return replace(function, body=_raise_to_start(body, sizes))


def _raise_to_start(body: Region, unchanging: Mapping[str, int]) -> Region:
    """A body in which loads of memory that never changes stand first in what work-items do, before every barrier.

    Those of the largest arrays come first, as far as there is room: a matrix before a vector.
    """
    for number, statement in enumerate(body.statements if unchanging else ()):
        if isinstance(statement.instruction, Parallel):
            inner = statement.instruction.body
            first = _loads_first(inner.statements, unchanging, EARLY_BYTES, unchanging)
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
        places = _places_of(statement, makers)
        size = BYTES.get(node.type.name, 8)
        if places is None or size > room:
            continue
        room -= size
        early |= {id(statement), *map(id, places)}
    if not early:
        return list(row)
    first = [item for item in row if id(item) in early]
    return [*first, *(item for item in row if id(item) not in early)]


def _places_of(load: Statement, makers: Mapping[str, Statement]) -> list[Statement] | None:
    """The statements that compute where a load reads; None where one of them waits for memory itself."""
    found: dict[int, Statement] = {}
    waiting = [item.name for item in used_values(load.instruction)]
    while waiting:
        maker = makers.get(waiting.pop())
        if maker is None or id(maker) in found:
            continue
        if not isinstance(maker.instruction, PURE):
            return None
        found[id(maker)] = maker
        waiting += [item.name for item in used_values(maker.instruction)]
    return list(found.values())
