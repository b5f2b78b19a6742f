"""The kinds of expressions: one function for each node, findings on the way."""

from __future__ import annotations

from lamella.lang.skriptnd.check.context import Context
from lamella.lang.skriptnd.check.expressions.accesses import infer_access, infer_guard
from lamella.lang.skriptnd.check.expressions.chains import infer_chain, infer_fold, infer_unary
from lamella.lang.skriptnd.check.expressions.choices import infer_coalesce, infer_null_test, infer_select
from lamella.lang.skriptnd.check.expressions.functions import (
    infer_call,
    infer_cast,
    infer_format,
    infer_member,
)
from lamella.lang.skriptnd.check.expressions.packs import infer_index, infer_list, infer_substitute
from lamella.lang.skriptnd.check.kinds import REAL, STR, Kind
from lamella.lang.skriptnd.nodes import (
    Access,
    Bool,
    Bounded,
    Call,
    Cast,
    Chain,
    Coalesce,
    Constant,
    Expr,
    Fold,
    Format,
    Index,
    Integer,
    List,
    Member,
    Name,
    NullTest,
    Real,
    Select,
    Substitute,
    Text,
    Unary,
)


def infer(context: Context, expr: Expr) -> Kind:
    """The kind of an expression."""
    match expr:
        case Name():
            return context.lookup(expr.id, expr.span)
        case Integer():
            return Kind("int", value=expr.value)
        case Chain():
            return infer_chain(context, expr)
        case Access():
            return infer_access(context, expr)
        case Index():
            return infer_index(context, expr)
        case Select():
            return infer_select(context, expr)
        case Coalesce():
            return infer_coalesce(context, expr)
        case List():
            return infer_list(context, expr)
        case Fold():
            return infer_fold(context, expr)
        case Unary():
            return infer_unary(context, expr)
        case Call():
            return infer_call(context, expr)
        case Cast():
            return infer_cast(context, expr)
        case Member():
            return infer_member(context, expr)
        case NullTest():
            return infer_null_test(context, expr)
        case Substitute():
            return infer_substitute(context, expr)
        case Bounded():
            return infer_guard(context, expr)
        case Format():
            return infer_format(context, expr)
        case Bool():
            return Kind("bool", value=int(expr.value))
        case Real() | Constant():
            return REAL
        case Text():
            return STR
