"""Strings, and the expressions in their holes."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from lamella.base.cursor import END, SyntaxProblem
from lamella.base.source import Span
from lamella.lang.skriptnd.nodes import Expr, Format, Name, Text
from lamella.lang.skriptnd.parse.lexis import LEXER, STRING, Lexis
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.words import KEYWORDS

BRACE = re.compile(r"\\[{}]|[{}]")
PLAIN = re.compile(r"[A-Za-z_][0-9A-Za-z_]{0,99}")
ESCAPED = "a brace that is meant is written \\{ or \\}"


class Strings(Lexis, ABC):
    """The rules for STRING."""

    @abstractmethod
    def expression(self) -> Expr:
        """A complete expression."""

    def string(self) -> Text | Format:
        """`STRING+`: adjacent strings are one."""
        first = self.index
        text = self.text[1:-1]
        self.next()
        if self.kind != STRING and "{" not in text and "}" not in text:
            return Text(text, self.span(first))
        parts: list[str | Expr] = []
        self.move_to(first)
        while self.kind == STRING:
            self._parts(parts)
            self.next()
        span = self.span_from(first)
        if all(isinstance(part, str) for part in parts):
            return Text("".join(map(str, parts)), span)
        return Format(_joined(parts), span)

    def _parts(self, parts: list[str | Expr]) -> None:
        """The text and the holes of one literal."""
        text, start = self.text, self.starts[self.index]
        done, position = 1, 1
        while (found := BRACE.search(text, position)) is not None:
            position = found.end()
            if found[0] == "}":
                self._bad_hole(start + found.start(), start + position, "has a '}' without a '{'", ESCAPED)
            if found[0] != "{":
                continue
            parts.append(text[done : found.start()])
            end = text.find("}", position)
            if end < 0:
                problem = "has a '{' without a '}'"
                raise self._bad_hole(start + found.start(), start + position, problem, ESCAPED)
            parts.append(self._hole(text[position:end], start + position))
            done = position = end + 1
        parts.append(text[done:-1])

    def _bad_hole(self, start: int, end: int, problem: str, repair: str) -> SyntaxProblem:
        span = Span(self.source, start, end)
        return self.report(syntax.HOLE.at(span, problem=problem, repair=repair))

    def _hole(self, text: str, start: int) -> Expr:
        """The expression in a hole."""
        span = Span(self.source, start, start + len(text))
        if PLAIN.fullmatch(text) and text not in KEYWORDS and text != "_":
            return Name(text, span)
        if not text.strip():
            repair = f"write an expression between the braces; {ESCAPED}"
            raise self._bad_hole(start - 1, span.end + 1, "has a hole without an expression", repair)
        outer = self.kinds, self.texts, self.starts, self.end, self.index
        self.kinds, self.texts, self.starts, _ = tokens = LEXER.cut(self.source, start, span.end)
        self.end = tokens.end
        self.move_to(0)
        self.descend("of a string")
        try:
            value = self.expression()
            if self.kind != END:
                raise self.problem("'}'", "after the expression in a hole")
        finally:
            self.kinds, self.texts, self.starts, self.end, index = outer
            self.move_to(index)
        self.depth_left += 1
        return value


def _joined(parts: list[str | Expr]) -> tuple[str | Expr, ...]:
    """The parts with texts in a row made one, and no empty ones."""
    found: list[str | Expr] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, str) and isinstance(last, str):
            found[-1] = last + part
        elif part != "":
            found.append(part)
    return tuple(found)
