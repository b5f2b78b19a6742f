"""The one exception that carries findings inside ops and graph to the nearest collector."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.source import Span


class Problem(Exception):
    """Findings on their way to whoever collects them; it never reaches a user."""

    def __init__(self, *findings: Diagnostic) -> None:
        super().__init__(*(item.message for item in findings))
        self.findings = findings


class Fault(Exception):
    """A broken rule whose place is not known yet; whoever evaluates the expression adds it."""

    def __init__(self, rule: Rule, **values: object) -> None:
        super().__init__(rule.code)
        self.rule = rule
        self.values = values

    def at(self, span: Span) -> Problem:
        """The problem at the expression that met it."""
        return Problem(self.rule.at(span, hint=None, labels=(), **self.values))
