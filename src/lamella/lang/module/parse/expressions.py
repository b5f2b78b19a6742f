"""Expressions, arguments and annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lamella.base.source import Span
from lamella.lang.module.nodes import (
    Annotation,
    Argument,
    Bool,
    Call,
    Chain,
    Dict,
    Entry,
    Expr,
    Index,
    List,
    Member,
    Name,
    Null,
    Rest,
    Select,
    Set,
    Slice,
    Subscript,
    Unary,
)
from lamella.lang.module.parse.layout import NAME
from lamella.lang.module.parse.lexis import FLOAT, INT, STRING, Lexis
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import OPERATOR_WORDS

LOGIC = {"or": 1, "||": 1, "and": 2, "&&": 2}
COMPARISONS = {"==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3, "not": 3}
ARITHMETIC = {"+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5}
TERMS = COMPARISONS | ARITHMETIC
OPERATORS = LOGIC | TERMS
SIGNS = frozenset(("-", "!"))
BRACKETS = {"(": ")", "[": "]", "{": "}"}
POSTFIX = frozenset((".", "[", "("))
_Parse: TypeAlias = Callable[[], Expr]


class Expressions(Lexis):
    """The rules of the grammar from `expression` to `annotation`.

    A level of nesting takes at most six calls, so that `DEEPEST` levels fit into Python's own stack.
    """

    def expression(self) -> Expr:
        """`expression := condition ('if' condition 'else' expression)?`."""
        value = self._first_operand()
        if self.text in OPERATORS:
            value = self.chain(value, OPERATORS, self._operand, self._chained)
        return self._choice(value) if self.text == "if" else value

    def condition(self) -> Expr:
        """An expression without a choice at its top: `or` and `and` of comparisons of sums."""
        return self.chain(self._first_operand(), OPERATORS, self._operand, self._chained)

    def sum(self) -> Expr:
        """An expression without comparisons, as it stands before `>`."""
        return self.chain(self._unary(), ARITHMETIC, self._unary, self._chained)

    def _choice(self, value: Expr) -> Select:
        self.descend("of an expression")
        self.next()
        condition = self.condition()
        self.expect("else", "after the condition of a choice")
        otherwise = self.expression()
        self.depth_left += 1
        return Select(value, condition, otherwise, value.span.to(otherwise.span))

    def _chained(self, first: Expr, rest: list[tuple[str, Expr]]) -> Expr:
        """The node of a chain; `not` is the first word of `not in`."""
        signs = tuple(("not in" if sign == "not" else sign, operand) for sign, operand in rest)
        return Chain(first, signs, first.span.to(rest[-1][1].span))

    # --- operands -------------------------------------------------------------------------------------------

    def _first_operand(self) -> Expr:
        """An operand at the beginning of an expression, where `not` may stand."""
        if self.text == "not":
            return self._signed(("not",), self._comparison)
        return self._signed(SIGNS, self.postfix) if self.text in SIGNS else self.postfix()

    def _operand(self) -> Expr:
        """The operand behind an operator; `not` may stand behind `and` and `or`, and before `in` is part of it."""
        before = self.texts[self.index - 1]
        if before in LOGIC:
            return self._first_operand()
        if before == "not":
            self.expect("in", "after 'not'")
        return self._signed(SIGNS, self.postfix) if self.text in SIGNS else self.postfix()

    def _unary(self) -> Expr:
        """`('-' | '!')* power`."""
        return self._signed(SIGNS, self.postfix)

    def _comparison(self) -> Expr:
        """`sum (('==' | '<' | … | 'in' | 'not' 'in') sum)*`."""
        return self.chain(self._unary(), TERMS, self._operand, self._chained)

    def _signed(self, signs: tuple[str, ...] | frozenset[str], operand: _Parse) -> Expr:
        """An operand behind as many signs as there are."""
        taken = []
        while self.text in signs:
            self.descend("of an expression")
            taken.append(self.next())
        value = operand()
        for sign in reversed(taken):
            value = Unary(self.texts[sign], value, Span(self.source, self.starts[sign], value.span.end))
        self.depth_left += len(taken)
        return value

    def _power(self, base: Expr) -> Chain:
        """`postfix '**' unary`."""
        self.descend("of an expression")
        self.next()
        exponent = self._unary()
        self.depth_left += 1
        return Chain(base, (("**", exponent),), base.span.to(exponent.span))

    # --- primaries ------------------------------------------------------------------------------------------

    def postfix(self) -> Expr:
        """`primary ('.' name | '[' subscript,+ ']' | '(' argument,* ')')* ('**' unary)?`."""
        first, depth = self.index, self.depth_left
        value = self._bracketed() if self.text in BRACKETS else self._atom()
        while self.text in POSTFIX:
            self.descend("of an expression")
            if self.accept("."):
                field = self.name("a name", "after '.'")
                value = Member(value, field, self.span_from(first))
            elif self.text == "(":
                arguments = self.arguments()
                value = Call(value, arguments, self.span_from(first))
            else:
                items = self._subscripts()
                value = Index(value, items, self.span_from(first))
        self.depth_left = depth
        return self._power(value) if self.text == "**" else value

    def _atom(self) -> Expr:
        """A literal or a name."""
        kind = self.kind
        if kind == NAME:
            return self._named()
        if kind == INT:
            return self.integer()
        if kind == FLOAT:
            return self.real()
        if kind == STRING:
            return self.string("a string", "here")
        raise self.problem("a value", "here")

    def _named(self) -> Expr:
        text = self.text
        if text in OPERATOR_WORDS:
            raise self.problem("a value", "here")
        span = self.span(self.index)
        if text == "true" or text == "false":
            self.next()
            return Bool(text == "true", span)
        if text == "None":
            self.next()
            return Null(span)
        return Name(self.name("a name", "here"), span)

    def _bracketed(self) -> Expr:
        """`'[' item,* ']'`, a dict, a set, or `'(' expression ')'`; several in parentheses, or none, are a list too."""
        if self.text == "{":
            return self._braced()
        first = self.next()
        end = BRACKETS[self.texts[first]]
        self.descend("of an expression")
        items: list[Expr | Rest] = []
        while self.text != end:
            items.append(self._item(items) if end == "]" else self.expression())
            if not self.accept(","):
                break
        is_group = end == ")" and len(items) == 1 and self.texts[self.index - 1] != ","
        self.depth_left += 1
        self.expect(end, "after an expression" if end == ")" else "after a list")
        group = items[0] if is_group else None
        return (
            List(tuple(items), self.span_from(first)) if group is None or isinstance(group, Rest) else group
        )

    def _item(self, before: list[Expr | Rest]) -> Expr | Rest:
        """An item of a list; `...` stands between two others."""
        if self.text != "...":
            return self.expression()
        if not before or isinstance(before[-1], Rest):
            raise self.problem(
                "a value", "here", "'...' stands between the first and the last number of a row"
            )
        rest = Rest(self.span(self.next()))
        if self.text != "," or self.ahead() == "]":
            raise self.problem("',' and a value", "after '...'")
        return rest

    def _braced(self) -> Dict | Set:
        """`'{' (name | string) ':' expression,* '}'`, or `'{' expression,+ '}'`; empty braces are a dict."""
        first = self.next()
        self.descend("of an expression")
        entries: list[Entry] = []
        items: list[Expr] = []
        is_dict = self.text == "}" or (self.kind in (NAME, STRING) and self.ahead() == ":")
        while self.text != "}":
            if is_dict:
                entries.append(self._entry())
            else:
                items.append(self.expression())
            if not self.accept(","):
                break
        self.depth_left += 1
        self.expect("}", "after a dict" if is_dict else "after a set")
        span = self.span_from(first)
        return Dict(tuple(entries), span) if is_dict else Set(tuple(items), span)

    def _entry(self) -> Entry:
        """`(name | string) ':' expression`."""
        first = self.index
        if self.kind == STRING:
            key = self.string("a key", "in a dict").value
        else:
            key = self.name("a key", "in a dict")
        self.expect(":", "after a key")
        return Entry(key, self.expression(), self.span_from(first))

    def _subscripts(self) -> tuple[Subscript, ...]:
        """`'[' subscript (',' subscript)* ']'`."""
        self.next()
        items = [self._subscript()]
        while self.accept(","):
            items.append(self._subscript())
        self.expect("]", "after an index")
        return tuple(items)

    def _subscript(self) -> Subscript:
        """`'...' | expression | expression? ':' expression?`."""
        first = self.index
        if self.accept("..."):
            return Rest(self.span(first))
        begin = None if self.text == ":" else self.expression()
        if not self.accept(":"):
            return begin if begin is not None else self.expression()
        end = None if self.text in (",", "]") else self.expression()
        return Slice(begin, end, self.span_from(first))

    # --- arguments and annotations --------------------------------------------------------------------------

    def arguments(self) -> tuple[Argument, ...]:
        """`'(' (argument (',' argument)* ','?)? ')'`."""
        self.next()
        found: list[Argument] = []
        while self.text != ")":
            if self.text == "...":
                self.unfinished("an argument")
            else:
                found.append(self.argument())
            if not self.accept(","):
                break
        self.expect(")", "after the arguments")
        return tuple(found)

    def unfinished(self, what: str) -> None:
        """Report and pass over `...` where it stands for what is not written."""
        span, where = self.span(self.next()), f"in the place of {what}"
        self.report(syntax.MISPLACED.at(span, what="'...'", where=where, repair=f"write {what}"))

    def argument(self) -> Argument:
        """`(name '=')? expression`."""
        first = self.index
        name = None
        if self.kind == NAME and self.ahead() == "=":
            name = self.name("a name", "of an argument")
            self.next()
        value = self.expression()
        return Argument(name, value, self.span_from(first))

    def annotations(self) -> tuple[Annotation, ...]:
        """`annotation*`."""
        if self.text != "@":
            return ()
        found = []
        while self.text == "@":
            found.append(self.annotation())
        return tuple(found)

    def annotation(self) -> Annotation:
        """`'@' name ('(' argument,* ')')?`."""
        first = self.next()
        name = self.name("the name of an annotation", "after '@'")
        arguments = self.arguments() if self.text == "(" else ()
        return Annotation(name, arguments, self.span_from(first))
