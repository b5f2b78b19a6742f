"""Unary and binary operators and their folds: types, packs side by side, integers followed symbolically."""

from __future__ import annotations

from lamella.lang.skriptnd.check.context import Context, excerpt
from lamella.lang.skriptnd.check.kinds import UNKNOWN, Kind, agrees, belongs, family, join_types
from lamella.lang.skriptnd.check.lengths import Known, shown
from lamella.lang.skriptnd.nodes import Chain, Expr, Fold, NullTest, Unary
from lamella.lang.skriptnd.rules import names
from lamella.lang.skriptnd.rules import types as rules

ARITHMETIC = frozenset(("+", "-", "*", "/", "\\", "%", "**", "<<", ">>"))
LOGICAL = frozenset(("&&", "||", "^", "=>"))
ORDERING = frozenset(("<", "<=", ">", ">="))
DIVIDING = frozenset(("/", "\\", "%"))
BASES = {
    **dict.fromkeys(ARITHMETIC, "num"),
    **dict.fromkeys(ORDERING, "type"),
    **dict.fromkeys(LOGICAL, "bool"),
}


def infer_chain(context: Context, chain: Chain) -> Kind:
    """Operators of one level, from left to right."""
    left = _operand(context, chain.first, chain.rest[0][0])
    if chain.rest[0][0] not in ("&&", "=>"):
        for sign, operand in chain.rest:
            left = _join(context, chain, sign, left, operand)
        return left
    # What a conjunction has tested is there in the terms behind the test.
    with context.inner():
        context.present(tested(chain.first))
        for sign, operand in chain.rest:
            left = _join(context, chain, sign, left, operand)
            if sign == "&&":
                context.present(tested(operand))
    return left


def tested(condition: Expr) -> list[str]:
    """The names whose values are there when a condition holds: null tests alone or in a conjunction."""
    if isinstance(condition, NullTest):
        return [condition.name]
    if isinstance(condition, Chain) and all(sign == "&&" for sign, _ in condition.rest):
        terms = [condition.first, *(operand for _, operand in condition.rest)]
        return [item.name for item in terms if isinstance(item, NullTest)]
    return []


def _operand(context: Context, expr: Expr, sign: str) -> Kind:
    kind = context.infer(expr)
    if kind.tensor and sign != "is":
        return refuse_tensor(context, expr, f"'{sign}'")
    return kind


def refuse_tensor(context: Context, expr: Expr, place: str) -> Kind:
    """Say that a tensor stands where a value is needed before the run."""
    return context.report(names.TENSOR_HERE.at(expr.span, name=excerpt(expr), place=place))


def _join(context: Context, chain: Chain, sign: str, left: Kind, operand: Expr) -> Kind:
    right = _operand(context, operand, sign)
    if sign == "in" and right.known and not right.packed:
        context.report(rules.NOT_A_PACK.at(operand.span, what="'in'", text=excerpt(operand)))
        return UNKNOWN
    if not (left.known and right.known):
        return UNKNOWN
    if sign in LOGICAL:
        checked = _check_logic(context, chain, sign, left, right)
    elif not agrees(left, right) and not _is_left_to_call(context, sign, left, right):
        context.report(rules.OPERAND_TYPES.at(chain.span, sign=sign, left=left.type, right=right.type))
        checked = False
    else:
        checked = is_defined(context, chain, sign, join_types(left.type, right.type) or left.type or "")
    if sign in DIVIDING and right.value == 0 and not right.packed and family(right.type or "") == "int":
        context.report(rules.DIVISION_BY_ZERO.at(operand.span, sign=sign))
        checked = False
    return _result(context, chain, sign, left, right) if checked else UNKNOWN


def _is_left_to_call(context: Context, sign: str, left: Kind, right: Kind) -> bool:
    """Whether two types may be the same in a call: one of them is generic, and they are compared."""
    return sign not in ARITHMETIC and (left.type in context.generics or right.type in context.generics)


def _check_logic(context: Context, chain: Chain, sign: str, left: Kind, right: Kind) -> bool:
    for side in (left, right):
        if side.type != "bool":
            context.report(rules.NOT_BOOL.at(chain.span, what=f"an operand of '{sign}'", type=side.type))
            return False
    return True


def is_defined(context: Context, node: Chain | Fold | Unary, sign: str, name: str) -> bool:
    """Whether an operator is defined for a type; where it is not, it is a finding."""
    if sign in ("==", "!=", "is", "in", ":=") or not name:
        return True
    if name == "str" and sign == "+" and not isinstance(node, Fold):
        return True
    base = "num" if isinstance(node, Fold) and sign in ORDERING else BASES[sign]
    if name in context.generics:
        restriction = context.generics[name]
        if base == "bool" or not belongs(restriction, base):
            context.report(
                rules.GENERIC_OPERAND.at(node.span, sign=sign, wanted=base, name=name, base=restriction)
            )
            return False
        return True
    if name == base or (base != "bool" and (belongs(name, base) or family(name) == "complex")):
        return True
    context.report(rules.OPERAND.at(node.span, sign=sign, type=name))
    return False


def _result(context: Context, chain: Chain, sign: str, left: Kind, right: Kind) -> Kind:
    optional = left.optional or right.optional
    name = "bool" if sign not in ARITHMETIC else join_types(left.type, right.type)
    if sign == "in":
        return Kind(name, optional, left.packed, length=left.length)
    if left.packed and right.packed and context.algebra.differ(left.length, right.length):
        context.report(
            rules.PACK_LENGTHS.at(chain.span, sign=sign, left=shown(left.length), right=shown(right.length))
        )
        return UNKNOWN
    if left.packed or right.packed:
        known = left.length if left.packed and left.length is not None else None
        return Kind(
            name, optional, True, length=known if known is not None or not right.packed else right.length
        )
    return Kind(name, optional, value=_value(context, sign, left, right))


def _value(context: Context, sign: str, left: Kind, right: Kind) -> Known:
    if sign == "**":
        return None
    if sign in ARITHMETIC and family(left.type or "") == "int":
        return context.algebra.combine(sign, left.value, right.value)
    if sign == "&&":
        return context.algebra.combine("*", left.value, right.value)
    return None


def infer_unary(context: Context, unary: Unary) -> Kind:
    """`+x`, `-x` and `!x`."""
    kind = _operand(context, unary.operand, unary.sign)
    if not kind.known:
        return UNKNOWN
    if unary.sign == "!":
        if kind.type != "bool":
            return context.report(rules.NOT_BOOL.at(unary.span, what="the operand of '!'", type=kind.type))
        value = context.algebra.combine("-", 1, kind.value)
    else:
        if kind.type == "str" or not is_defined(context, unary, "-", kind.type or ""):
            return (
                UNKNOWN
                if kind.type != "str"
                else context.report(rules.OPERAND.at(unary.span, sign=unary.sign, type="str"))
            )
        value = kind.value if unary.sign == "+" else context.algebra.combine("-", 0, kind.value)
    return Kind(
        kind.type, kind.optional, kind.packed, length=kind.length, value=None if kind.packed else value
    )


def infer_fold(context: Context, fold: Fold) -> Kind:
    """`pack sign ..` and `pack sign ...`."""
    kind = _operand(context, fold.operand, fold.sign)
    if not kind.known:
        return UNKNOWN
    if not kind.packed:
        return context.report(
            rules.NOT_A_PACK.at(fold.span, what=f"'{fold.sign} ..'", text=excerpt(fold.operand))
        )
    if fold.sign in LOGICAL and kind.type not in ("bool", ""):
        return context.report(rules.NOT_BOOL.at(fold.span, what=f"'{fold.sign} ..'", type=kind.type))
    if not is_defined(context, fold, fold.sign, kind.type or ""):
        return UNKNOWN
    if fold.cumulative:
        return Kind(kind.type, kind.optional, True, length=kind.length)
    compared = fold.sign in ORDERING or fold.sign in ("==", "!=")
    nullable = fold.sign in ("<<", ">>", ":=")
    return Kind("bool" if compared else kind.type, kind.optional or nullable)
