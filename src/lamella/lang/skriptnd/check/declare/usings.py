"""Helper symbols and assertions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lamella.lang.skriptnd.check.context import Context, Entry, excerpt
from lamella.lang.skriptnd.check.declare.patterns import names_of, pack_of, take
from lamella.lang.skriptnd.check.expressions.chains import refuse_tensor
from lamella.lang.skriptnd.check.kinds import UNKNOWN, Kind, family
from lamella.lang.skriptnd.check.lengths import Known, length_of, number_of, truth_of
from lamella.lang.skriptnd.check.names import names_in
from lamella.lang.skriptnd.nodes import Assertion, Expr, ListPattern, Omitted, Using
from lamella.lang.skriptnd.rules import types as rules


def early_usings(usings: Sequence[Using], later: Collection[str]) -> list[Using]:
    """The helper symbols known before the inputs are bound: those that depend on nothing that is known later."""
    waiting = {*later, *(result.name for item in usings for result in names_of(item.target))}
    found = []
    for item in usings:
        if not any(name in waiting for name in names_in(item.value)):
            waiting.difference_update(result.name for result in names_of(item.target))
            found.append(item)
    return found


def declare_usings(context: Context, usings: Sequence[Using], done: Collection[int] = ()) -> None:
    """Declare helper symbols in their order, each seeing those before it; `done` are ids of those already declared."""
    pending = {
        result.name: item
        for item in reversed(usings)
        for result in names_of(item.target)
        if id(item) in done or result.name not in context.scope.names
    }
    context.place.later = pending.keys()
    for item in usings:
        taken = [] if id(item) in done else take(context, item.target, _value_of(context, item))
        for result in names_of(item.target):
            pending.pop(result.name, None)
        for result, kind in taken:
            entry = Entry(_named(result.name, kind), "a helper symbol", result.span)
            context.declare(result.name, entry)
    context.place.later = ()


def _value_of(context: Context, item: Using) -> Kind:
    kind = infer_value(context, item.value, "@using")
    if kind.type == "" and not isinstance(item.target, Omitted):
        return context.report(rules.UNTYPED_LIST.at(item.span, name=excerpt(item.value)))
    takes_pack = isinstance(item.target, ListPattern) or (
        not isinstance(item.target, Omitted) and pack_of(item.target) is not None
    )
    if kind.known and not kind.packed and takes_pack:
        what = "a pattern" if isinstance(item.target, ListPattern) else "a length"
        return context.report(rules.NOT_A_PACK.at(item.span, what=what, text=excerpt(item.value)))
    return kind


def infer_value(context: Context, expr: Expr, place: str) -> Kind:
    """The kind of an expression that is known before the run."""
    kind = context.infer(expr)
    return refuse_tensor(context, expr, place) if kind.tensor else kind


def _named(name: str, kind: Kind) -> Kind:
    """A value with a name: what is not known of it is called by that name."""
    if not kind.known:
        return UNKNOWN
    if kind.packed:
        return kind.pack(length_of(f"|{name}|") if kind.length is None else kind.length)
    value: Known = kind.value
    if value is None and family(kind.type or "") == "int":
        value = number_of(name)
    elif value is None and kind.type == "bool":
        value = truth_of(name)
    return Kind(kind.type, kind.optional, value=value)


def check_assertions(context: Context, assertions: Sequence[Assertion]) -> None:
    """Conditions are bool, single or packed; what is printed are values."""
    for item in assertions:
        kind = infer_value(context, item.condition, "@assert")
        if kind.known and kind.type not in ("bool", ""):
            context.report(rules.NOT_BOOL.at(item.condition.span, what="the assertion", type=kind.type))
        if item.message is not None:
            context.infer(item.message)
        for printed in item.values:
            infer_value(context, printed.value, "@assert")
