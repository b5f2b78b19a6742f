"""How reading goes on after an error."""

from __future__ import annotations

from itertools import pairwise

from lamella.base.cursor import END, SHOWN, SyntaxProblem
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.base.suggest import nearest
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import Broken, Name
from lamella.lang.nem.parse.lexis import NAME
from lamella.lang.nem.parse.tasks import Tasks
from lamella.lang.nem.words import FORMS, KEYWORDS, RESERVED, STATEMENT_WORDS

BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


class Recovery(Tasks):
    """Finds the next statement after one that cannot be read; one mistake makes one finding."""

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self.lost_loops = 0
        self.broken_count = 0
        self._indent = 0

    def begin(self) -> int:
        """Begin a statement; where it begins a line, its indent tells later lines from its continuation."""
        self.declared.clear()
        self.begun = self.index
        indent = self._indent_ahead()
        if indent is not None and self.at_statement():
            self._indent = indent
        return self.index

    def _indent_ahead(self) -> int | None:
        """The indent of the token ahead, or None if it is not the first of its line."""
        index = self.index
        if index == 0:
            return self.starts[0]
        newline = self.source.text.rfind("\n", self.end_of(index - 1), self.starts[index])
        return None if newline < 0 else self.starts[index] - newline - 1

    def broken(self, start: int) -> Broken:
        """What stands in for an unreadable statement: the names it would have declared, up to the next statement."""
        if self.index == start:
            self.next()
        taken = self.texts[start : self.index]
        is_block = "{" in self.texts[start : start + 4] or taken[0] in ("device", "type_family")
        is_task = any(mark == "." and form in FORMS for mark, form in pairwise(taken))
        names = {name.id: name for name in self.declared}
        opened = sum(BRACKETS.get(text, 0) for text in taken)
        while self.index < self.end and self.text not in STATEMENT_WORDS:
            if not is_block and self._at_next_statement(opened <= 0, is_task):
                break
            if opened <= 0 and not is_task and self._looks_defined():
                names.setdefault(self.text, Name(self.text, self.span(self.index)))
            opened += BRACKETS.get(self.text, 0)
            self.next()
        self.lost_loops += ".." in self.texts[start : self.index]
        self.broken_count += 1
        return self.passed_over(start, tuple(names.values()))

    def _looks_defined(self) -> bool:
        return self.kind == NAME and self.ahead() == "=" and self.text not in KEYWORDS

    def _at_next_statement(self, is_outside: bool, is_task: bool) -> bool:
        """Whether the layout says that another statement begins here; its own words say so by themselves.

        That takes a name at the beginning of a line. A definition or a task is enough outside brackets; within them, as
        their end may be missing, only when it is not indented. Any other name is enough when neither brackets are open
        nor a task is broken, whose attributes look like definitions, unless it stands further left than the statement.
        """
        if self.kind != NAME or self.text in RESERVED:
            return is_outside and self.text == ";"
        indent = self._indent_ahead()
        if indent is None:
            return False
        is_sure, is_aligned = self.at_definition() or self.at_call(), indent <= self._indent
        is_left = is_aligned and (not is_task or indent < self._indent)
        return (is_sure and (is_outside or is_aligned)) or (is_outside and is_left)

    def at_statement(self) -> bool:
        """Whether a statement surely begins here."""
        if self.text in STATEMENT_WORDS or self.text == ";":
            return True
        return self.at_definition() or self.at_call()

    def passed_over(self, start: int, names: tuple[Name, ...]) -> Broken:
        """What stands in for the tokens from `start` to here."""
        span = self.span_from(start)
        return Broken(names, span, self.margin.skip(span.start, span.end, self.starts[self.index]))

    def no_statement(self) -> SyntaxProblem:
        """Say what is missing where no statement begins."""
        if self.kind != NAME or self.text in KEYWORDS:
            return self.problem("a statement", "here")
        name = self.name()
        if self.text == ".":
            return self._no_form(name)
        self.declared.append(name)
        if not self.accept("="):
            return self._no_keyword(name)
        if self.kind == NAME and self.ahead() == ".":
            return self._no_form(self.name())
        hint = "a constant begins with const, another value with let"
        if self.ahead() == "in":
            hint = f"a task is written {self.text[:SHOWN]}.async or {self.text[:SHOWN]}.sync"
        return self.problem("a region or a task", f"after '{name.id[:SHOWN]} ='", hint)

    def _no_keyword(self, name: Name) -> SyntaxProblem:
        """A word begins no statement; where another follows it, that one was to be declared."""
        close = nearest(name.id, STATEMENT_WORDS)
        if close and (self.kind == END or self._indent_ahead() is not None):
            found, hint = f"'{name.id[:SHOWN]}'", f"did you mean {close[0]}?"
            place = {"wanted": "a statement", "where": "here", "found": found}
            return self.report(rules.SYNTAX.at(name.span, hint=hint, labels=(), **place))
        problem = self.problem(
            "'=', '.async' or '.sync'",
            f"after '{name.id[:SHOWN]}'",
            f"did you mean {close[0]}?" if close else "",
        )
        if self.kind == NAME and self.text not in KEYWORDS and self.ahead() != ".":
            self.declared.append(self.name())
        return problem

    def _no_form(self, opcode: Name) -> SyntaxProblem:
        self.next()
        return self.problem("async or sync", f"after '{opcode.id[:SHOWN]}.'")
