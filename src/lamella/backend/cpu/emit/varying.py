"""Divergence analysis: which values may differ between the lanes of a subgroup."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.kernels.rewrite import used_values
from lamella.lang.tensor.nodes import (
    AtomicUpdate,
    Builtin,
    CoopExtract,
    CoopInsert,
    For,
    Function,
    If,
    Instruction,
    Parallel,
    Region,
    Statement,
    SubgroupBroadcast,
    SubgroupOperation,
    Value,
    Yield,
)


def find_varying(function: Function) -> frozenset[str]:
    """The names of values that are not uniform; a fixed point, because loops carry values round."""
    found: set[str] = set()
    while True:
        before = len(found)
        _visit(function.body, found)
        if len(found) == before:
            return frozenset(found)


def _visit(region: Region, found: set[str]) -> None:
    for statement in region.statements:
        instruction = statement.instruction
        if isinstance(instruction, For):
            _visit_for(statement, instruction, found)
        elif isinstance(instruction, If):
            _visit_if(statement, instruction, found)
        elif isinstance(instruction, Parallel):
            _visit(instruction.body, found)
        elif _differs(instruction, found):
            found |= {item.name for item in statement.results}


def _visit_for(statement: Statement, node: For, found: set[str]) -> None:
    bounds = [node.begin, node.end, *([node.step] if node.step is not None else [])]
    if node.begin.name in found or (node.step is not None and node.step.name in found):
        found.add(node.variable.name)
    diverges = any(item.name in found for item in bounds)
    _visit(node.body, found)
    given = yielded(node.body)
    for (name, start), value, result in zip(node.carried, given, _padded(statement, node), strict=True):
        if diverges or start.name in found or value.name in found:
            found |= {name.name, *result}


def _padded(statement: Statement, node: For) -> list[set[str]]:
    """The name of each result; a loop whose results nobody takes has none."""
    names: list[set[str]] = [{item.name} for item in statement.results]
    return names or [set() for _ in node.carried]


def _visit_if(statement: Statement, node: If, found: set[str]) -> None:
    sides = [item for item in (node.then, node.otherwise) if item is not None]
    for side in sides:
        _visit(side, found)
        for value, result in zip(yielded(side), statement.results, strict=False):
            if node.condition.name in found or value.name in found:
                found.add(result.name)


def yielded(region: Region) -> Sequence[Value]:
    """The values that a region ends with."""
    last = region.statements[-1].instruction if region.statements else None
    return last.values if isinstance(last, Yield) else ()


def _differs(instruction: Instruction, found: set[str]) -> bool:
    if isinstance(instruction, Builtin):
        return instruction.name == "subgroup_local_id"
    if isinstance(instruction, (SubgroupBroadcast, CoopInsert)):
        return False
    if isinstance(instruction, (CoopExtract, AtomicUpdate)):
        return True
    if isinstance(instruction, SubgroupOperation):
        return instruction.form != "reduce"
    return any(item.name in found for item in used_values(instruction))
