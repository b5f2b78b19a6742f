"""Helper symbols, assertions and formulas."""

from __future__ import annotations

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
from lamella.lang.skriptnd.parse.lexis import NAME, STRING
from lamella.lang.skriptnd.parse.types import Types
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.words import LOWERING_SIGNS, NEWER


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
