"""Assertions of operators that were composed in place, and that only the run can decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.diagnostic import LamellaError
from lamella.base.dim import Logic, Test, substitute_truth, symbols
from lamella.ops.instance import Check


def require_checks(checks: Sequence[Check], extents: Mapping[str, int]) -> None:
    """Refuse a run in which an assertion does not hold, as far as its extents are known by now."""
    for check in checks:
        condition, names = check.condition, set[str]()
        if isinstance(condition, Test | Logic):
            names = {item.name for item in symbols(condition)}
            condition = substitute_truth(condition, extents)
        if condition is False:
            told = ", ".join(f"'{name}' is {extents[name]}" for name in sorted(names) if name in extents)
            values = told or "it does not hold"
            raise LamellaError([check.rule.at(check.span, message=check.message, values=values)])
