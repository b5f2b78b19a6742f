"""Constants, variables and outputs: tensors whose shapes are made of declared names."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.lang.skriptnd.check.context import Context, Entry, excerpt
from lamella.lang.skriptnd.check.declare.shapes import Declaring, read_tensor
from lamella.lang.skriptnd.check.declare.usings import infer_value
from lamella.lang.skriptnd.check.kinds import UNKNOWN, Kind, agrees, family
from lamella.lang.skriptnd.check.lengths import Known, number_of, shown
from lamella.lang.skriptnd.nodes import Bound, Expr, Omitted, Parameter
from lamella.lang.skriptnd.rules import lowering, types
from lamella.lang.skriptnd.rules import shapes as rules


def declare_tensors(context: Context, items: Sequence[Parameter], what: str, graph: bool = False) -> None:
    """Declare the constants, variables or outputs of an operator."""
    article = "an" if what == "output" else "a"
    for item in items:
        kind = read_tensor(context, item, Declaring(what, graph=graph, dynamic=what == "output"))
        context.declare(item.name, Entry(kind, f"{article} {what}", item.span))
        _check_form(context, item, what)
        if what == "constant":
            _check_value(context, item, kind)


def _check_form(context: Context, item: Parameter, what: str) -> None:
    if item.type.rank is not None:
        context.report(rules.RANK_PLACE.at(item.span, what=what, name=item.name))
    if item.type.optional:
        context.report(rules.NEVER_NULL.at(item.span, what=what, name=item.name))
    if item.bounds and what != "constant":
        context.report(rules.INDEX_PLACE.at(item.bounds[0].span, what=what, name=item.name))
    if item.value is not None and what == "variable":
        context.report(rules.VARIABLE_VALUE.at(item.value.span, name=item.name))
    if item.value is not None and what == "output":
        context.report(rules.OUTPUT_VALUE.at(item.value.span, name=item.name))


def _check_value(context: Context, item: Parameter, declared: Kind) -> None:
    if item.value is None:
        context.report(rules.CONSTANT_VALUE.at(item.span, name=item.name))
        return
    with context.inner():
        count = declare_indices(context, item.bounds)
        kind = infer_value(context, item.value, "@constant")
    if item.bounds and context.algebra.differ(count, declared.rank):
        rank, covered = shown(declared.rank), shown(count)
        context.report(rules.INDEX_COUNT.at(item.span, name=item.name, rank=rank, count=covered))
    if not agrees(kind, declared):
        context.report(
            types.DEFAULT_TYPE.at(item.value.span, name=item.name, left=declared.type, right=kind.type)
        )
    elif kind.known and kind.optional:
        what = f"constant '{item.name}'"
        context.report(types.OPTIONAL_HERE.at(item.value.span, text=excerpt(item.value), what=what))
    elif kind.known:
        _check_count(context, item, declared, kind)


def _check_count(context: Context, item: Parameter, declared: Kind, kind: Kind) -> None:
    """A list gives every element of a constant its value, or every constant of a pack."""
    value = item.value
    if value is None:
        return
    if declared.packed and not kind.packed:
        context.report(rules.CONSTANT_PACK.at(value.span, name=item.name))
    elif kind.packed and item.bounds:
        text = excerpt(value)
        context.report(types.PACK_HERE.at(value.span, what=f"each element of '{item.name}'", text=text))
    elif kind.packed:
        wanted = declared.length if declared.packed else _volume(context, item)
        if context.algebra.differ(wanted, kind.length):
            left, right = shown(wanted), shown(kind.length)
            context.report(rules.CONSTANT_LENGTH.at(value.span, name=item.name, left=left, right=right))


def _volume(context: Context, item: Parameter) -> Known:
    volume: Known = 1
    for extent in item.type.shape or ():
        if extent.pack is not None or isinstance(extent.value, Omitted):
            return None
        entry = context.infer(extent.value)
        volume = context.algebra.combine("*", volume, entry.value)
    return volume


def declare_indices(context: Context, bounds: Sequence[Bound]) -> Known:
    """Declare index symbols with their limits; how many dimensions they cover is returned."""
    count: Known = 0
    for bound in bounds:
        kind = _limit_of(context, bound.limit)
        index = Kind("int", False, kind.packed, length=kind.length) if kind.known else UNKNOWN
        declare_index(context, bound.index, index, bound)
        covered = None if not kind.known else kind.length if kind.packed else 1
        count = context.algebra.combine("+", count, covered)
    return count


def _limit_of(context: Context, limit: Expr) -> Kind:
    kind = context.infer(limit)
    if kind.tensor or (kind.known and kind.type and family(kind.type) != "int"):
        found = kind if kind.tensor else kind.type
        return context.report(types.INTEGER_NEEDED.at(limit.span, what="a limit", type=found))
    return kind


def declare_index(context: Context, name: str, kind: Kind, node: Bound | Expr) -> None:
    """Declare a name that is local to a formula; it may not hide another one."""
    earlier = context.scope.find(name)
    if earlier is not None:
        context.report(lowering.INDEX_TWICE.at(node.span, name=name, what=earlier.what))
    if not kind.packed and kind.known and kind.value is None and family(kind.type or "") == "int":
        kind = Kind("int", kind.optional, value=number_of(name))
    context.scope.names[name] = Entry(kind, "an index symbol", node.span)
