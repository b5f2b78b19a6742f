"""Tokens of NEM, the comments around them, and what they make: expressions, decorators and regions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lamella.base.cursor import COMMENT, END, SHOWN, Lexer, SyntaxProblem
from lamella.base.limits import LARGEST, Limits
from lamella.base.source import Source, Span, Trivia
from lamella.base.trivia import TriviaCursor
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import (
    Attribute,
    Chain,
    Decorator,
    Expr,
    Integer,
    Items,
    Name,
    Negate,
    Operand,
    Quant,
    Real,
    Region,
    Text,
    TypeAttributes,
    UnitRef,
    Value,
)
from lamella.lang.nem.words import (
    ELEMENTS,
    KEYWORDS,
    QUANT_FORMS,
    RESERVED,
    STATEMENT_WORDS,
    TYPE_WORDS,
    UNITS,
)

NAME, INT, FLOAT, STRING, SIGN, ODD, OPEN = "name", "int", "float", "string", "sign", "odd", "open"

# A number may be followed by '..', but by no letter and no single point: what looks like a number and is none is `odd`.
NUMBER_ENDS = r"(?![0-9A-Za-z_]|\.(?!\.))"
LEXER = Lexer(
    {
        NAME: r"[A-Za-z_][0-9A-Za-z_]*+",
        SIGN: r"\.\.|[=,()\[\]:{}@*+\-/<>;]|\.(?![0-9])",
        INT: rf"[0-9]++{NUMBER_ENDS}",
        FLOAT: rf"[0-9]++\.[0-9]++(?:[eE][+\-]?[0-9]++)?+{NUMBER_ENDS}",
        ODD: r"[0-9.](?:[eE][+\-][0-9]|[0-9A-Za-z_]|\.(?!\.))*+",
        STRING: r'"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*+"',
        OPEN: r'"[^\r\n]*+',
        COMMENT: r"#[^\r\n]*+",
    },
    by_lines=True,
)
FLOAT_LIKE = re.compile(r"([0-9]*)\.?([0-9]*)(?:[eE]([+\-]?[0-9]+))?")
ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|(.))")
ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
DIGITS = len(str(LARGEST))
DECLARING = frozenset(("=", ":", "in", "{", "extends"))
DEEPEST = 250
"""Deeper nesting would meet the limit of Python's own stack, here or in a later phase."""
OPERATORS = {"+": 1, "-": 1, "*": 2, "/": 2, "mod": 2}
BEHIND_NO_VALUE = frozenset(("=", ".", "{", ":"))
SHOWN_OPERANDS = 4


@dataclass(slots=True)
class _RegionType:
    """The type attributes of one region, as they are found."""

    first: int | None = None
    elem: Name | None = None
    shape: tuple[Expr, ...] | None = None
    layout: Name | None = None
    strides: tuple[Expr, ...] | None = None
    quant: Quant | None = None


class NemCursor(TriviaCursor):
    """A token cursor that reads what the rules of the grammar are made of: names, literals, expressions and regions."""

    def __init__(self, source: Source, limits: Limits) -> None:
        tokens = LEXER.cut(source)
        super().__init__(source, tokens, rules.SYNTAX, rules.BAD_CHARACTER)
        self.limits = limits
        self.depth_left = self._deepest = min(limits.max_depth, DEEPEST)
        self.declared: list[Name] = []
        self._misnamed: set[str] = set()
        self.begun = 0
        """The first token of the statement that is being read."""

    def problem(self, wanted: str, where: str, hint: str = "") -> SyntaxProblem:
        """Record what is wrong at the token ahead: what is no token at all is more wrong than a misplaced one."""
        if self.kind == ODD:
            return self._odd_number()
        if self.kind == OPEN:
            span, hint = self.span(self.index), "a string ends on the line it begins on"
            return self.report(rules.BAD_CHARACTER.at(span, hint=hint, text=self.text[:SHOWN]))
        # A bracket left open before the next statement is where the mistake is, not the statement.
        if (self.kind == END or self.text in STATEMENT_WORDS) and self.has_open(self.begun):
            return self.unclosed(self.begun)
        return super().problem(wanted, where, hint)

    def too_deep(self, where: str) -> SyntaxProblem:
        """Report that the nesting limit is reached."""
        return self.exceed(self.index, f"the nesting {where}", self._deepest, "max_depth")

    def exceed(self, token: int, what: str, limit: int, option: str) -> SyntaxProblem:
        """Report that a limit is passed."""
        return self.report(rules.LIMIT.at(self.span(token), what=what, limit=limit, option=option))

    def _odd_number(self) -> SyntaxProblem:
        span, text = self.span(self.index), self.text
        match = FLOAT_LIKE.fullmatch(text) if len(text) <= SHOWN else None
        if match is None:
            return self.report(rules.BAD_CHARACTER.at(span, text=text[:SHOWN]))
        exponent = f"e{match[3]}" if match[3] else ""
        repair = f"{match[1] or '0'}.{match[2] or '0'}{exponent}"
        return self.report(rules.FLOAT_FORM.at(span, text=text, repair=repair))

    # --- names ----------------------------------------------------------------------------------------------

    def name(self) -> Name:
        """The token ahead as a name, whatever it is."""
        text, start = self.text, self.starts[self.next()]
        return Name(text, Span(self.source, start, start + len(text)))

    def use(self, wanted: str, where: str) -> Name:
        """A name where it is used."""
        if self.kind != NAME or (self.text in KEYWORDS and self.text not in self._misnamed):
            raise self.problem(wanted, where)
        return self.name()

    def declare(self, wanted: str, where: str) -> Name:
        """A name where it is declared; a reserved word is reported and read as the name it was meant to be."""
        text = self.text
        if self.kind != NAME or (text in KEYWORDS and self.ahead() not in DECLARING):
            raise self.problem(wanted, where)
        if text in RESERVED:
            self.report(rules.RESERVED_NAME.at(self.span(self.index), name=text))
            self._misnamed.add(text)
        elif len(text) > self.limits.max_name:
            what = f"a name of {len(text)} characters"
            self.exceed(self.index, what, self.limits.max_name, "max_name")
        name = self.name()
        self.declared.append(name)
        return name

    def word(self, wanted: str, where: str) -> str:
        """A name whose place is not asked for."""
        return self.use(wanted, where).id

    def element(self) -> Name:
        """An element type."""
        if self.text not in ELEMENTS:
            raise self.problem("an element type", "here", f"element types are {', '.join(sorted(ELEMENTS))}")
        return self.name()

    # --- literals -------------------------------------------------------------------------------------------

    def integer(self) -> Integer:
        """An INT of at most 64 bits."""
        text, start = self.text, self.starts[self.index]
        digits = text
        # Digits are counted before `int` reads them, which takes quadratic time.
        if len(text) >= DIGITS:
            digits = text.lstrip("0") or "0"
            if len(digits) > DIGITS or int(digits) > LARGEST:
                raise self._too_large()
        self.next()
        return Integer(int(digits), Span(self.source, start, start + len(text)))

    def real(self) -> Real:
        """A FLOAT that is a finite double."""
        value = float(self.text)
        if value == float("inf"):
            raise self._too_large()
        return Real(value, self.span(self.next()))

    def _too_large(self) -> SyntaxProblem:
        text = self.text
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
        return self.report(rules.LITERAL_RANGE.at(self.span(self.index), text=shown))

    def string(self, where: str) -> Text:
        """A STRING; the escapes are `\\"`, `\\\\`, `\\n`, `\\r`, `\\t` and `\\u{…}`."""
        value = self.text[1:-1]
        token = self.expect_kind(STRING, "a string", where)
        if "\\" in value:
            value = ESCAPE.sub(lambda match: self._unescape(match, token), value)
        return Text(value, self.span(token))

    def _unescape(self, match: re.Match[str], token: int) -> str:
        if match[1] is None:
            found = ESCAPES.get(match[2])
        else:
            code = int(match[1], 16)
            found = chr(code) if 0 < code < 0xD800 or 0xDFFF < code < 0x110000 else None
        if found is None:
            start = self.starts[token] + 1 + match.start()
            place = Span(self.source, start, start + len(match[0]))
            hint = r"the escapes are \" \\ \n \r \t and \u{…}"
            raise self.report(rules.BAD_CHARACTER.at(place, hint=hint, text=match[0]))
        return found

    # --- the end of a statement -----------------------------------------------------------------------------

    def finish(self, first: int) -> tuple[Span, Trivia]:
        """The span and the notes of a statement that has just been read; semicolons behind it are passed over."""
        if self.text != ";":
            return self.settle(first)
        span = self.span_from(first)
        self.pass_semicolons()
        return span, self.settle(first)[1]

    def pass_semicolons(self) -> None:
        """Take the semicolons ahead; they mean nothing."""
        while self.text == ";":
            self.next()

    # --- expressions ----------------------------------------------------------------------------------------

    def expression(self) -> Expr:
        """`expr := term (('+'|'-') term)*`, `term := unary (('*'|'/'|'mod') unary)*`."""
        value = self.unary()
        if self.text not in OPERATORS:
            return value
        # Most expressions are one number or name: they never get here.
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

    # --- regions, their types, and operands -----------------------------------------------------------------

    def region(self) -> Region:
        """`region := 'region' '(' ID ',' expr ',' expr (',' tattrs)? ')' tattrs?`."""
        first = self.next()
        self.expect("(", "after 'region'")
        buffer = self.use("the name of a buffer", "in a region")
        self.expect(",", "after the buffer of a region")
        offset = self.expression()
        self.expect(",", "after the offset of a region")
        extent = self.expression()
        parts = _RegionType()
        if self.accept(","):
            self.type_attributes(parts)
        self.expect(")", "after a region")
        if self.text in TYPE_WORDS:
            self.type_attributes(parts)
        return Region(buffer, offset, extent, self._type(parts), self.span_from(first))

    def _type(self, parts: _RegionType) -> TypeAttributes | None:
        if parts.first is None:
            return None
        span = self.span_from(parts.first)
        return TypeAttributes(parts.elem, parts.shape, parts.layout, parts.strides, parts.quant, span)

    def type_attributes(self, parts: _RegionType) -> None:
        """`tattrs := tattr (',' tattr)*`; a comma continues only before another attribute."""
        parts.first = self.index if parts.first is None else parts.first
        self.type_attribute(parts)
        while self.text == "," and self.ahead() in TYPE_WORDS:
            self.next()
            self.type_attribute(parts)
        if self.text in TYPE_WORDS and self.text != "strides":
            raise self.problem("','", "between type attributes")

    def type_attribute(self, parts: _RegionType) -> None:
        """`tattr := 'elem' '=' ELEM | 'shape' '=' … | 'layout' '=' ID | 'strides' '=' … | 'quant' '=' quant`."""
        word = self.text
        if word not in TYPE_WORDS:
            raise self.problem("a type attribute", "in a region")
        first = self.next()
        self.expect("=", "after a type attribute")
        value: Name | Quant | tuple[Expr, ...]
        if word == "elem":
            value = self.element()
        elif word == "layout":
            value = self.use("the name of a layout", "after 'layout ='")
        elif word == "quant":
            value = self.quant()
        else:
            value = self.expressions("around sizes")
        if getattr(parts, word) is None:
            setattr(parts, word, value)
        else:
            self.report(rules.DOUBLE_TYPE.at(self.span(first), what=word))

    def quant(self) -> Quant:
        """`quant := ('per_tensor' | 'per_channel' | 'per_group') '(' (ID '=' value),+ ')'`."""
        form = self.text
        if form not in QUANT_FORMS:
            raise self.problem("per_tensor, per_channel or per_group", "after 'quant ='")
        first = self.next()
        self.expect("(", "after the form of a quant descriptor")
        fields = self.separated(self.attribute)
        self.expect(")", "after a quant descriptor")
        return Quant(form, tuple(fields), self.span_from(first))

    def operand(self) -> Operand:
        """`operand := (ID | region) deco*`; a name that is followed by '=' or '.' belongs to the next statement."""
        first = self.index
        value: Name | Region
        if self.text == "region":
            value = self.region()
        elif self.ahead() in ("=", "."):
            raise self.problem("a region", "as an operand")
        else:
            value = self.use("a region", "as an operand")
        return Operand(value, self.decorators(), self.span_from(first))


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
