"""Formulas: what `@lower` assigns, with which indices, types and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Notes, Span
from lamella.lang.skriptnd.check.context import Context, Entry, Place
from lamella.lang.skriptnd.check.declare.tensors import declare_index, declare_indices
from lamella.lang.skriptnd.check.declare.usings import infer_value
from lamella.lang.skriptnd.check.expressions.packs import infer_integer
from lamella.lang.skriptnd.check.kinds import Kind, agrees, belongs, family
from lamella.lang.skriptnd.check.lengths import number_of, shown
from lamella.lang.skriptnd.check.names import names_in
from lamella.lang.skriptnd.nodes import (
    Access,
    Expand,
    Integer,
    Lowering,
    Name,
    Omitted,
    Operator,
    Parameter,
    TypeSpec,
)
from lamella.lang.skriptnd.rules import lowering as rules
from lamella.lang.skriptnd.rules import types

ACCUMULATIONS = {"+=": "num", "*=": "num", "<=": "num", ">=": "num", "&=": "bool", "|=": "bool"}


def check_lowering(context: Context, operator: Operator) -> None:
    """Check the formulas of an operator."""
    outputs = list(operator.parameters("output"))
    formulas = [item for item in operator.items("lower") if isinstance(item, Lowering)]
    names = {item.name for item in outputs}
    sections = ("input", "output", "constant", "variable")
    types_of = {item.name: item.type for section in sections for item in operator.parameters(section)}
    later = dict.fromkeys(names)
    for formula in formulas:
        later.pop(formula.target.tensor, None)
        with context.inner(), context.at(Place("lower", accesses=True, limits=_limits(formula, types_of))):
            _check_formula(context, formula, names)
            for name in later:
                if _reads(name, formula):
                    context.report(rules.READS_LATER.at(formula.span, name=name))
    for finding in check_order(outputs, formulas):
        context.report(finding)


def _limits(formula: Lowering, declared: Mapping[str, TypeSpec]) -> dict[str, str]:
    """What the indices of a formula run up to by the tensors that they index: the extent at the same place."""
    found: dict[str, str] = {}
    stack: list[object] = [formula.condition, formula.value, formula.locals, formula.target]
    while stack:
        node = stack.pop()
        if isinstance(node, Access) and node.tensor in declared:
            for name, limit in _indexed(node, declared[node.tensor]):
                found.setdefault(name, limit)
        if isinstance(node, Span | Notes):
            continue
        if isinstance(node, tuple):
            stack.extend(node)
        elif hasattr(node, "__dataclass_fields__"):
            stack.extend(getattr(node, field) for field in node.__dataclass_fields__)
    return found


def _indexed(access: Access, declared: TypeSpec) -> Iterator[tuple[str, str]]:
    """The names that are an index of an access by themselves, each with the text of what it indexes."""
    length = None if declared.pack is None else declared.pack.length
    if isinstance(access.item, Name) and length is not None and not isinstance(length, Omitted):
        yield access.item.id, length.span.text
    for index, extent in zip(access.indices, declared.shape or (), strict=False):
        if isinstance(index, Expand) != (extent.pack is not None):
            return
        name = index.operand if isinstance(index, Expand) else index
        if isinstance(name, Name) and not isinstance(extent.value, Omitted) and not extent.spread:
            yield name.id, extent.value.span.text


def check_order(outputs: Sequence[Parameter], formulas: Sequence[Lowering]) -> Iterator[Diagnostic]:
    """Every output is assigned by at most two formulas: one that initialises it, one that accumulates."""
    seen: dict[str, list[Lowering]] = {}
    names = {item.name for item in outputs}
    for formula in (item for item in formulas if item.target.tensor in names):
        earlier = seen.setdefault(_key(formula.target), [])
        name = formula.target.tensor
        if formula.sign == "=" and len(earlier) == 1:
            yield rules.LATE_INITIAL.at(formula.span, name=name)
        elif earlier and (len(earlier) > 1 or earlier[0].sign != "="):
            yield rules.TOO_MANY.at(formula.span, name=name)
        elif formula.sign == ":=" and not earlier and name not in seen:
            yield rules.UNINITIALISED.at(formula.span, name=name)
        earlier.append(formula)
        seen.setdefault(name, [])
    for item in outputs:
        if all(formula.target.tensor in names for formula in formulas) and item.name not in seen:
            yield rules.NO_ASSIGNMENT.at(item.span, name=item.name)


def _key(target: Access) -> str:
    """What counts as one output: items of a pack that are chosen by numbers count each for itself."""
    return (
        f"{target.tensor}[{target.item.value}]" if isinstance(target.item, Integer) else f"{target.tensor}[]"
    )


def _check_formula(context: Context, formula: Lowering, outputs: set[str]) -> None:
    _declare_unroll(context, formula)
    declare_indices(context, formula.bounds)
    _declare_locals(context, formula)
    if formula.target.tensor not in outputs:
        if context.scope.find(formula.target.tensor) is None:
            context.lookup(formula.target.tensor, formula.target.span)
        else:
            context.report(rules.TARGET.at(formula.target.span, name=formula.target.tensor))
        return
    target = context.infer(formula.target)
    value = infer_value(context, formula.value, "@lower")
    _check_condition(context, formula)
    if formula.sign == "=" and _reads(formula.target.tensor, formula):
        context.report(rules.READS_ITSELF.at(formula.span, name=formula.target.tensor))
    if target.known and value.known:
        _check_assignment(context, formula, target, value)


def _reads(name: str, formula: Lowering) -> bool:
    read = (formula.value, formula.condition, formula.target.indices, tuple(formula.locals))
    return any(item == name for item in names_in(read))


def _declare_unroll(context: Context, formula: Lowering) -> None:
    unroll = formula.unroll
    if unroll is None:
        return
    if unroll.count is None:
        context.report(rules.UNROLL_COUNT.at(unroll.span))
    else:
        infer_integer(context, unroll.count, "the count of 'unroll'")
    if unroll.index is not None:
        kind = Kind("int", value=number_of(unroll.index))
        declare_index(context, unroll.index, kind, unroll.count or formula.target)


def _declare_locals(context: Context, formula: Lowering) -> None:
    """Local values may hold guards: they may be used as indices."""
    context.place.guards = True
    for item in formula.locals:
        kind = infer_value(context, item.value, "a local value")
        earlier = context.scope.find(item.name)
        if earlier is not None:
            context.report(rules.INDEX_TWICE.at(item.span, name=item.name, what=earlier.what))
        context.scope.names[item.name] = Entry(kind, "a local value", item.span)
    context.place.guards = False


def _check_condition(context: Context, formula: Lowering) -> None:
    if formula.condition is None:
        return
    kind = infer_value(context, formula.condition, "a condition")
    if kind.known and kind.type != "bool":
        context.report(types.NOT_BOOL.at(formula.condition.span, what="the condition", type=kind.type))
    elif kind.packed:
        context.report(rules.CONDITION_PACK.at(formula.condition.span))


def _check_assignment(context: Context, formula: Lowering, target: Kind, value: Kind) -> None:
    name = formula.target.tensor
    if not agrees(target, value):
        context.report(rules.RIGHT_TYPE.at(formula.value.span, name=name, left=target.type, right=value.type))
        return
    _check_sign(context, formula, target.type or "")
    if value.packed and not target.packed:
        context.report(rules.PACKED_RIGHT.at(formula.value.span, name=name))
    elif value.packed and context.algebra.differ(target.length, value.length):
        left, right = shown(target.length), shown(value.length)
        context.report(rules.PACKED_LENGTH.at(formula.value.span, name=name, left=left, right=right))


def _check_sign(context: Context, formula: Lowering, name: str) -> None:
    base = ACCUMULATIONS.get(formula.sign)
    if base is None:
        return
    base_of = context.generics.get(name, name)
    fits = name == "bool" if base == "bool" else belongs(base_of, base) or family(name) == "complex"
    if not fits:
        context.report(rules.ACCUMULATION.at(formula.span, sign=formula.sign, type=name))
