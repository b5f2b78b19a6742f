"""Tokens of SkriptND: names, numbers and signs, what is wrong with one, and recovery after a syntax error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lamella.base.cursor import BAD, COMMENT, END, SHOWN, Lexer, SyntaxProblem
from lamella.base.diagnostic import ERROR, Diagnostic, Label
from lamella.base.limits import Limits
from lamella.base.source import Source, Span, Trivia
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
# The alternatives are tried in order, so the frequent kinds stand first; OPEN is what STRING did not take.
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
    },
    by_lines=True,
)
DEEPEST = 100
"""Deeper nesting would meet the limit of Python's own stack, here or in a later phase."""
MOST_DIGITS = 4300
"""More digits are not read by Python itself, whatever the limits say."""
T = TypeVar("T")
DEFINITION_WORDS = frozenset(("operator", "graph", "public", "import"))
BRACES = {"{": 1, "}": -1}
UNCLOSED = syntax.SYNTAX.also("'{bracket}' is not closed: expected {wanted} {where}, found {found}")
CLOSERS = {"(": ")", "[": "]", "{": "}"}
OPENERS = {closer: opener for opener, closer in CLOSERS.items()}
MOST_BRACKETS = 20
"""Findings of one text for which an opening bracket is sought: each goes through the text again."""


class SkriptndTokens(TriviaCursor):
    """A token cursor that knows the words of SkriptND, and goes on behind what cannot be read."""

    def __init__(self, source: Source, limits: Limits, start: int = 0, end: int | None = None) -> None:
        tokens = LEXER.cut(source, start, end)
        super().__init__(source, tokens, syntax.SYNTAX, syntax.BAD_CHARACTER)
        self.limits = limits
        self.depth_left = self._deepest = min(limits.max_depth, DEEPEST)
        self._noted: set[str] = set()
        self.error_count = 0
        self.is_too_deep = False
        """Whether the problem being raised is nesting: then the whole statement of a section is left, not a part."""
        self._brackets = 0

    # --- what is wrong --------------------------------------------------------------------------------------

    def report(self, finding: Diagnostic) -> SyntaxProblem:
        """Record a finding and give the exception that leaves the statement, to be raised or not."""
        self.error_count += finding.severity == ERROR
        return super().report(finding)

    def problem(self, wanted: str, where: str, hint: str = "") -> SyntaxProblem:
        """Record what is wrong at the token ahead, at the bracket that is not closed where that is the reason.

        What is no token at all is more wrong than a misplaced one.
        """
        if self.kind == ODD:
            return self._odd_number()
        if self.kind == OPEN:
            return self.report(syntax.OPEN_STRING.at(self.span(self.index), text=self.text[:SHOWN]))
        if self.kind == BLOCK and self.text[1:] not in BLOCKS:
            return self.report(self.unknown_block())
        is_searched = self.kind != BAD and self._brackets < MOST_BRACKETS
        opener = self._unclosed(wanted) if is_searched else None
        if opener is None:
            return super().problem(wanted, where, hint)
        self._brackets += 1
        found = "the end of the file" if self.kind == END else f"'{self.text[:SHOWN]}'"
        finding = UNCLOSED.at(
            self.span(opener),
            labels=[Label(self.span(self.index), "noticed here")],
            bracket=self.texts[opener],
            wanted=wanted,
            where=where,
            found=found,
        )
        return self.report(finding)

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
        self.is_too_deep = True
        return SyntaxProblem()

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

    def finish(self, first: int, where: str) -> tuple[Span, Trivia]:
        """The semicolon that ends a statement; the span and the notes of the statement."""
        if self.text != ";" and self._on_next_line():
            # Noticed at the next statement, reported where the semicolon belongs.
            end = self.end_of(self.index - 1)
            place = Span(self.source, end, end)
            raise self.report(syntax.SYNTAX.at(place, wanted="';'", where=where, found="the end of the line"))
        self.expect(";", where)
        return self.settle(first)

    def _on_next_line(self) -> bool:
        """Whether the token ahead stands on a line of its own: then what is missing is missing before it."""
        before = self.end_of(self.index - 1) if self.index else 0
        return "\n" in self.source.text[before : self.starts[self.index]]

    # --- recovery ------------------------------------------------------------------------------------------

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
                # A brace closes what was left open inside it: one missing ')' must not shift all pairs behind it.
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
        except SyntaxProblem:
            # The next ';' may stand deep inside what was not read, so the section leaves the whole statement.
            if self.is_too_deep:
                raise
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
