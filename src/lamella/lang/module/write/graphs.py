"""Graphs as lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatchmethod

from lamella.base.lines import Lines
from lamella.base.source import Notes
from lamella.lang.module import nodes as n
from lamella.lang.module.write.expressions import (
    is_primary,
    write_arguments,
    write_condition,
    write_expression,
)
from lamella.lang.module.write.types import write_annotation, write_annotations, write_if, write_type
from lamella.lang.module.write.wrap import INDENT, fits, wrap


class GraphWriter(Lines):
    """Writes the statements of a graph, and blocks in general."""

    indent = INDENT

    def put(self, notes: Notes, text: str, apart: bool = False) -> None:
        """A statement with its notes, broken where it is too long."""
        self.place(notes, wrap(text, self.level), apart)

    def begin(self, notes: Notes, head: str, apart: bool = False) -> None:
        """The line that opens a block, with its notes."""
        self.put(notes, head, apart)
        self.level += 1

    def end(self, notes: Notes) -> None:
        """The end of a block, after the comments that stand there."""
        self.comments(notes.last)
        self.level -= 1

    # --- statements -----------------------------------------------------------------------------------------

    def statements(self, statements: Iterable[n.Statement]) -> None:
        """Statements, one below the other."""
        for statement in statements:
            self.statement(statement)

    @singledispatchmethod
    def statement(self, node: n.Statement) -> None:
        """Write a statement."""
        raise TypeError(f"{type(node).__name__} is not a statement")

    @statement.register
    def _(self, node: n.Flow) -> None:
        parts = [_sources(node.sources)]
        parts += [f"-> {_step(step)}" for step in node.steps]
        parts.append(f"-> {_targets(node.targets)}")
        notes = [write_annotation(item) for item in node.annotations]
        self.place(node.notes, self._flow(parts, notes))

    def _flow(self, parts: Sequence[str], annotations: Sequence[str]) -> list[str]:
        """On one line where it fits, else broken before every arrow and every annotation."""
        whole = " ".join((*parts, *annotations))
        if fits(whole, self.level):
            return [INDENT * self.level + whole]
        found = wrap(parts[0], self.level)
        for part in (*parts[1:], *annotations):
            found += wrap(part, self.level + 1)
        return found

    @statement.register
    def _(self, node: n.Conditional) -> None:
        for index, arm in enumerate(node.arms):
            self.begin(arm.notes, f"{'elif' if index else 'if'} {write_condition(arm.condition)}:")
            self.statements(arm.body)
            self.end(arm.notes)
        if node.otherwise is not None:
            self.begin(node.notes, "else:")
            self.statements(node.otherwise)
            self.end(node.notes)

    @statement.register
    def _(self, node: n.Recompute) -> None:
        self.begin(node.notes, "recompute:")
        self.statements(node.body)
        self.end(node.notes)

    @statement.register
    def _(self, node: n.Stub) -> None:
        self.put(node.notes, "...")

    def selection(self, name: str, node: n.Selection | None) -> None:
        """`save: [item, …] if condition`, if it is there."""
        if node is not None:
            items = ", ".join(item.text + "..." * item.spread for item in node.items)
            self.put(node.notes, f"{name}: [{items}]{write_if(node.condition)}")


def _sources(sources: tuple[n.Expr, ...]) -> str:
    text = ", ".join(map(write_expression, sources))
    return text if len(sources) == 1 and is_primary(sources[0]) else f"({text})"


def _step(node: n.Step) -> str:
    if isinstance(node, n.ShapeAssertion):
        return write_type(node.type)
    callee = write_expression(node.callee)
    return f"{callee}{write_arguments(node.arguments)}{write_annotations(node.annotations)}"


def _targets(targets: tuple[n.Target, ...]) -> str:
    """One target stands alone unless it has annotations of its own."""
    text = ", ".join(item.name + write_annotations(item.annotations) for item in targets)
    return text if len(targets) == 1 and not targets[0].annotations else f"({text})"
