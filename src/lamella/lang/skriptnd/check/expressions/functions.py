"""Casts, built-in functions, formatted strings and the members of tensors."""

from __future__ import annotations

from lamella.lang.skriptnd.check.context import Context
from lamella.lang.skriptnd.check.expressions.chains import refuse_tensor
from lamella.lang.skriptnd.check.kinds import STR, UNKNOWN, Kind, belongs, family, is_type
from lamella.lang.skriptnd.nodes import Call, Cast, Format, Member
from lamella.lang.skriptnd.rules import names
from lamella.lang.skriptnd.rules import types as rules

NUMERIC = frozenset(("abs", "sign"))
FUNCTIONS = NUMERIC | {
    *("sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "round", "floor", "ceil", "frac"),
}


def infer_cast(context: Context, cast: Cast) -> Kind:
    """`type(x)` and the default value `type()`."""
    base = context.generics.get(cast.type)
    if base is None and not is_type(cast.type):
        if cast.operand is not None:
            context.infer(cast.operand)
        return context.report(names.UNKNOWN_TYPE.at(cast.span, name=cast.type))
    if base == "":
        return UNKNOWN
    if cast.operand is None:
        return Kind(cast.type, value=0 if family(cast.type) in ("int", "bool") else None)
    kind = context.infer(cast.operand)
    if kind.tensor:
        kind = refuse_tensor(context, cast.operand, "a cast")
    if not kind.known:
        return UNKNOWN
    if not (_casts(context, cast.type) and _casts(context, kind.type or "")):
        return context.report(rules.CAST_TYPE.at(cast.span, left=kind.type, right=cast.type))
    keeps = family(cast.type) == "int" and family(kind.type or "") in ("int", "bool")
    return Kind(
        cast.type, kind.optional, kind.packed, length=kind.length, value=kind.value if keeps else None
    )


def _casts(context: Context, name: str) -> bool:
    if name in context.generics:
        return belongs(context.generics[name], "arith")
    return name == "" or belongs(name, "arith")


def infer_call(context: Context, call: Call) -> Kind:
    """A built-in function of one argument."""
    kind = context.infer(call.operand)
    if call.function not in FUNCTIONS:
        return UNKNOWN
    if kind.tensor:
        kind = refuse_tensor(context, call.operand, f"'{call.function}'")
    if not kind.known:
        return UNKNOWN
    if not _takes(context, call.function, kind.type or ""):
        wanted = "int or real" if call.function in NUMERIC else "real"
        return context.report(
            rules.FUNCTION_TYPE.at(call.span, name=call.function, wanted=wanted, type=kind.type)
        )
    value = context.algebra.form(("abs", kind.value), 0) if _is_size(call, kind) else None
    return Kind(kind.type, kind.optional, kind.packed, length=kind.length, value=value)


def _is_size(call: Call, kind: Kind) -> bool:
    return call.function == "abs" and kind.value is not None and family(kind.type or "") == "int"


def _takes(context: Context, function: str, name: str) -> bool:
    if function in NUMERIC:
        return not name or belongs(context.generics.get(name, name), "num")
    return family(name) in ("real", "complex", "")


def infer_format(context: Context, text: Format) -> Kind:
    """A string with holes."""
    optional = False
    for part in text.parts:
        if not isinstance(part, str):
            kind = context.infer(part)
            optional = optional or kind.optional
            if kind.tensor:
                refuse_tensor(context, part, "a string")
    return STR.maybe(optional)


def infer_member(context: Context, member: Member) -> Kind:
    """`x.shape`, `x.rank` and `x.size`."""
    kind = context.lookup(member.name, member.span)
    if not kind.known:
        return UNKNOWN
    if not kind.tensor or kind.packed != (member.field == "size"):
        return context.report(
            names.NO_MEMBER.at(member.span, name=member.name, field=member.field, what=kind)
        )
    if member.field == "shape":
        return Kind("int", kind.optional, True, length=kind.rank)
    return Kind("int", kind.optional, value=kind.length if member.field == "size" else kind.rank)
