"""What a composition has come to: names assigned, labels used, how deep in control flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from lamella.base.source import Span
from lamella.lang.skriptnd.check.context import Context, excerpt
from lamella.lang.skriptnd.check.definitions import Definitions
from lamella.lang.skriptnd.check.kinds import Kind
from lamella.lang.skriptnd.nodes import Expr, Operator
from lamella.lang.skriptnd.rules import composition as rules
from lamella.lang.skriptnd.rules import types


class Edge(NamedTuple):
    """An invocation that is always composed."""

    operator: str
    span: Span


class State:
    """The state of checking one composition."""

    def __init__(self, context: Context, definitions: Definitions, operator: Operator) -> None:
        self.context = context
        self.definitions = definitions
        self.operator = operator
        self.edges: list[Edge] = []
        self.controlled = 0
        self.conditional = 0
        self.nullable = any(item.type.optional for item in operator.parameters("output"))
        self.labelled = False
        """Whether the component being checked gives an invocation its label."""
        self.labels: set[str] = set()
        self.all_labels: set[str] = set()

    @contextmanager
    def control(self, static: bool) -> Iterator[None]:
        """Inside a branch or a loop; `static` where it may be left out before the run."""
        self.controlled += 1
        self.conditional += static
        try:
            yield
        finally:
            self.controlled -= 1
            self.conditional -= static

    @contextmanager
    def block(self) -> Iterator[None]:
        """Inside a block, which has names and labels of its own."""
        outer, self.labels = self.labels, set()
        try:
            with self.context.inner():
                yield
        finally:
            self.labels = outer

    def add_label(self, label: str | None, span: Span) -> None:
        """Remember a label; a second use is a finding."""
        if label is None:
            return
        if label in self.labels:
            self.context.report(rules.LABEL_TWICE.at(span, label=label))
        self.labels.add(label)
        self.all_labels.add(label)

    def tensor(self, expr: Expr, what: str) -> Kind:
        """The kind of an expression as a tensor that must be there."""
        return self.required(expr, as_tensor(self.context.infer(expr)), what)

    def required(self, expr: Expr, kind: Kind, what: str) -> Kind:
        """The same kind, never null; where it may be null, it is a finding."""
        if kind.known and kind.optional and not self.nullable:
            self.context.report(types.OPTIONAL_HERE.at(expr.span, text=excerpt(expr), what=what))
            return kind.present()
        return kind


def as_tensor(kind: Kind) -> Kind:
    """A value before the run as the tensor of rank 0 that stands for it."""
    if kind.tensor or not kind.known:
        return kind
    return Kind(kind.type, kind.optional, kind.packed, True, kind.length, 0)
