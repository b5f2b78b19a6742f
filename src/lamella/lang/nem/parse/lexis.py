"""Names, numbers and strings of NEM, and the comments around them."""

from __future__ import annotations

import re

from lamella.base.cursor import COMMENT, END, SHOWN, Lexer, SyntaxProblem
from lamella.base.limits import LARGEST, Limits
from lamella.base.source import Notes, Source, Span
from lamella.base.trivia import TriviaCursor
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import Integer, Name, Real, Text
from lamella.lang.nem.words import ELEMENTS, KEYWORDS, RESERVED, STATEMENT_WORDS

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
    }
)
FLOAT_LIKE = re.compile(r"([0-9]*)\.?([0-9]*)(?:[eE]([+\-]?[0-9]+))?")
ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|(.))")
ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
DIGITS = len(str(LARGEST))
DECLARING = frozenset(("=", ":", "in", "{", "extends"))
DEEPEST = 250
"""Deeper nesting would meet the limit of Python's own stack, here or in a later phase."""


class Lexis(TriviaCursor):
    """A cursor that knows the words of NEM."""

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
        text, start = self.text, self.starts[self.index]
        self.next()
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

    def finish(self, first: int) -> tuple[Span, Notes]:
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
