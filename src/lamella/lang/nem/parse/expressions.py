"""Expressions, values and decorators."""

from __future__ import annotations

from lamella.base.source import Span
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import Attribute, Chain, Decorator, Expr, Items, Name, Negate, UnitRef, Value
from lamella.lang.nem.parse.lexis import FLOAT, INT, NAME, STRING, Lexis
from lamella.lang.nem.words import KEYWORDS, UNITS

OPERATORS = {"+": 1, "-": 1, "*": 2, "/": 2, "mod": 2}
BEHIND_NO_VALUE = frozenset(("=", ".", "{", ":"))
SHOWN_OPERANDS = 4


class Expressions(Lexis):
    """The rules of the grammar from `expr` to `deco`."""

    def expression(self) -> Expr:
        """`expr := term (('+'|'-') term)*`, `term := unary (('*'|'/'|'mod') unary)*`."""
        value = self.unary()
        if self.text not in OPERATORS:
            return value
        value = self.chain(value, OPERATORS, self.unary, self._chained)
        self._note_precedence(value)
        return value

    def _chained(self, first: Expr, rest: list[tuple[str, Expr]]) -> Expr:
        return Chain(first, tuple(rest), Span(self.source, first.span.start, rest[-1][1].span.end))

    def unary(self) -> Expr:
        """`unary := '-' unary | INT | FLOAT | ID | '(' expr ')'`."""
        kind = self.kind
        if kind == INT:
            return self.integer()
        if kind == NAME:
            return self.named_value()
        if self.text == "-":
            return self.negated()
        if self.text == "(":
            return self.parenthesised()
        if kind == FLOAT:
            return self.real()
        raise self.problem("a value", "here")

    def named_value(self) -> Name:
        """A name in an expression; one that is followed by one of `BEHIND_NO_VALUE` belongs to the next statement."""
        if self.texts[self.index + 1] in BEHIND_NO_VALUE and self.text not in KEYWORDS:
            raise self.problem("a value", "before the next statement")
        return self.use("a value", "here")

    def negated(self) -> Expr:
        """`'-' unary`, as many signs as there are."""
        signs = []
        while self.text == "-":
            self.descend("of an expression")
            signs.append(self.next())
        value = self.unary()
        for sign in reversed(signs):
            value = Negate(value, Span(self.source, self.starts[sign], value.span.end))
        self.depth_left += len(signs)
        return value

    def parenthesised(self) -> Expr:
        """`'(' expr ')'`; the span of a chain takes in its parentheses."""
        first = self.next()
        self.descend("of an expression")
        value = self.expression()
        self.depth_left += 1
        last = self.expect(")", "after an expression")
        return Chain(value.first, value.rest, self.span(first, last)) if isinstance(value, Chain) else value

    def _note_precedence(self, value: Expr) -> None:
        """Say how a sum with a later product in it is read, once for an expression."""
        if not isinstance(value, Chain) or value.rest[0][0] not in "+-":
            return
        if any(_is_bare_product(operand) for _, operand in value.rest):
            text = " ".join(value.span.text[:200].split())
            self.report(rules.PRECEDENCE.at(value.span, text=text, reading=_read(value)))

    # --- values ---------------------------------------------------------------------------------------------

    def value(self) -> Value:
        """`value := expr | STRING | '[' value,* ']'`."""
        if self.text == "[":
            return self.items()
        if self.kind == STRING:
            return self.string("here")
        return self.expression()

    def items(self) -> Items:
        """`'[' value,* ']'`."""
        first = self.next()
        self.descend("of a list")
        values = [] if self.text == "]" else self.separated(self.value)
        self.depth_left += 1
        last = self.expect("]", "after the list")
        return Items(tuple(values), self.span(first, last))

    def expressions(self, where: str) -> tuple[Expr, ...]:
        """`'[' expr,+ ']'`."""
        self.expect("[", where)
        found = self.separated(self.expression)
        self.expect("]", where)
        return tuple(found)

    def attribute(self) -> Attribute:
        """`ID '=' value`; `strides` is reserved and yet the name of an attribute."""
        first = self.index
        name = self.attribute_name()
        self.expect("=", "after the name of an attribute")
        return Attribute(name, self.value(), self.span_from(first))

    def attribute_name(self) -> Name:
        """The name of an attribute."""
        return self.name() if self.text == "strides" else self.use("an attribute", "here")

    # --- decorators -----------------------------------------------------------------------------------------

    def decorators(self) -> tuple[Decorator, ...]:
        """`deco*`."""
        if self.text != "@":
            return ()
        found = []
        while self.text == "@":
            found.append(self.decorator())
        return tuple(found)

    def decorator(self) -> Decorator:
        """`deco := '@' ID ( '(' ( UNIT '[' expr ']' | value,* ) ')' )?`."""
        first = self.next()
        name = self.word("the name of a decorator", "after '@'")
        arguments: list[Value | UnitRef] = []
        if self.accept("("):
            if self.text in UNITS and self.ahead() == "[":
                arguments = [self.unit_reference()]
            elif self.kind == NAME and self.ahead() == "[":
                raise self.problem("a unit", "before '['", "units are NMU, CSTL, DMA and VPU")
            elif self.text != ")":
                arguments = [*self.separated(self.value)]
            self.expect(")", "after the arguments of a decorator")
        return Decorator(name, tuple(arguments), self.span_from(first))

    def unit_reference(self) -> UnitRef:
        """`UNIT '[' expr ']'`."""
        unit, first = self.text, self.next()
        self.next()
        index = self.expression()
        self.expect("]", "after the index of a unit")
        return UnitRef(unit, index, self.span_from(first))


def _is_bare_product(value: Expr) -> bool:
    """Whether this is a product without parentheses around it."""
    return (
        isinstance(value, Chain)
        and value.rest[0][0] not in "+-"
        and value.span.start == value.first.span.start
    )


def _read(value: Chain) -> str:
    """A sum with its products in parentheses; of a long one the part where the first of them stands."""
    first = next(index for index, (_, operand) in enumerate(value.rest) if _is_bare_product(operand))
    start, end = max(0, first - SHOWN_OPERANDS), first + SHOWN_OPERANDS
    parts = ["…" if start else _grouped(value.first)]
    for sign, operand in value.rest[start:end]:
        parts += [sign, _grouped(operand)]
    return " ".join(parts) + (" …" if len(value.rest) > end else "")


def _grouped(value: Expr) -> str:
    text = " ".join(value.span.text[:200].split())
    return f"({text})" if _is_bare_product(value) else text
