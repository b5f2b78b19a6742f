"""Choices: `? :`, `??` and the test for null."""

from __future__ import annotations

from lamella.lang.skriptnd.check.context import Context, excerpt
from lamella.lang.skriptnd.check.expressions.chains import refuse_tensor, tested
from lamella.lang.skriptnd.check.kinds import BOOL, UNKNOWN, Kind, agrees, join_types
from lamella.lang.skriptnd.check.lengths import Known, shown
from lamella.lang.skriptnd.nodes import Coalesce, NullTest, Select
from lamella.lang.skriptnd.rules import types as rules


def infer_select(context: Context, select: Select) -> Kind:
    """`condition ? then : otherwise`; without the second branch the result may be null."""
    condition = context.infer(select.condition)
    if condition.tensor:
        condition = refuse_tensor(context, select.condition, "the condition of '?'")
    if condition.known and condition.type != "bool":
        context.report(
            rules.NOT_BOOL.at(select.condition.span, what="the condition of '?'", type=condition.type)
        )
        condition = UNKNOWN
    names = tested(select.condition)
    if names:
        with context.inner():
            context.present(names)
            then = context.infer(select.then)
    else:
        then = context.infer(select.then)
    if select.otherwise is None:
        return _select_alone(context, select, condition, then)
    return _select(context, select, (condition, then, context.infer(select.otherwise)))


def _select_alone(context: Context, select: Select, condition: Kind, then: Kind) -> Kind:
    if condition.packed:
        return context.report(rules.SELECT_PACK.at(select.condition.span))
    return then.maybe() if then.known and condition.known else UNKNOWN


def _select(context: Context, select: Select, parts: tuple[Kind, Kind, Kind]) -> Kind:
    condition, then, otherwise = parts
    if not (condition.known and then.known and otherwise.known):
        return UNKNOWN
    if not agrees(then, otherwise) or then.tensor != otherwise.tensor:
        return context.report(rules.SELECT_TYPES.at(select.span, left=then, right=otherwise))
    name = join_types(then.type, otherwise.type)
    optional = condition.optional or then.optional or otherwise.optional
    if then.tensor:
        rank = then.rank if then.rank == otherwise.rank else None
        length = then.length if then.length == otherwise.length else None
        return Kind(name, optional, then.packed, True, length, rank)
    if condition.packed:
        return Kind(name, optional, True, length=_common(context, select, parts))
    chosen = context.algebra.choose
    if then.packed and otherwise.packed:
        return Kind(name, optional, True, length=chosen(condition.value, then.length, otherwise.length))
    if then.packed or otherwise.packed:
        return Kind(name, optional, True)
    return Kind(name, optional, value=chosen(condition.value, then.value, otherwise.value))


def _common(context: Context, select: Select, parts: tuple[Kind, Kind, Kind]) -> Known:
    """The length of packs that are chosen from item by item."""
    common: Known = None
    for part in parts:
        if not part.packed or part.length is None:
            continue
        if context.algebra.differ(common, part.length):
            left, right = shown(common), shown(part.length)
            context.report(rules.PACK_LENGTHS.at(select.span, sign="? :", left=left, right=right))
            return None
        common = part.length if common is None else common
    return common


def infer_coalesce(context: Context, coalesce: Coalesce) -> Kind:
    """`value ?? default`."""
    left, right = context.infer(coalesce.value), context.infer(coalesce.default)
    if left.known and not left.optional:
        context.report(rules.COALESCE_LEFT.at(coalesce.span, text=excerpt(coalesce.value)))
        return left
    if right.known and right.optional:
        context.report(rules.COALESCE_RIGHT.at(coalesce.default.span, text=excerpt(coalesce.default)))
        return UNKNOWN
    if not (left.known and right.known):
        return UNKNOWN
    if not agrees(left, right):
        return context.report(rules.COALESCE_TYPES.at(coalesce.span, left=left.type, right=right.type))
    name = join_types(left.type, right.type)
    if left.tensor or right.tensor:
        rank = left.rank if left.rank == right.rank else None
        return Kind(name, False, left.packed, True, None, rank)
    if left.packed or right.packed:
        length = left.length if left.packed and right.packed and left.length == right.length else None
        # A single value replaces a pack whose length nobody knows.
        return Kind(name, False, True, length=length)
    value = left.value if left.value == right.value else None
    if value is None and left.value is not None and right.value is not None:
        value = context.algebra.form(("??", left.value, right.value))
    return Kind(name, value=value)


def infer_null_test(context: Context, test: NullTest) -> Kind:
    """`?name`."""
    kind = context.lookup(test.name, test.span)
    if kind.known and not kind.optional:
        context.report(rules.NULL_TEST.at(test.span, name=test.name))
    return BOOL
