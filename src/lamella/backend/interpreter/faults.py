"""How a run that goes wrong is told: a fault says what, the statement that was executed says where."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.source import Span


class Fault(Exception):
    """A rule broken by the instruction at hand, with the names and numbers of its sentence."""

    def __init__(self, rule: Rule, **values: object) -> None:
        super().__init__(rule.code)
        self.rule = rule
        self.values = values

    def at(self, span: Span, place: str = "") -> Stopped:
        """The end of the run, at a place of the program."""
        return Stopped(self.rule.at(span, hint=None, labels=(), place=place, **self.values))


class Stopped(Exception):
    """The run ends with a finding."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding
