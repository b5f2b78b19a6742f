"""Tokens, names, numbers and constants of the assembly text."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import TypeVar

from lamella.base.cursor import COMMENT, SHOWN, Lexer, SyntaxProblem
from lamella.base.limits import LARGEST, SMALLEST
from lamella.base.source import Source, Span
from lamella.base.suggest import nearest
from lamella.base.trivia import TriviaCursor
from lamella.lang.nac.assembly.nodes import Id, Label, Value
from lamella.lang.nac.assembly.numbers import read_string, single
from lamella.lang.nac.nodes import ConstantType, ConstantValue
from lamella.lang.nac.rules import assembly as rules

T = TypeVar("T")
LABEL, SECTION, WORD, SIGN = "label", "section", "word", "sign"
INT, FLOAT, STRING, ODD, OPEN = "int", "float", "string", "odd", "open"
NAMES = (WORD, STRING)

DECIMAL = r"(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+\-]?[0-9]++)?+|[0-9]++[eE][+\-]?[0-9]++"
LEXER = Lexer(
    {
        LABEL: r"%[0-9A-Za-z_]++",
        INT: r"-?[0-9]++(?![0-9A-Za-z_.])",
        FLOAT: rf"-?(?:{DECIMAL}|inf|nan)(?![0-9A-Za-z_.])",
        WORD: r"[A-Za-z_][0-9A-Za-z_]*+(?:\.[0-9A-Za-z_]++)*+",
        SIGN: r"[=,()\[\]:@#]",
        STRING: r'"(?:[^"\\\x00-\x1f\ud800-\udfff]++|\\["\\nrt]|\\u\{[0-9A-Fa-f]{1,6}\})*+"',
        SECTION: r"\.[A-Za-z_][0-9A-Za-z_]*+",
        ODD: r"[+\-]?\.?[0-9](?:[eE][+\-][0-9]|[0-9A-Za-z_.])*+",
        OPEN: r'"[^\r\n]*+',
        COMMENT: r";[^\n]*+",
    }
)
DIGITS = 20
MOST_SUGGESTIONS = 50
"""Finding a word that is close takes long, and nobody reads more suggestions than that."""


class Lexis(TriviaCursor):
    """A cursor that knows the literals of the assembly text."""

    def __init__(self, source: Source) -> None:
        nul = source.text.find("\0")
        tokens = LEXER.cut(source, 0, None if nul < 0 else nul)
        super().__init__(source, tokens, rules.SYNTAX, rules.BAD_CHARACTER)
        self._suggested = 0
        if nul >= 0:
            rest = len(source.text) - nul - 1
            self.report(rules.NUL.at(Span(source, nul, nul + 1), count=rest))

    # --- what is wrong --------------------------------------------------------------------------------------

    def problem(self, wanted: str, where: str, hint: str = "") -> SyntaxProblem:
        """Record what is wrong at the token ahead: what is no token at all is more wrong than a misplaced one."""
        span, text = self.span(self.index), self.text[:SHOWN]
        if self.kind == ODD:
            return self.report(rules.NUMBER_FORM.at(span, text=text))
        if self.kind == OPEN:
            return self.report(rules.OPEN_STRING.at(span, text=text))
        return super().problem(wanted, where, hint)

    def unknown(self, token: int, what: str, words: Collection[str]) -> SyntaxProblem:
        """Report a word that is none of those that may stand here."""
        text = self.texts[token][:SHOWN]
        self._suggested += 1
        close = nearest(text, words) if self._suggested <= MOST_SUGGESTIONS else []
        repair = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(words)}"
        return self.report(rules.UNKNOWN_WORD.at(self.span(token), what=what, text=text, repair=repair))

    def _out_of_range(self, repair: str) -> SyntaxProblem:
        text = self.text
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
        return self.report(rules.OUT_OF_RANGE.at(self.span(self.index), text=shown, repair=repair))

    # --- words ----------------------------------------------------------------------------------------------

    def choose(self, what: str, words: Collection[str], where: str) -> str:
        """One of some words."""
        token = self.expect_kind(WORD, f"a {what}", where)
        if self.texts[token] not in words:
            raise self.unknown(token, what, words)
        return self.texts[token]

    def name(self, what: str, where: str) -> str:
        """A name, in quotes or without."""
        if self.kind == WORD:
            return self.texts[self.next()]
        return self.string(what, where)

    def string(self, what: str, where: str) -> str:
        """A string in quotes."""
        if self.kind != STRING:
            raise self.problem(what, where)
        found = read_string(self.text)
        if found is None:
            raise self.report(rules.OPEN_STRING.at(self.span(self.index), text=self.text[:SHOWN]))
        self.next()
        return found

    def label(self, where: str) -> Label:
        """`%name` or `%12`."""
        token = self.expect_kind(LABEL, "a label", where)
        return Label(self.texts[token][1:], self.span(token))

    def id(self, where: str) -> Id:
        """`'#' INT`."""
        first = self.expect("#", where)
        number = self.integer("an id", "after '#'")
        return Id(number, self.span_from(first))

    # --- numbers --------------------------------------------------------------------------------------------

    def integer(self, what: str, where: str) -> int:
        """A 64-bit integer."""
        text = self.text
        if self.kind != INT:
            raise self.problem(what, where)
        digits = text.lstrip("-0") or "0"
        value = 0 if len(digits) > DIGITS else int(digits) * (-1 if text[0] == "-" else 1)
        if len(digits) > DIGITS or not SMALLEST <= value <= LARGEST:
            raise self._out_of_range(f"integers reach from {SMALLEST} to {LARGEST}")
        self.next()
        return value

    def size(self, what: str, where: str) -> int:
        """An integer that is not negative."""
        if self.kind == INT and self.text[0] == "-":
            raise self._out_of_range("sizes and offsets are not negative")
        return self.integer(what, where)

    def real(self, where: str) -> float:
        """A double-precision number; every NaN is the same."""
        if self.kind != FLOAT:
            raise self.problem("a floating-point number", where)
        text = self.text
        value = float(text)
        if math.isinf(value) and not text.endswith("inf"):
            raise self._out_of_range("write inf where it is meant")
        self.next()
        return math.nan if math.isnan(value) else value

    def single(self, where: str) -> float:
        """A single-precision number."""
        found = single(float(self.text)) if self.kind == FLOAT else 0.0
        if found is None:
            raise self._out_of_range("numbers in lists and scales are of single precision")
        self.real(where)
        return found

    def listed(self, item: Callable[[], T], where: str) -> tuple[T, ...]:
        """`'[' (item (',' item)*)? ']'`."""
        self.expect("[", where)
        found = [] if self.text == "]" else self.separated(item)
        self.expect("]", "after a list")
        return tuple(found)

    def integers(self, where: str) -> tuple[int, ...]:
        """A list of integers."""
        return self.listed(lambda: self.integer("an integer", "in a list"), where)

    def singles(self, where: str) -> tuple[float, ...]:
        """A list of single-precision numbers."""
        return self.listed(lambda: self.single("in a list"), where)

    # --- constants ------------------------------------------------------------------------------------------

    def value(self, where: str) -> Value:
        """`null`, a truth value, a number, a string or a list of numbers of one kind."""
        first = self.index
        type_, found = self._value(where)
        return Value(type_, found, self.span_from(first))

    def _value(self, where: str) -> tuple[ConstantType, ConstantValue]:
        if self.kind == INT:
            return ConstantType.INT64, self.integer("an integer", where)
        if self.kind == FLOAT:
            return ConstantType.FLOAT64, self.real(where)
        if self.kind == STRING:
            return ConstantType.STRING, self.string("a string", where)
        if self.text == "[" and self.kinds[self.index + 1] == FLOAT:
            return ConstantType.FLOAT32_LIST, self.singles(where)
        if self.text == "[":
            return ConstantType.INT32_LIST, self.integers(where)
        if self.text == "null":
            self.next()
            return ConstantType.NULL, None
        if self.text in ("true", "false"):
            return ConstantType.BOOL, self.texts[self.next()] == "true"
        if self.text == "floats":
            self.next()
            self.expect("[", "after 'floats'")
            self.expect("]", "after 'floats['")
            return ConstantType.FLOAT32_LIST, ()
        raise self.problem("a constant", where)
