"""How reading goes on after an error."""

from __future__ import annotations

from itertools import pairwise

from lamella.base.cursor import SHOWN, SyntaxProblem
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.nem.nodes import Broken, Name
from lamella.lang.nem.parse.lexis import NAME
from lamella.lang.nem.parse.tasks import Tasks
from lamella.lang.nem.words import FORMS, KEYWORDS, STATEMENT_WORDS

BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


class Recovery(Tasks):
    """Finds the next statement after one that cannot be read; one mistake makes one finding."""

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self.lost_loops = 0

    def broken(self, start: int) -> Broken:
        """What stands in for an unreadable statement: the names it would have declared, up to the next statement."""
        if self.index == start:
            self.next()
        names = {name.id: name for name in self.declared}
        for name in self._skip_statement(start):
            names.setdefault(name.id, name)
        self.lost_loops += ".." in self.texts[start : self.index]
        return self.passed_over(start, tuple(names.values()))

    def _skip_statement(self, start: int) -> list[Name]:
        """Go on to the next statement, and give the names that look defined on the way.

        A word of a statement always ends the broken one. Definitions and tasks do outside brackets, and within them,
        since their end may be missing, at the beginning of a line. So does any name at the beginning of a line, but not
        within brackets, and not after a task, whose attributes look like definitions.
        """
        taken = self.texts[start : self.index]
        is_task = any(mark == "." and form in FORMS for mark, form in pairwise(taken))
        column = self.source.place(self.starts[start])[1]
        opened = sum(BRACKETS.get(text, 0) for text in taken)
        names = []
        while self.index < self.end and self.text not in STATEMENT_WORDS:
            is_outside, is_first = opened <= 0, self._at_line_start(column)
            if (is_outside or is_first) and self.at_statement():
                break
            if is_outside and not is_task:
                if is_first:
                    break
                if self.kind == NAME and self.ahead() == "=" and self.text not in KEYWORDS:
                    names.append(Name(self.text, self.span(self.index)))
            opened += BRACKETS.get(self.text, 0)
            self.next()
        return names

    def _at_line_start(self, column: int) -> bool:
        """Whether a name is the first word of a line, at this column or before it."""
        if self.kind != NAME:
            return False
        start = self.starts[self.index]
        newline = self.source.text.rfind("\n", self.end_of(self.index - 1), start)
        return newline >= 0 and start - newline <= column

    def passed_over(self, start: int, names: tuple[Name, ...]) -> Broken:
        """What stands in for the tokens from `start` to here."""
        span = self.span_from(start)
        return Broken(names, span, self.margin.skip(span.start, span.end, self.starts[self.index]))

    def at_statement(self) -> bool:
        """Whether a statement surely begins here."""
        text = self.text
        return text in STATEMENT_WORDS or text == ";" or self.at_definition() or self.at_call()

    def no_statement(self) -> SyntaxProblem:
        """Say what is missing where no statement begins."""
        if self.kind != NAME or self.text in KEYWORDS:
            return self.problem("a statement", "here")
        name = self.name()
        if self.text == ".":
            return self._no_form(name)
        self.declared.append(name)
        if not self.accept("="):
            return self.problem("'=', '.async' or '.sync'", f"after '{name.id[:SHOWN]}'")
        if self.kind == NAME and self.ahead() == ".":
            return self._no_form(self.name())
        hint = "a constant begins with const, another value with let"
        return self.problem("a region or a task", f"after '{name.id[:SHOWN]} ='", hint)

    def _no_form(self, opcode: Name) -> SyntaxProblem:
        self.next()
        return self.problem("async or sync", f"after '{opcode.id[:SHOWN]}.'")
