"""The formulas of a definition made ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lamella.base.limits import Limits
from lamella.lang.skriptnd import nodes
from lamella.ops.evaluate import Code, make_compiler
from lamella.ops.evaluate.walk import Node, infer, names, parts
from lamella.ops.scalars.arithmetic import Budget


@dataclass(frozen=True, slots=True, eq=False)
class LoweringPlan:
    """One formula made ready."""

    node: nodes.Lowering
    bounds: tuple[tuple[str, Code], ...]
    locals: tuple[tuple[str, Code], ...]
    target: Code
    value: Code
    condition: Code | None
    count: Code | None
    subscripts: tuple[tuple[str, str], ...]
    """Which tensor each index picks an item of: such an index is no loop but several formulas."""


def plan_lowering(
    node: nodes.Lowering, words: Mapping[str, str], limits: Limits, budget: Budget | None = None
) -> LoweringPlan:
    """A formula made ready; `words` are the types of the names around it."""
    known = {**words, **{bound.index: "int" for bound in node.bounds}}
    if node.unroll is not None and node.unroll.index:
        known[node.unroll.index] = "int"
    for local in node.locals:
        known[local.name] = infer(local.value, known)
    compiler = make_compiler(limits, known, budget)
    return LoweringPlan(
        node=node,
        bounds=tuple((bound.index, compiler.compile(bound.limit)) for bound in node.bounds),
        locals=tuple((local.name, compiler.compile(local.value)) for local in node.locals),
        target=compiler.compile(node.target),
        value=compiler.compile(node.value),
        condition=compiler.compile_some(node.condition),
        count=None if node.unroll is None else compiler.compile_some(node.unroll.count),
        subscripts=tuple(_subscripts(node)),
    )


def _subscripts(node: nodes.Lowering) -> Iterator[tuple[str, str]]:
    """The indices that pick items of packs of tensors, with the packs; local values are looked through."""
    indices = {bound.index for bound in node.bounds}
    local_names = {local.name: _direct_names(local.value) for local in node.locals}
    roots: list[Node | None] = [
        node.target,
        node.value,
        node.condition,
        *(local.value for local in node.locals),
    ]
    for access in _accesses(roots):
        used = set() if access.item is None else _direct_names(access.item)
        for local in reversed(node.locals):
            used |= local_names[local.name] if local.name in used else set()
        yield from ((name, access.tensor) for name in sorted(used & indices))


def _accesses(roots: list[Node | None]) -> Iterator[nodes.Access]:
    stack = [root for root in roots if root is not None]
    while stack:
        found = stack.pop()
        if isinstance(found, nodes.Access):
            yield found
        stack += parts(found)


def _direct_names(node: Node) -> set[str]:
    """The names in an expression that are not inside an access of a tensor."""
    found: set[str] = set()
    stack: list[Node] = [node]
    while stack:
        inner = stack.pop()
        if isinstance(inner, nodes.Access):
            continue
        if isinstance(inner, nodes.Name):
            found |= names(inner)
        stack += parts(inner)
    return found
