"""Fields: `name: value` lines whose names are free."""

from __future__ import annotations

from lamella.base.cursor import SyntaxProblem
from lamella.lang.module.nodes import Expr, Field
from lamella.lang.module.parse.layout import NEWLINE
from lamella.lang.module.parse.lexis import DOC, OPEN, OPEN_DOC
from lamella.lang.module.parse.ports import Ports

NO_TEXT = frozenset((NEWLINE, DOC, OPEN, OPEN_DOC))
ITEM = "-"
"""The name of a field that is an item of a list, or a line of free text."""


class Fields(Ports):
    """Recipes, presets, `hf_config:` and the free sections of a primitive."""

    def field(self) -> Field:
        """`name ':' value`, `name ':'` with fields below it, or an item: `'-' value` or a line of text."""
        first = self.index
        self.accept(ITEM)
        if self.at_named() and self.kinds[self.index + 2] == NEWLINE:
            return self._group(first)
        name = ITEM
        if self.at_named():
            name = self.name("the name of a field", "here")
            self.next()
        value = self.free_value()
        self.has_stub = self.has_stub or value == "..."
        span, notes = self.settle(first)
        self.end_line("after a field")
        return Field(name, value, notes, span)

    def _group(self, first: int) -> Field:
        """`name ':'` with the fields below it."""
        notes = self.above(first)
        name = self.name("the name of a field", "here")
        self.next()
        notes = self.headed(notes)
        self.descend("of fields")
        found, last = self.lines(self.field)
        self.depth_left += 1
        return Field(name, tuple(found), self.closed(notes, last), self.span_from(first))

    def free_value(self) -> Expr | str:
        """The rest of a line: an expression if it is one, its text if it is not."""
        first, depth, findings = self.index, self.depth_left, len(self.findings)
        try:
            value: Expr | str = self.expression()
        except SyntaxProblem:
            value = ""
        if self.kind == NEWLINE and len(self.findings) == findings:
            return value
        self.move_to(first)
        self.depth_left = depth
        del self.findings[findings:]
        return self._text()

    def _text(self) -> str:
        """The text of the rest of a line; one that takes several lines is put on one."""
        first = self.index
        self.skip_to(lambda: self.kind in NO_TEXT)
        if self.index == first or self.kind != NEWLINE:
            raise self.problem("a value", "in a field")
        text = self.source.text[self.starts[first] : self.end_of(self.index - 1)]
        return " ".join(self.texts[first : self.index]) if "\n" in text else text
