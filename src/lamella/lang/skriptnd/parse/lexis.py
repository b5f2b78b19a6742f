"""Names, numbers and signs of SkriptND, and the comments around them."""

from __future__ import annotations

from lamella.base.cursor import COMMENT, SHOWN, Lexer, SyntaxProblem
from lamella.base.diagnostic import ERROR, Diagnostic
from lamella.base.limits import Limits
from lamella.base.source import Notes, Source, Span
from lamella.base.suggest import nearest
from lamella.base.trivia import TriviaCursor
from lamella.lang.skriptnd.nodes import Integer, Real
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.words import BLOCKS, KEYWORDS, TYPE_WORDS

NAME, INT, REAL, STRING, SIGN = "name", "int", "real", "string", "sign"
BLOCK, BUILT_IN, ODD, OPEN = "block", "builtin", "odd", "open"

# The point of a number is greedy, so no number may touch '..'; what looks like a number and is none is `odd`.
NUMBER_ENDS = r"(?![0-9A-Za-z_.])"
EXPONENT = r"[eE][+\-]?[0-9]++"
LEXER = Lexer(
    {
        NAME: r"[A-Za-z_][0-9A-Za-z_]*+",
        SIGN: (
            r"\.\.\.?+|\*\*|&&|\|\||\?\?|=[=>]|<\?=|>\?=|<[<=>\-?]|>[>=?]|->|[!+*&|:]="
            r"|[+\-*/\\%^!<>=?,.:;~()\[\]{}|]"
        ),
        INT: rf"[0-9]++{NUMBER_ENDS}",
        REAL: rf"[0-9]++(?:\.(?!\.)[0-9]*+(?:{EXPONENT})?+|{EXPONENT})(?![0-9A-Za-z_]|\.(?!\.))",
        ODD: r"[0-9](?:[eE][+\-][0-9]|[0-9A-Za-z_]|\.)*+",
        STRING: r'"(?:[^"\\\r\n]|\\"?)*+"' + r"|'(?:[^'\\\r\n]|\\'?)*+'",
        BLOCK: r"@[A-Za-z_][0-9A-Za-z_]*+",
        BUILT_IN: r"`[A-Za-z_][0-9A-Za-z_]*+`",
        OPEN: r"[\"'][^\r\n]*+",
        COMMENT: r"#[^\r\n]*+",
    }
)
DEEPEST = 100
"""Deeper nesting would meet the limit of Python's own stack, here or in a later phase."""
MOST_DIGITS = 4300
"""More digits are not read by Python itself, whatever the limits say."""


class TooDeep(SyntaxProblem):
    """Leaves the whole block: what is nested too deeply is not read on."""


class Lexis(TriviaCursor):
    """A cursor that knows the words of SkriptND."""

    def __init__(self, source: Source, limits: Limits, start: int = 0, end: int | None = None) -> None:
        tokens = LEXER.cut(source, start, end)
        super().__init__(source, tokens, syntax.SYNTAX, syntax.BAD_CHARACTER)
        self.limits = limits
        self.depth_left = self._deepest = min(limits.max_depth, DEEPEST)
        self._noted: set[str] = set()
        self.error_count = 0

    # --- what is wrong --------------------------------------------------------------------------------------

    def report(self, finding: Diagnostic) -> SyntaxProblem:
        """Record a finding and give the exception that leaves the statement, to be raised or not."""
        self.error_count += finding.severity == ERROR
        return super().report(finding)

    def problem(self, wanted: str, where: str, hint: str = "") -> SyntaxProblem:
        """Record what is wrong at the token ahead: what is no token at all is more wrong than a misplaced one."""
        if self.kind == ODD:
            return self._odd_number()
        if self.kind == OPEN:
            return self.report(syntax.OPEN_STRING.at(self.span(self.index), text=self.text[:SHOWN]))
        if self.kind == BLOCK and self.text[1:] not in BLOCKS:
            return self.report(self.unknown_block())
        return super().problem(wanted, where, hint)

    def unknown_block(self) -> Diagnostic:
        """Say that there is no such block."""
        close = nearest(self.text[1:], BLOCKS)
        repair = f"did you mean @{close[0]}?" if close else f"the blocks are @{' @'.join(BLOCKS)}"
        return syntax.UNKNOWN_BLOCK.at(self.span(self.index), name=self.text[:SHOWN], repair=repair)

    def too_deep(self, where: str) -> SyntaxProblem:
        """Report that the nesting limit is reached."""
        what, span, hint = f"the nesting {where}", self.span(self.index), None
        if self._deepest == DEEPEST:
            hint = "divide it: give parts of it names of their own"
        self.report(syntax.LIMIT.at(span, hint=hint, what=what, limit=self._deepest, option="max_depth"))
        return TooDeep()

    def _odd_number(self) -> SyntaxProblem:
        text = self.text[:SHOWN]
        digits, dots, _ = text.partition("..")
        is_count = bool(dots) and digits.isdigit()
        repair = f"write '{digits} ..': the point of a number is greedy" if is_count else ""
        return self.report(syntax.NUMBER_FORM.at(self.span(self.index), text=text, repair=repair))

    def note(self, finding: Diagnostic) -> None:
        """Say that a spelling is a newer draft's, once for each kind of them."""
        if finding.code not in self._noted:
            self._noted.add(finding.code)
            self.report(finding)

    # --- names and numbers ----------------------------------------------------------------------------------

    def identifier(self, what: str, where: str) -> str:
        """A name that is declared or used."""
        text = self.text
        if self.kind != NAME:
            raise self.problem(what, where)
        if text in KEYWORDS or text == "_":
            raise self.report(syntax.KEYWORD.at(self.span(self.index), name=text, what=what))
        if len(text) > self.limits.max_name:
            self._too_long(len(text))
        self.next()
        return text

    def _too_long(self, length: int) -> None:
        span, what, limit = self.span(self.index), f"a name of {length} characters", self.limits.max_name
        self.report(syntax.LIMIT.at(span, what=what, limit=limit, option="max_name"))

    def qualified(self, what: str, where: str) -> str:
        """`IDENT ('.' IDENT)*`."""
        name = self.identifier(what, where)
        while self.text == ".":
            self.next()
            name += "." + self.identifier("a name", "after '.'")
        return name

    def type_name(self, where: str) -> str:
        """A primitive, a sized or a generic type."""
        text = self.text
        if text in TYPE_WORDS:
            self.next()
            return text
        return self.identifier("a type", where)

    def integer(self) -> Integer:
        """An INTEGER of no more bits than an integer may have."""
        digits = self.text.lstrip("0") or "0"
        value = int(digits) if len(digits) <= MOST_DIGITS else None
        if value is None or value.bit_length() > self.limits.max_integer_bits:
            raise self._too_large()
        return Integer(value, self.span(self.next()))

    def real(self) -> Real:
        """A REAL that is a finite double."""
        value = float(self.text)
        if value == float("inf"):
            raise self._too_large()
        return Real(value, self.span(self.next()))

    def _too_large(self) -> SyntaxProblem:
        text = self.text
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
        return self.report(syntax.LITERAL_RANGE.at(self.span(self.index), text=shown))

    # --- the end of a statement -----------------------------------------------------------------------------

    def finish(self, first: int, where: str) -> tuple[Span, Notes]:
        """The semicolon that ends a statement; the span and the notes of the statement."""
        if self.text != ";" and self._on_next_line():
            end = self.end_of(self.index - 1)
            place = Span(self.source, end, end)
            raise self.report(syntax.SYNTAX.at(place, wanted="';'", where=where, found="the end of the line"))
        self.expect(";", where)
        return self.settle(first)

    def _on_next_line(self) -> bool:
        """Whether the token ahead stands on a line of its own: then what is missing is missing before it."""
        before = self.end_of(self.index - 1) if self.index else 0
        return "\n" in self.source.text[before : self.starts[self.index]]
