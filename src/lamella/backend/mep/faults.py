"""How an action of a plan fails; the machine makes findings of it that name the instruction and its byte."""

from __future__ import annotations

from lamella.base.diagnostic import Rule
from lamella.lang.nac.rules import sections


class Fault(Exception):
    """What went wrong: the rule and its values but for the name and the place of the instruction."""

    def __init__(self, rule: Rule, **values: str) -> None:
        super().__init__(rule.code)
        self.rule = rule
        self.values = values


def fault(problem: str, repair: str) -> Fault:
    """A value that an instruction cannot work with."""
    return Fault(sections.FAULT, problem=problem, repair=repair)


def denied(action: str, flag: str) -> Fault:
    """An action that nobody allowed."""
    return Fault(sections.NOT_ALLOWED, action=action, flag=flag)


def exceeded(problem: str, limit: str) -> Fault:
    """A budget that is used up."""
    return Fault(sections.BUDGET, problem=problem, limit=limit)


def refused(problem: str, repair: str) -> Fault:
    """An action that is allowed, but cannot be done."""
    return Fault(sections.REFUSED, problem=problem, repair=repair)
