"""The formulas of one call, written out: packs expanded, constants folded, one loop for each index.

Contractions run in their order. The first one that assigns an output with an accumulating sign starts from the sign's
own initial value unless one with `=` came before; later ones go on with what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from lamella.base.errors import Found
from lamella.base.source import Span
from lamella.lang.skriptnd.rules.invocation import TOO_LARGE
from lamella.lang.skriptnd.rules.lowering import PACKED_LENGTH, PACKED_RIGHT, RIGHT_TYPE
from lamella.lang.skriptnd.rules.types import NOT_BOOL
from lamella.ops.bind.plan import LoweringPlan, OperatorPlan
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Contraction, Counter, Element, Guard, Index, Lookup, Loop, Scalar
from lamella.ops.instance import Declared, Fill, Instance, Single
from lamella.ops.scalars.terms import RANGES
from lamella.ops.scalars.values import SCALARS, expect_extent, expect_known, word_of

LIMIT = "the limit of an index"
MOST_KEPT = 64
"""Formulas of one call that are kept with it."""


def contractions(instance: Instance) -> tuple[Contraction, ...]:
    """The formulas of a call; none for an operator that is composed or intrinsic."""
    if instance.memo.formulas is None:
        found = _write_all(instance)
        if len(found) > MOST_KEPT:
            return found
        instance.memo.formulas = found
    return instance.memo.formulas


def _write_all(instance: Instance) -> tuple[Contraction, ...]:
    plan = instance.plan
    if not isinstance(plan, OperatorPlan):
        return ()
    scope = {**instance.symbols, **_tensors(instance), **{name: Counter(name) for name in plan.counters}}
    found: list[Contraction] = []
    for lowering in plan.lowerings:
        try:
            found += _write_out(lowering, scope, plan)
        except Fault as fault:
            raise fault.at(lowering.node.span) from None
    return tuple(found)


def _tensors(instance: Instance) -> dict[str, object]:
    """The tensors that the definition declares, as formulas see them."""
    found: dict[str, object] = {
        item.name: item.tensors() for item in (*instance.outputs, *instance.variables)
    }
    for declared, value in instance.constants:
        found[declared.name] = _as_constants(declared, value)
    return found


def _as_constants(declared: Declared, value: Single | tuple[Single, ...]) -> object:
    """A constant with one value needs no tensor."""
    if declared.items is not None and isinstance(value, tuple):
        pairs = zip(declared.items, value, strict=True)
        return tuple(Fill(declared.name, declared.element, shape, item) for shape, item in pairs)
    if isinstance(value, tuple) or declared.items is not None or declared.shape is None:
        return declared.tensors()
    return Fill(declared.name, declared.element, declared.shape, value)


# --- one formula --------------------------------------------------------------------------------------------


def _write_out(
    lowering: LoweringPlan, scope: Mapping[str, object], plan: OperatorPlan
) -> Iterator[Contraction]:
    """A formula for every combination of the indices that pick tensors of packs."""
    names, ranges = _unrolled(lowering, scope, plan)
    for row in product(*ranges):
        inner = {**scope, **dict(zip(names, row, strict=True))}
        found = _contraction(lowering, inner, frozenset(names), plan)
        if found is not None:
            yield found


def _unrolled(
    lowering: LoweringPlan, scope: Mapping[str, object], plan: OperatorPlan
) -> tuple[list[str], list[range]]:
    """The indices that are no loops, outermost first, with their ranges."""
    names: list[str] = []
    ranges: list[range] = []
    unroll = lowering.node.unroll
    if unroll is not None and lowering.count is not None:
        names.append(unroll.index or "")
        ranges.append(range(expect_known(lowering.count(scope), "the count of an unrolled formula")))
    packed = {index for index, tensor in lowering.subscripts if isinstance(scope.get(tensor), tuple)}
    for name, code in lowering.bounds:
        if name in packed:
            limit = code({**scope, **dict.fromkeys(names, 0)})
            if isinstance(limit, int):
                names.append(name)
                ranges.append(range(limit))
    total = 1
    for item in ranges:
        total *= len(item)
    if total > plan.limits.max_pack:
        what, bound = f"a formula written out {total} times", plan.limits.max_pack
        raise Fault(TOO_LARGE, what=what, limit="max_pack", bound=bound)
    return names, ranges


def _contraction(
    lowering: LoweringPlan, scope: dict[str, object], unrolled: frozenset[str], plan: OperatorPlan
) -> Contraction | None:
    """One formula with its loops; None where its right side is null, or where it assigns without taking a step."""
    loops = _open_loops(lowering, scope, unrolled)
    if loops is None or (lowering.node.sign in ("=", ":=") and any(loop.extent == 0 for loop in loops)):
        return None
    for name, code in lowering.locals:
        scope[name] = code(scope)
    target = lowering.target(scope)
    value = lowering.value(scope)
    if target is None or value is None:
        return None
    condition = None if lowering.condition is None else lowering.condition(scope)
    targets, values = _pair(lowering, target, value)
    if not (condition is None or (isinstance(condition, SCALARS) and word_of(condition) == "bool")):
        raise Fault(NOT_BOOL, what="the condition of a formula", type=word_of(condition))
    found = Contraction(targets, lowering.node.sign, values, loops, None if condition is True else condition)
    keep_depth(found, plan.limits.max_depth, lowering.node.span)
    return found


def _open_loops(
    lowering: LoweringPlan, scope: dict[str, object], unrolled: frozenset[str]
) -> tuple[Loop, ...] | None:
    """The loops of a formula; its indices get their values in the scope."""
    loops: list[Loop] = []
    for name, code in lowering.bounds:
        if name in unrolled:
            continue
        limit = code(scope)
        if limit is None:
            return None
        if isinstance(limit, tuple):
            scope[name] = tuple(Index(f"{name}.{k}") for k in range(len(limit)))
            loops += [Loop(f"{name}.{k}", expect_extent(item, LIMIT)) for k, item in enumerate(limit)]
        else:
            scope[name] = Index(name)
            loops.append(Loop(name, expect_extent(limit, LIMIT)))
    scope[RANGES] = {loop.index: loop.extent for loop in loops}
    return tuple(loops)


def _pair(
    lowering: LoweringPlan, target: object, value: object
) -> tuple[tuple[Element, ...], tuple[Scalar, ...]]:
    """Targets with their values; one value is assigned to all targets."""
    targets = target if isinstance(target, tuple) else (target,)
    values = value if isinstance(value, tuple) else (value,) * len(targets)
    if len(targets) != len(values) or (isinstance(value, tuple) and not isinstance(target, tuple)):
        rule = PACKED_LENGTH if isinstance(target, tuple) else PACKED_RIGHT
        raise Fault(rule, name=lowering.node.target.tensor, left=len(targets), right=len(values))
    found: list[Element] = []
    kept: list[Scalar] = []
    for left, right in zip(targets, values, strict=True):
        if not isinstance(left, Element) or not isinstance(right, SCALARS) or word_of(right) != left.type:
            details = left.type if isinstance(left, Element) else word_of(left)
            raise Fault(RIGHT_TYPE, name=lowering.node.target.tensor, left=details, right=word_of(right))
        found.append(left)
        kept.append(right)
    return tuple(found), tuple(kept)


# --- depth --------------------------------------------------------------------------------------------------


def operands(term: object) -> tuple[object, ...]:
    """The scalars directly inside a term."""
    match term:
        case Apply(operands=inner):
            return inner
        case Element(indices=indices, item=item):
            return indices if item is None else (*indices, item)
        case Guard(index=index, below=below, above=above):
            return tuple(part for part in (index, below, above) if part is not None)
        case Lookup(table=table, index=index):
            return (*table, index)
    return ()


def reachable(*roots: object) -> Iterator[object]:
    """Every term inside these, themselves included, once: terms form a graph, whose shared parts are many."""
    done: set[int] = set()
    waiting: list[object] = list(roots)
    while waiting:
        term = waiting.pop()
        if id(term) not in done:
            done.add(id(term))
            yield term
            waiting += operands(term)


def keep_depth(contraction: Contraction, limit: int, span: Span) -> None:
    """Refuse terms nested deeper than the limit, so that whoever walks them may recurse."""
    depths: dict[int, int] = {}
    stack: list[object] = [*contraction.targets, *contraction.values, contraction.condition]
    while stack:
        term = stack[-1]
        if id(term) in depths:
            stack.pop()
            continue
        inner = operands(term)
        waiting = [item for item in inner if id(item) not in depths and operands(item)]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        depths[id(term)] = 1 + max((depths.get(id(item), 0) for item in inner), default=0)
        if depths[id(term)] > limit:
            fault = Fault(
                TOO_LARGE, what=f"a formula nested more than {limit} deep", limit="max_depth", bound=limit
            )
            raise Found(*fault.at(span).findings)
