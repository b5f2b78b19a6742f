"""The pass that raises loads above stores for machines whose work-items are threads, which then wait for all at once.

Threads issue their instructions in order, and no assembler moves a load past a store that might write what it reads.
Here it is known: a memref that a kernel only loads from is none that it writes, since a launch refuses arrays that
overlap.
"""

from __future__ import annotations

from dataclasses import replace

from lamella.kernels.rewrite import change_functions, make_names_unique, rewrite, used_values, walk
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    Arith,
    Builtin,
    Cast,
    Compare,
    Constant,
    Function,
    Load,
    Memref,
    Program,
    Region,
    SizeOf,
    Statement,
    Store,
)

PURE = (Arith, Builtin, Cast, Compare, Constant, SizeOf)
"""Instructions that may be run earlier, whatever is between."""


def raise_loads(program: Program, target: Target) -> Program:
    """A program whose loads of memory that nobody writes stand above the stores before them, on threads."""
    return change_functions(program, _raise_function) if target.has_threads else program


def _raise_function(function: Function) -> Function:
    statements = [item.instruction for item in walk(function.body)]
    if not any(isinstance(item, Store) for item in statements):
        return function
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
    return replace(function, body=rewrite(function.body, lambda region, _: _raise(region, fixed)))


def _raise(region: Region, fixed: set[str]) -> Region:
    """A region with what may stand there before the first store of each run of plain statements."""
    found: list[Statement] = []
    place: int | None = None
    below: set[str] = set()
    """What is defined behind that place."""
    for statement in region.statements:
        node = statement.instruction
        movable = isinstance(node, PURE) or (isinstance(node, Load) and node.operand.name in fixed)
        if place is not None and movable and not any(item.name in below for item in used_values(node)):
            found.insert(place, statement)
            place += 1
            continue
        if isinstance(node, Store):
            place = len(found) if place is None else place
        elif not movable and not isinstance(node, Load):
            # Regions, barriers and whatever else waits for others: loads stay behind it.
            place, below = None, set()
        if place is not None:
            below |= {item.name for item in statement.results}
        found.append(statement)
    return replace(region, statements=tuple(found))
