"""The formulas of a gradient apart: the language has one that initialises an output, and one that adds to it.

Formulas of which attributes choose one are cases of their own; others go two by two where one of them assigns every
element at most once, and can begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from lamella.base.records import dataclass
from lamella.lang.skriptnd import nodes as n


@dataclass(frozen=True, slots=True)
class FormulaCase:
    """Formulas that may stand in one operator, and the attributes by which it is called; None for always."""

    formulas: tuple[n.Lowering, ...]
    condition: n.Expr | None = None


def separate(formulas: Sequence[n.Lowering]) -> list[FormulaCase]:
    """Sums into one gradient as few cases: their results are added, or one of them is chosen."""
    if len(formulas) == 1:
        return [FormulaCase(tuple(formulas))]
    conditions = [_condition(item) for item in formulas]
    if all(_exclude(one, other) for one, other in combinations(conditions, 2)):
        return [
            FormulaCase((_without_condition(item),), condition)
            for item, condition in zip(formulas, conditions, strict=True)
        ]
    beginning = [item for item in formulas if _condition(item) is None and _assigns_once(item)]
    others = [item for item in formulas if item not in beginning]
    found: list[FormulaCase] = []
    while beginning and others:
        found.append(FormulaCase((replace(beginning.pop(0), sign="="), others.pop(0))))
    while len(beginning) > 1:
        found.append(FormulaCase((replace(beginning.pop(0), sign="="), beginning.pop(0))))
    return found + [FormulaCase((item,)) for item in (*beginning, *others)]


def _condition(formula: n.Lowering) -> n.Expr | None:
    """What leaves a formula out where it fails."""
    value = formula.value
    return value.condition if isinstance(value, n.Select) and value.otherwise is None else None


def _without_condition(formula: n.Lowering) -> n.Lowering:
    return replace(formula, value=formula.value.then) if isinstance(formula.value, n.Select) else formula


def _assigns_once(formula: n.Lowering) -> bool:
    """Whether no two steps of a formula have one target: each index is one of the target's."""
    plain = {_name(item) for item in formula.target.indices}
    return all(item.index in plain for item in formula.bounds)


def _name(index: object) -> str | None:
    if isinstance(index, n.Expand):
        return _name(index.operand)
    return index.id if isinstance(index, n.Name) else None


def _exclude(one: n.Expr | None, other: n.Expr | None) -> bool:
    """Whether two conditions never hold together."""
    if one is None or other is None:
        return False
    return any(_contradict(first, second) for first in _parts(one) for second in _parts(other))


def _parts(condition: n.Expr) -> list[n.Expr]:
    """What must hold for a condition to hold."""
    if isinstance(condition, n.Chain) and all(sign == "&&" for sign, _ in condition.rest):
        return [
            part for item in (condition.first, *(one for _, one in condition.rest)) for part in _parts(item)
        ]
    return [condition]


def _contradict(one: n.Expr, other: n.Expr) -> bool:
    if n.Unary("!", one) == other or n.Unary("!", other) == one:
        return True
    sides = [item for item in (one, other) if isinstance(item, n.Chain) and len(item.rest) == 1]
    if len(sides) < 2 or sides[0].first != sides[1].first:
        return False
    (sign, left), (other_sign, right) = sides[0].rest[0], sides[1].rest[0]
    constants = isinstance(left, n.Text | n.Integer) and isinstance(right, n.Text | n.Integer)
    return sign == other_sign == "==" and constants and left != right
