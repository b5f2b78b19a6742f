"""Names, numbers and signs of SkriptND, and the comments around them."""

from __future__ import annotations

from lamella.base.cursor import COMMENT, SHOWN, Cursor, Lexer, SyntaxProblem
from lamella.base.diagnostic import ERROR, Diagnostic
from lamella.base.limits import Limits
from lamella.base.margin import Margin
from lamella.base.source import Notes, Source, Span
from lamella.lang.skriptnd.nodes import Integer, Real
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.words import KEYWORDS, TYPE_WORDS

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
BITS_OF_A_DIGIT = 3.3219
SAFE_DIGITS = 300


class TooDeep(SyntaxProblem):
    """Leaves the whole block: what is nested too deeply is not read on."""


class Lexis(Cursor):
    """A cursor that knows the words of SkriptND."""

    def __init__(self, source: Source, limits: Limits, start: int = 0, end: int | None = None) -> None:
        tokens = LEXER.cut(source, start, end)
        super().__init__(source, tokens, syntax.SYNTAX, syntax.BAD_CHARACTER)
        self.limits = limits
        self.margin = Margin(source, tokens.comments)
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
        if self.kind == BLOCK and self.text[1:] not in self.blocks:
            return self.report(self.unknown_block())
        return super().problem(wanted, where, hint)

    blocks: frozenset[str] = frozenset()

    def unknown_block(self) -> Diagnostic:
        """Say that there is no such block."""
        return syntax.UNKNOWN_BLOCK.at(self.span(self.index), name=self.text[:SHOWN], repair="")

    def too_deep(self, where: str) -> SyntaxProblem:
        """Report that the nesting limit is reached."""
        self.exceed(self.index, f"the nesting {where}", self._deepest, "max_depth")
        return TooDeep()

    def exceed(self, token: int, what: str, limit: int, option: str) -> SyntaxProblem:
        """Report that a limit is passed."""
        return self.report(syntax.LIMIT.at(self.span(token), what=what, limit=limit, option=option))

    def _odd_number(self) -> SyntaxProblem:
        text = self.text[:SHOWN]
        digits, dots, _ = text.partition("..")
        is_count = bool(dots) and digits.isdigit()
        repair = f"write '{digits} ..': the point of a number is greedy" if is_count else ""
        return self.report(syntax.NUMBER_FORM.at(self.span(self.index), text=text, repair=repair))

    def note(self, kind: str, spelling: str, repair: str, first: int | None = None) -> None:
        """Say that a spelling is a newer draft's, once for each kind of them."""
        if kind not in self._noted:
            self._noted.add(kind)
            span = self.span(self.index if first is None else first)
            self.report(syntax.NEWER_SPELLING.at(span, spelling=spelling, repair=repair))

    # --- names and numbers ----------------------------------------------------------------------------------

    def identifier(self, what: str, where: str) -> str:
        """A name that is declared or used."""
        text = self.text
        if self.kind != NAME:
            raise self.problem(what, where)
        if text in KEYWORDS or text == "_":
            raise self.report(syntax.KEYWORD.at(self.span(self.index), name=text, what=what))
        if len(text) > self.limits.max_name:
            what = f"a name of {len(text)} characters"
            self.exceed(self.index, what, self.limits.max_name, "max_name")
        self.next()
        return text

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
        text = self.text
        if len(text) > SAFE_DIGITS and len(text.lstrip("0")) * BITS_OF_A_DIGIT > self.limits.max_integer_bits:
            raise self._too_large()
        return Integer(int(text.lstrip("0") or "0"), self.span(self.next()))

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

    def settle(self, first: int) -> tuple[Span, Notes]:
        """The span and the notes of a node that has just been read."""
        span = self.span_from(first)
        return span, self.margin.take(span.start, span.end, self.starts[self.index])

    def finish(self, first: int, where: str) -> tuple[Span, Notes]:
        """The semicolon that ends a statement; the span and the notes of the statement."""
        self.expect(";", where)
        return self.settle(first)
