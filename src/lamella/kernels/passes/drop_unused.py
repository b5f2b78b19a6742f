"""Statements that nobody needs: values without use, loops and branches that do nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from lamella.kernels.build import regions
from lamella.kernels.rewrite import rewrite, used_values, walk
from lamella.lang.tensor.nodes import (
    AtomicUpdate,
    Barrier,
    Blas,
    CoopStore,
    For,
    Foreach,
    If,
    Instruction,
    LifetimeStop,
    Parallel,
    Region,
    Statement,
    Store,
    Yield,
)

EFFECTS = Store | CoopStore | AtomicUpdate | Blas | Barrier | LifetimeStop


def drop_unused(body: Region) -> Region:
    """The region without values that nobody uses and regions that do nothing; no name stands for two values."""
    dead = _find_dead(body)

    def visit(region: Region, _: bool) -> Region:
        kept = tuple(item for item in region.statements if not _is_dropped(item, dead))
        return region if len(kept) == len(region.statements) else replace(region, statements=kept)

    return rewrite(body, visit)


def _is_dropped(statement: Statement, dead: set[str]) -> bool:
    """Whether a statement, whose regions are done, gives what nobody needs or does nothing."""
    if statement.results:
        return all(value.name in dead for value in statement.results)
    instruction = statement.instruction
    return isinstance(instruction, For | Foreach | If | Parallel) and not _has_effect(instruction)


def _find_dead(body: Region) -> set[str]:
    """The values that nobody needs, found from the end of the text: what only they use is needed by nobody either."""
    statements = list(walk(body))
    uses = Counter(value.name for item in statements for value in used_values(item.instruction))
    gone: set[int] = set()
    dead: set[str] = set()
    for statement in reversed(statements):
        if _is_needed(statement, uses):
            continue
        dead.update(value.name for value in statement.results)
        for item in walk(Region((statement,))):
            if id(item) not in gone:
                gone.add(id(item))
                uses.subtract(value.name for value in used_values(item.instruction))
    return dead


def _is_needed(statement: Statement, uses: Counter[str]) -> bool:
    return any(uses[value.name] > 0 for value in statement.results) or _has_effect(statement.instruction)


def _has_effect(instruction: Instruction) -> bool:
    """Whether an instruction does more than give values; a yield belongs to what it ends."""
    if isinstance(instruction, EFFECTS | Yield):
        return True
    inner = (item.instruction for region in regions(instruction) for item in walk(region))
    return any(isinstance(item, EFFECTS) for item in inner)
