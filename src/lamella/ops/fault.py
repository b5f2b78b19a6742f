"""The exception of expressions, which know what is wrong and not where."""

from __future__ import annotations

from lamella.base.diagnostic import Rule
from lamella.base.errors import Found
from lamella.base.source import Span


class Fault(Exception):
    """A broken rule whose place is not known yet; whoever evaluates the expression adds it."""

    def __init__(self, rule: Rule, **values: object) -> None:
        super().__init__(rule.code)
        self.rule = rule
        self.values = values

    def at(self, span: Span) -> Found:
        """The finding at the expression that met it."""
        return Found(self.rule.at(span, hint=None, labels=(), **self.values))
