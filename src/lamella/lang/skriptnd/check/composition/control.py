"""Control flow: branches that agree, loops that end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lamella.lang.skriptnd.check.composition.state import State, as_tensor
from lamella.lang.skriptnd.check.context import Entry
from lamella.lang.skriptnd.check.declare.shapes import Declaring, read_tensor
from lamella.lang.skriptnd.check.expressions.chains import tested
from lamella.lang.skriptnd.check.kinds import UNKNOWN, Kind, agrees, family, join_types
from lamella.lang.skriptnd.check.lengths import Known, number_of, shown
from lamella.lang.skriptnd.nodes import (
    Block,
    Branch,
    Callee,
    Carried,
    Invocation,
    Loop,
    Parameter,
)
from lamella.lang.skriptnd.rules import composition as rules

Kinds: TypeAlias = list[Kind] | None
Evaluate: TypeAlias = Callable[[Callee], Kinds]


def check_branch(state: State, node: Branch, evaluate: Evaluate) -> Kinds:
    """The results of a branch: what its parts agree on."""
    statics = [_check_condition(state, condition, evaluate) for condition, _ in node.cases]
    merged: Kinds = None
    with state.control(any(statics)):
        for number, (condition, consequent) in enumerate((*node.cases, (None, node.otherwise))):
            with state.context.inner():
                if condition is not None and not isinstance(condition, Invocation | Block):
                    state.context.present(tested(condition))
                found = evaluate(consequent)
            merged = found if number == 0 else _merge(state, consequent, (merged, found), all(statics))
    return merged


def _check_condition(state: State, condition: Callee, evaluate: Evaluate) -> bool:
    """Whether a condition is known before the run; one that is not a single bool is a finding."""
    if isinstance(condition, Invocation | Block):
        with state.control(False):
            found = evaluate(condition)
        if found is not None and (len(found) != 1 or not _is_truth(found[0])):
            text = found[0] if len(found) == 1 else f"{len(found)} results"
            state.context.report(rules.CONDITION.at(condition.span, what="the condition", found=text))
        return False
    kind = state.context.infer(condition)
    if not _is_truth(kind):
        state.context.report(rules.CONDITION.at(condition.span, what="the condition", found=kind))
    elif kind.optional:
        state.required(condition, kind, "a condition")
    return not kind.tensor


def _is_truth(kind: Kind) -> bool:
    return not kind.known or (kind.type == "bool" and not kind.packed)


def _merge(state: State, node: Callee, both: tuple[Kinds, Kinds], static: bool) -> Kinds:
    left, right = both
    if left is None or right is None:
        return None
    if len(left) != len(right):
        state.context.report(rules.BRANCH_COUNT.at(node.span, left=len(left), right=len(right)))
        return None
    pairs = enumerate(zip(left, right, strict=True), 1)
    return [_merge_one(state, node, number, (one, two), static) for number, (one, two) in pairs]


def _merge_one(state: State, node: Callee, number: int, both: tuple[Kind, Kind], static: bool) -> Kind:
    """One result of two branches; before the run only one of them remains, and only the types have to agree."""
    left, right = both
    if not (left.known and right.known):
        return UNKNOWN
    if not agrees(left, right) or (left.packed != right.packed and not static):
        state.context.report(rules.BRANCH_TYPE.at(node.span, number=number, left=left, right=right))
        return UNKNOWN
    if left.packed != right.packed:
        return UNKNOWN
    if state.context.algebra.differ(left.rank, right.rank) and not static:
        one, two = shown(left.rank), shown(right.rank)
        state.context.report(rules.BRANCH_RANK.at(node.span, number=number, left=one, right=two))
    rank = left.rank if left.rank == right.rank else None
    length = left.length if left.length == right.length else None
    name = join_types(left.type, right.type)
    return Kind(name, left.optional or right.optional, left.packed, True, length, rank)


def check_loop(state: State, loop: Loop, evaluate: Evaluate) -> Kinds:
    """The results of a loop: carried values first, then what is collected."""
    _check_form(state, loop)
    carried = [_infer_carried(state, item) for item in loop.carried]
    length = _infer_scans(state, loop)
    count = _infer_count(state, loop)
    with state.control(static=loop.unroll), state.context.inner() as scope:
        for item, kind in zip(loop.carried, carried, strict=True):
            scope.names[item.name] = Entry(kind, "a carried value", item.span)
        for scan, kind in _scanned(state, loop):
            scope.names[scan] = Entry(kind, "an item of a loop", loop.span)
        if loop.iteration is not None and loop.iteration.index is not None:
            index = loop.iteration.index
            kind = Kind("int", value=number_of(index)) if loop.unroll else Kind("int", tensor=True, rank=0)
            scope.names[index] = Entry(kind, "a loop index", loop.iteration.span)
        for condition in (loop.before, loop.after):
            if condition is not None:
                _check_condition(state, condition, evaluate)
        found = evaluate(loop.body)
    if found is None:
        return None
    total = count.value if count is not None and not count.tensor and not count.optional else None
    if count is None and loop.before is None and loop.after is None:
        total = length
    return _loop_results(state, loop, (carried, found), total)


def _check_form(state: State, loop: Loop) -> None:
    """A loop has an end, and one that is unrolled has it before the run."""
    report, counted = state.context.report, loop.iteration is not None and loop.iteration.count is not None
    conditions = [item for item in (loop.before, loop.after) if item is not None]
    if loop.unroll and conditions:
        report(rules.UNROLL_WHILE.at(conditions[0].span))
    elif loop.unroll and not loop.scans and not counted:
        report(rules.UNROLL_OPEN.at(loop.span))
    elif not loop.scans and not counted and not conditions:
        report(rules.ENDLESS.at(loop.span))
    elif len(conditions) == 2:
        report(rules.TWO_CONDITIONS.at(conditions[1].span))


def _infer_carried(state: State, item: Carried) -> Kind:
    value = state.tensor(item.value, f"the carried '{item.name}'")
    if item.type is None:
        return value
    parameter = Parameter(item.name, item.type, span=item.span)
    declared = read_tensor(state.context, parameter, Declaring("carried value"))
    if not agrees(declared, value):
        left, right = declared.type, value.type
        return state.context.report(rules.CARRIED_TYPE.at(item.span, name=item.name, left=left, right=right))
    return declared


def _infer_scans(state: State, loop: Loop) -> Known:
    """The common length of the packs that are scanned."""
    common: Known = None
    for item in loop.scans:
        kind = state.tensor(item.value, f"the scan of '{item.name}'")
        if kind.known and not kind.packed:
            state.context.report(rules.SCAN_PACK.at(item.span, name=item.name))
        elif state.context.algebra.differ(common, kind.length):
            left, right = shown(common), shown(kind.length)
            state.context.report(rules.SCAN_LENGTHS.at(item.span, left=left, right=right))
        common = kind.length if common is None else common
    return common


def _scanned(state: State, loop: Loop) -> list[tuple[str, Kind]]:
    """The items of the scanned packs; the packs were checked before, and nothing is said twice."""
    findings = len(state.context.findings)
    kinds = [(item.name, as_tensor(state.context.infer(item.value))) for item in loop.scans]
    del state.context.findings[findings:]
    return [(name, kind.present().single() if kind.packed else UNKNOWN) for name, kind in kinds]


def _infer_count(state: State, loop: Loop) -> Kind | None:
    if loop.iteration is None or loop.iteration.count is None:
        return None
    count = loop.iteration.count
    kind = state.context.infer(count)
    if kind.known and (kind.packed or family(kind.type or "") != "int"):
        state.context.report(rules.COUNT_TYPE.at(count.span, found=kind))
        return UNKNOWN
    if kind.tensor and loop.unroll:
        state.context.report(rules.UNROLL_TENSOR.at(count.span))
    return kind


def _loop_results(
    state: State, loop: Loop, kinds: tuple[list[Kind], list[Kind]], total: Known
) -> list[Kind] | None:
    carried, found = kinds
    if len(found) < len(carried):
        left, right = len(carried), len(found)
        state.context.report(rules.CARRIED_COUNT.at(loop.body.span, left=left, right=right))
        return None
    kept = [
        _compare_carried(state, loop, item, (kind, result))
        for item, kind, result in zip(loop.carried, carried, found, strict=False)
    ]
    _check_collected(state, loop, found)
    steps = [item.pack(total) if item.known else UNKNOWN for item in found[len(carried) :]]
    return [*kept, *steps]


def _check_collected(state: State, loop: Loop, found: Sequence[Kind]) -> None:
    for number, kind in enumerate(found, 1):
        if kind.packed:
            state.context.report(rules.BODY_PACK.at(loop.body.span, number=number))
    counted = loop.iteration is not None and loop.iteration.count is not None
    if len(found) > len(loop.carried) and not loop.scans and not counted:
        conditions = loop.before is not None or loop.after is not None
        if conditions:
            state.context.report(rules.SCAN_LIMIT.at(loop.span))


def _compare_carried(state: State, loop: Loop, item: Carried, both: tuple[Kind, Kind]) -> Kind:
    """A carried value keeps its type, and where the loop stays one, its rank."""
    kind, result = both
    if not (kind.known and result.known):
        return kind
    if not agrees(kind, result):
        left, right = str(kind.type), str(result.type)
    elif state.context.algebra.differ(kind.rank, result.rank) and not loop.unroll:
        left, right = f"of rank {shown(kind.rank)}", f"rank {shown(result.rank)}"
    else:
        return kind
    return state.context.report(rules.CARRIED_TYPE.at(loop.body.span, name=item.name, left=left, right=right))
