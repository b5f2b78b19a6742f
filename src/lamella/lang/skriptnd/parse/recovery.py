"""How reading goes on after an error; one mistake makes one finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lamella.base.cursor import BAD, END, SHOWN, SyntaxProblem
from lamella.base.diagnostic import Label
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.skriptnd.nodes import (
    Access,
    Assertion,
    Format,
    Index,
    Iteration,
    Local,
    Lowering,
    Printed,
    Text,
    Using,
)
from lamella.lang.skriptnd.parse.lexis import BLOCK, NAME, ODD, OPEN, SIGN, STRING, TooDeep
from lamella.lang.skriptnd.parse.types import Types
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.rules.syntax import SYNTAX
from lamella.lang.skriptnd.words import BLOCKS, LOWERING_SIGNS, NEWER

# --- helper symbols, assertions and formulas ----------------------------------------------------------------


class Formulas(Types):
    """The rules of the grammar for `using`, `assertion` and `lowering`."""

    def using(self) -> Using:
        """`pattern '=' expr ';'`."""
        first = self.index
        target = self.pattern()
        self.expect("=", "after a helper symbol")
        value = self.expression()
        return Using(target, value, *self.finish(first, "after the value of a helper symbol"))

    # --- assertions -----------------------------------------------------------------------------------------

    def assertion(self) -> Assertion:
        """`expr [':' STRING+ (',' [STRING ':'] expr)*] ';'`."""
        first = self.index
        condition = self.expression()
        message, values = None, []
        if self.accept(":"):
            message = self.message()
            while self.accept(","):
                values.append(self.printed())
        return Assertion(condition, message, tuple(values), *self.finish(first, "after an assertion"))

    def message(self) -> Text | Format:
        """`STRING+`."""
        if self.kind != STRING:
            raise self.problem("a string", "after the condition of an assertion")
        return self.string()

    def printed(self) -> Printed:
        """`[STRING ':'] expr`."""
        first = self.index
        label = self.label() if self.kind == STRING and self._at_label() else None
        value = self.expression()
        return Printed(value, label, self.span_from(first))

    def _at_label(self) -> bool:
        index = self.index
        while self.kinds[index] == STRING:
            index += 1
        return self.texts[index] == ":"

    def label(self) -> str:
        """`STRING+ ':'`, without holes."""
        found = self.string()
        if isinstance(found, Format):
            problem, repair = "has a hole, but is the label of a value", "write the braces as \\{ and \\}"
            raise self.report(syntax.HOLE.at(found.span, problem=problem, repair=repair))
        self.next()
        return found.value

    # --- formulas -------------------------------------------------------------------------------------------

    def lowering(self) -> Lowering:
        """`['unroll' count] (local ',')* access sign expr (',' bound)* ['|' expr] ';'`."""
        first = self.index
        unroll = None
        if self.accept("unroll"):
            unroll = self.iteration("after 'unroll'")
        locals_ = self.newer_locals() if self.text == "with" else self.locals()
        target = self.target()
        sign = self.lowering_sign()
        value = self.expression()
        bounds = self.bounds()
        condition = self.expression() if self.accept("|") else None
        place = self.finish(first, "after a formula")
        return Lowering(target, sign, value, bounds, condition, locals_, unroll, *place)

    def locals(self) -> tuple[Local, ...]:
        """`(IDENT '=' expr ',')*`."""
        found = []
        while self.kind == NAME and self.ahead() == "=":
            found.append(self.local())
            self.expect(",", "after a local value")
        return tuple(found)

    def newer_locals(self) -> tuple[Local, ...]:
        """`'with' local,+ ':'`."""
        self.note(syntax.NEWER_LOCALS.at(self.span(self.index)))
        self.next()
        found = self.separated(self.local)
        self.expect(":", "after local values")
        return tuple(found)

    def local(self) -> Local:
        """`IDENT '=' expr`."""
        first = self.index
        name = self.identifier("the name of a local value", "here")
        self.expect("=", "after the name of a local value")
        value = self.expression()
        return Local(name, value, self.span_from(first))

    def target(self) -> Access:
        """The access on the left side."""
        first = self.index
        value = self.postfix()
        if isinstance(value, Access):
            return value
        repair = "an element is written y[i, j], y[i..], y[i,] for a single index, y[] for none"
        if isinstance(value, Index):
            repair = "a single index needs a comma behind it, y[i,], and a packed one two points, y[i..]"
        raise self.report(syntax.NO_ACCESS.at(self.span_from(first), repair=repair))

    def lowering_sign(self) -> str:
        """`'=' | ':=' | '+=' | '*=' | '&=' | '|=' | '<=' | '>='`."""
        sign = self.text
        if sign in ("<?=", ">?="):
            self.note(syntax.NEWER_EXTREME.at(self.span(self.index), sign=sign, other=NEWER[sign]))
            sign = NEWER[sign]
        elif sign not in LOWERING_SIGNS:
            raise self.problem("= := += *= &= |= <= or >=", "after the left side of a formula")
        self.next()
        return sign

    def iteration(self, where: str) -> Iteration:
        """`'..' '(' [IDENT '->'] [expr] ')'`."""
        first = self.expect("..", where)
        self.expect("(", "before the number of steps")
        index = None
        if self.kind == NAME and self.ahead() == "->":
            index = self.identifier("the name of an index", "before '->'")
            self.next()
        count = self.expression() if index is None or self.text != ")" else None
        self.expect(")", "after the number of steps")
        return Iteration(index, count, self.span_from(first))


T = TypeVar("T")
DEFINITION_WORDS = frozenset(("operator", "graph", "public", "import"))
BRACES = {"{": 1, "}": -1}


UNCLOSED = SYNTAX.also("'{bracket}' is not closed: expected {wanted} {where}, found {found}")
CLOSERS = {"(": ")", "[": "]", "{": "}"}
OPENERS = {closer: opener for opener, closer in CLOSERS.items()}
MOST_BRACKETS = 20
"""Findings of one text for which an opening bracket is sought: each goes through the text again."""


class Recovery(Formulas):
    """Finds the bracket that was not closed, and the next statement after one that cannot be read."""

    def __init__(self, source: Source, limits: Limits, start: int = 0, end: int | None = None) -> None:
        super().__init__(source, limits, start, end)
        self._brackets = 0

    def problem(self, wanted: str, where: str, hint: str = "") -> SyntaxProblem:
        """Record what is wrong at the token ahead, at the bracket that is not closed where that is the reason."""
        broken = self.kind in (ODD, OPEN, BAD) or (self.kind == BLOCK and self.text[1:] not in BLOCKS)
        opener = None if broken or self._brackets >= MOST_BRACKETS else self._unclosed(wanted)
        if opener is None:
            return super().problem(wanted, where, hint)
        self._brackets += 1
        found = "the end of the file" if self.kind == END else f"'{self.text[:SHOWN]}'"
        told = {"bracket": self.texts[opener], "wanted": wanted, "where": where, "found": found}
        noticed = Label(self.span(self.index), "noticed here")
        return self.report(UNCLOSED.at(self.span(opener), labels=[noticed], **told))

    def _unclosed(self, wanted: str) -> int | None:
        """The bracket before the token ahead that should have been closed by now; None where none should."""
        opened, doubtful = self._open_brackets()
        if not opened:
            return None
        last = opened[-1]
        bracket = self.texts[last]
        if self.at_end():
            if self.kind == BLOCK and len(opened) < 2:
                return None
            return last if doubtful is None or bracket != "{" else doubtful
        if self.text in (";", "}") and bracket != "{":
            return last
        return last if f"'{CLOSERS[bracket]}'" in wanted and not self._closes_later(bracket) else None

    def _open_brackets(self) -> tuple[list[int], int | None]:
        """The brackets that are open here, and one that was closed by a brace further out than its line begins."""
        opened: list[int] = []
        doubtful: int | None = None
        for index in range(self.index):
            text = self.texts[index]
            if text in CLOSERS and self.kinds[index] == SIGN:
                opened.append(index)
            elif text in OPENERS and self.kinds[index] == SIGN:
                while opened and text == "}" and self.texts[opened[-1]] != "{":
                    opened.pop()
                if opened and self.texts[opened[-1]] == OPENERS[text]:
                    opener = opened.pop()
                    if doubtful is None and text == "}" and self._stands_out(index, opener):
                        doubtful = opener
        return opened, doubtful

    def _stands_out(self, closer: int, opener: int) -> bool:
        """Whether a brace that begins its line stands further left than the line of the brace it closes."""
        place, line = self.starts[closer], self.source.text.rfind("\n", 0, self.starts[closer]) + 1
        if self.source.text[line:place].strip() or self.starts[opener] >= line:
            return False
        start = self.source.text.rfind("\n", 0, self.starts[opener]) + 1
        text = self.source.text[start : self.starts[opener]]
        return len(text) - len(text.lstrip()) > place - line

    def _closes_later(self, bracket: str) -> bool:
        """Whether a bracket is closed within its statement, further on."""
        depth = 0
        for index in range(self.index, self.end):
            text = self.texts[index]
            if text == CLOSERS[bracket] and depth == 0:
                return True
            if text in (";", "{", "}") or self.kinds[index] == BLOCK or text in DEFINITION_WORDS:
                return False
            depth += (text in ("(", "[")) - (text in (")", "]"))
        return False

    def at_end(self) -> bool:
        """Whether something begins that cannot stand in a block: another one, or a definition."""
        return self.kind == END or self.kind == BLOCK or self.text in DEFINITION_WORDS

    def recovered(self, parse: Callable[[], T], depth: int) -> T | None:
        """A statement of a block, or None where it cannot be read and reading goes on behind it."""
        start = self.index
        try:
            return parse()
        except TooDeep:
            raise
        except SyntaxProblem:
            self.depth_left = depth
            if not self.pass_over(start):
                raise
            return None

    def pass_over(self, start: int) -> bool:
        """Go on behind a statement that cannot be read; whether its block goes on there.

        Braces that were opened by the statement are those of attributes, for a block recovers by itself; braces that
        are met on the way are passed whole. A brace with arguments behind it closes attributes, too.
        """
        opened = self._opened(start)
        while not self.at_end():
            text = self.text
            if text == ";":
                self.next()
                return True
            if text == "}" and opened <= 0 and self.ahead() != "(":
                return True
            if text == "{":
                self.pass_braces()
            else:
                opened += BRACES.get(text, 0)
                self.next()
        return False

    def pass_whole(self, start: int) -> bool:
        """Go on behind a statement with all its blocks; whether its block goes on there."""
        opened = self._opened(start)
        while not self.at_end():
            if opened <= 0 and self.text in (";", "}"):
                self.accept(";")
                return True
            opened += BRACES.get(self.text, 0)
            self.next()
        return False

    def pass_rest(self) -> None:
        """Go on behind the brace that closes the block that is being read."""
        while not self.at_end():
            if self.text == "{":
                self.pass_braces()
            elif self.texts[self.next()] == "}":
                return

    def pass_braces(self) -> None:
        """Pass over a brace and all it encloses."""
        opened = 0
        while not self.at_end():
            opened += BRACES.get(self.text, 0)
            self.next()
            if opened == 0:
                return

    def _opened(self, start: int) -> int:
        """How many braces are open that were not at the beginning of a statement."""
        return sum(BRACES.get(text, 0) for text in self.texts[start : self.index])
