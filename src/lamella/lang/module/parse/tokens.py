"""Tokens of the Module DSL, the comments around them, its lines and blocks, and error recovery."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from inspect import cleandoc
from typing import Self, TypeVar

from lamella.base.cursor import COMMENT, END, SHOWN, Lexer, SyntaxProblem
from lamella.base.limits import LARGEST, Limits
from lamella.base.source import Source, Span, Trivia
from lamella.base.suggest import nearest
from lamella.base.trivia import TriviaCursor, TriviaReader
from lamella.lang.module.nodes import Integer, Real, Stub, Text
from lamella.lang.module.parse.layout import (
    CLOSING,
    DEDENT,
    INDENT,
    LAYOUT,
    NAME,
    NEWLINE,
    SIGN,
    IndentationLayout,
)
from lamella.lang.module.rules import syntax

INT, FLOAT, STRING, DOC, ODD, OPEN, OPEN_DOC = "int", "float", "string", "doc", "odd", "open", "opendoc"
DIGITS_AND_LINES = r"[0-9]++(?:_[0-9]++)*+"
EXPONENT = r"[eE][+\-]?[0-9]++"
# What looks like a number and is none (`5.`, `2x`, `1__0`) is `odd`, as a whole.
NUMBER_ENDS = r"(?![0-9A-Za-z_]|\.(?!\.\.))"
# The order decides where patterns share a beginning: docstrings before strings, whole ones before open ones.
LEXER = Lexer(
    {
        NAME: r"[A-Za-z_][0-9A-Za-z_]*+",
        SIGN: r"->|=>|\.\.\.|\*\*|//|[=!<>]=|&&|\|\||[=,()\[\]:{}@*+\-/%<>?!×]|\.(?![0-9])",
        NEWLINE: r"[\r\n][ \t\r\n]*+",
        INT: rf"{DIGITS_AND_LINES}{NUMBER_ENDS}",
        FLOAT: rf"{DIGITS_AND_LINES}(?:\.{DIGITS_AND_LINES}(?:{EXPONENT})?+|{EXPONENT}){NUMBER_ENDS}",
        ODD: r"[0-9.](?:[eE][+\-][0-9]|[0-9A-Za-z_]|\.(?!\.\.))*+",
        DOC: r'"""(?:[^"]|"(?!""))*+"""',
        OPEN_DOC: r'"""[\s\S]*+',
        STRING: r'"(?:[^"\\\x00-\x08\n-\x1f]|\\[^\x00-\x1f])*+"',
        OPEN: r'"[^\r\n]*+',
        COMMENT: r"#[^\r\n]*+",
    },
    skip=r"[ \t]*+",
)
LINE_END = re.compile(r"\r\n?|\n")
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))")
T = TypeVar("T")
ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
DIGITS = len(str(LARGEST))
DEEPEST = 100
"""Deeper nesting would meet the limit of Python's own stack, here or in a later phase."""
FOUND = {NEWLINE: "the end of the line", INDENT: "an indented line", DEDENT: "the end of the block"}


def read_doc(text: str) -> str:
    """The text of a docstring token."""
    lines = LINE_END.split(text[3:-3])
    return cleandoc("\n".join(line.rstrip() for line in lines))


class BlockMargin(TriviaReader):
    """Trivia of a language with blocks: hands out comments also by their indentation."""

    def within(self, column: int, ahead: int) -> tuple[str, ...]:
        """The comments before an offset that are indented at least this far: they end a block."""
        found: list[str] = []
        while self._next < ahead and self._column(self._next) >= column:
            if found and self._apart(self._next):
                found.append("")
            found.append(self._comment())
        return tuple(found)

    def _column(self, offset: int) -> int:
        return offset - self._text.rfind("\n", 0, offset) - 1


class ModuleTokens(TriviaCursor):
    """A token cursor that knows the words of the Module DSL, its lines and its blocks.

    The lines of a block are read one by one; what is wrong with one never keeps the others from being read.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        layout = IndentationLayout(source, LEXER.cut(source), limits.max_statements)
        tokens = layout.lay_out()
        super().__init__(source, tokens, syntax.SYNTAX, syntax.BAD_CHARACTER)
        self.margin = self.blocks = BlockMargin(source, tokens.comments)
        self.findings += layout.findings
        self._unclosed, self._misplaced = layout.unclosed, layout.misplaced
        self.limits = limits
        self.depth_left = self._deepest = min(limits.max_depth, DEEPEST)
        self.has_stub = False
        """Whether `...` stood in the declaration being read, in a place that has no node for it."""
        self.settings: set[str] = set()
        """The blocks of settings that the file has so far."""
        self._carried: list[str] = []
        self._block_column = 0
        self.lost: set[str] = set()
        """Names that stand in lines that could not be read."""
        if layout.cut_at is not None:
            place = Span(source, layout.cut_at, layout.cut_at)
            self._exceed(place, "the number of lines", limits.max_statements, "max_statements")

    # --- findings -------------------------------------------------------------------------------------------

    def problem(self, wanted: str, where: str, hint: str = "") -> SyntaxProblem:
        """Record what is wrong at the token ahead: what is no token at all is more wrong than a misplaced one."""
        span = self.span(self.index)
        if self._line_start() in self._misplaced:
            return SyntaxProblem()  # that the line stands in the wrong place was said before
        # A bracket that never closes explains whatever looks odd behind it, so it is reported instead.
        opened = self._unclosed_before(span.start)
        if opened is not None:
            place, sign = Span(self.source, opened, opened + 1), self.source.text[opened]
            return self.report(syntax.UNCLOSED.at(place, sign=sign, closing=CLOSING[sign]))
        if self.kind in FOUND:
            start = self.end_of(max(0, self.index - 1)) if self.kind == NEWLINE else span.start
            span, found = Span(self.source, start, start), FOUND[self.kind]
            return self.report(
                syntax.SYNTAX.at(span, hint=hint or None, wanted=wanted, where=where, found=found)
            )
        if self.kind == OPEN:
            hint = "a string ends on the line it begins on"
            return self.report(syntax.BAD_CHARACTER.at(span, hint=hint, text=self.text[:SHOWN]))
        if self.kind == OPEN_DOC:
            return self.report(syntax.OPEN_DOC.at(Span(self.source, span.start, span.start + 3)))
        if self.kind == ODD:
            hint = "numbers are written 5, 5.0, 0.5 or 1e-6"
            return self.report(syntax.BAD_CHARACTER.at(span, hint=hint, text=self.text[:SHOWN]))
        return super().problem(wanted, where, hint)

    def _line_start(self) -> int:
        """The offset of the first token of the line."""
        index = self.index
        while index and self.kinds[index - 1] not in LAYOUT:
            index -= 1
        return self.starts[index]

    def begins_line(self) -> bool:
        """Whether the token ahead is the first of a line of text."""
        start = self.starts[self.index]
        return not self.source.text[self.source.text.rfind("\n", 0, start) + 1 : start].strip()

    def _unclosed_before(self, offset: int) -> int | None:
        """The offset of a bracket of this line that nothing closes, where it stands before another."""
        index = self.index
        while self.kinds[index] not in (NEWLINE, END):
            index += 1
        found = self._unclosed.get(index)
        return found if found is not None and found <= offset else None

    def misindented(self, wanted: str, repair: str) -> None:
        """Report that the line ahead is indented otherwise than what it holds must be."""
        start = self.starts[self.index]
        width = start - self.source.text.rfind("\n", 0, start) - 1
        place = Span(self.source, start - width, start if width else self.end_of(self.index))
        self.report(syntax.INDENTATION.at(place, found=width, wanted=wanted, repair=repair))

    def too_deep(self, where: str) -> SyntaxProblem:
        """Report that the nesting limit is reached."""
        return self._exceed(self.span(self.index), f"the nesting {where}", self._deepest, "max_depth")

    def _exceed(self, span: Span, what: str, limit: int, option: str) -> SyntaxProblem:
        return self.report(syntax.LIMIT.at(span, what=what, limit=limit, option=option))

    # --- names and literals ---------------------------------------------------------------------------------

    def name(self, wanted: str, where: str) -> str:
        """A name; keywords are names wherever a name is wanted."""
        text = self.text
        if self.kind != NAME:
            raise self.problem(wanted, where)
        if len(text) > self.limits.max_name:
            what = f"a name of {len(text)} characters"
            self._exceed(self.span(self.index), what, self.limits.max_name, "max_name")
        self.next()
        return text

    def reword(self, words: Collection[str], wanted: str, where: str) -> bool:
        """Where a word that is nearly one of these stands ahead, report it and read it as that one."""
        close = nearest(self.text, words) if self.kind == NAME else []
        if not close:
            return False
        self.problem(wanted, where, f"did you mean {close[0]}?")
        # The token itself is replaced, so that whatever reads it next sees the word that was meant.
        self.texts[self.index] = close[0]
        self.move_to(self.index)
        return True

    def dotted(self, wanted: str, where: str) -> str:
        """`name.name…` as one text."""
        parts = [self.name(wanted, where)]
        while self.accept("."):
            parts.append(self.name("a name", "after '.'"))
        return ".".join(parts)

    def integer(self) -> Integer:
        """An integer of at most 64 bits."""
        text, start = self.text, self.starts[self.index]
        digits = text
        # Digits are counted before `int` reads them, which takes quadratic time.
        if len(text) >= DIGITS:
            digits = text.replace("_", "").lstrip("0") or "0"
            if len(digits) > DIGITS or int(digits) > LARGEST:
                raise self._too_large()
        self.next()
        return Integer(int(digits), Span(self.source, start, start + len(text)))

    def real(self) -> Real:
        """A number with a point or an exponent that is a finite double."""
        value = float(self.text)
        if value == float("inf"):
            raise self._too_large()
        return Real(value, self.span(self.next()))

    def _too_large(self) -> SyntaxProblem:
        text = self.text
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
        return self.report(syntax.TOO_LARGE.at(self.span(self.index), text=shown))

    def string(self, wanted: str, where: str) -> Text:
        """A string; the escapes are `\\"`, `\\\\`, `\\n`, `\\t` and `\\uXXXX`."""
        value = self.text[1:-1]
        token = self.expect_kind(STRING, wanted, where)
        if "\\" in value:
            value = ESCAPE.sub(lambda match: self._unescape(match, token), value)
        return Text(value, self.span(token))

    def _unescape(self, match: re.Match[str], token: int) -> str:
        if match[1] is None:
            found = ESCAPES.get(match[2])
        else:
            code = int(match[1], 16)
            found = chr(code) if 0 < code < 0xD800 or code > 0xDFFF else None
        if found is None:
            start = self.starts[token] + 1 + match.start()
            place = Span(self.source, start, start + len(match[0]))
            hint = r"the escapes are \" \\ \n \t and \uXXXX"
            raise self.report(syntax.BAD_CHARACTER.at(place, hint=hint, text=match[0]))
        return found

    def doc_below(self) -> str:
        """The docstring that begins the block below this line, without the indentation that its lines share."""
        if self.kinds[self.index + 1] != INDENT or self.kinds[self.index + 2] != DOC:
            return ""
        return read_doc(self.texts[self.index + 2])

    # --- trivia: comments and blank lines beside nodes ------------------------------------------------------

    def settle(self, first: int) -> tuple[Span, Trivia]:
        """The span and the notes of a node that has just been read."""
        span, notes = super().settle(first)
        return span, self._with_carried(notes)

    def above(self, first: int) -> Trivia:
        """The notes above a node whose parts have notes of their own, before they are read."""
        start = self.starts[first]
        return self._with_carried(self.margin.take(start, start, start))

    def _with_carried(self, notes: Trivia) -> Trivia:
        if not self._carried:
            return notes
        carried, self._carried = self._carried, []
        return replace(notes, above=(*carried, *notes.above))

    def headed(self, notes: Trivia) -> Trivia:
        """The notes of a node whose head has just been read, with those between and behind the words of the head."""
        last = self.index - 1
        found = self.margin.take(self.starts[last], self.end_of(last), self.starts[self.index])
        if not (found.above or found.behind):
            return notes
        return replace(notes, above=(*notes.above, *found.above), behind=found.behind)

    def carry(self, first: int) -> None:
        """Keep the comments beside the head of a section, which has no notes, for the node that follows."""
        _, notes = super().settle(first)
        self._carried += notes.above
        if notes.behind:
            self._carried.append(notes.behind)

    def carry_over(self, comments: tuple[str, ...]) -> None:
        """Keep the comments at the end of a section for the node that follows."""
        self._carried += comments

    def closed(self, notes: Trivia, last: tuple[str, ...]) -> Trivia:
        """The notes of a node whose block has ended, with the comments at the end of the block."""
        last, self._carried = (*self._carried, *last), []
        return replace(notes, last=last) if last else notes

    # --- lines and blocks -----------------------------------------------------------------------------------

    def end_line(self, where: str) -> None:
        """The end of a line."""
        if self.kind != NEWLINE:
            raise self.problem("the end of the line", where)
        self.next()

    def lines(self, parse: Callable[[Self], T | None]) -> tuple[list[T], tuple[str, ...]]:
        """The lines of the block whose head ends here, and the comments at its end; a block may have no lines.

        `parse` is a rule that reads one line with its end, and the block below it.
        """
        self.end_line("at the head of a block")
        if self.kind != INDENT:
            return [], self.blocks.within(self._block_column + 1, self._next_start())
        column = self._column()
        self.next()
        found = self.members(parse, column)
        last = self.blocks.within(column, self._next_start())
        if self.kind == DEDENT:
            self.next()
        return found, last

    def members(self, parse: Callable[[Self], T | None], column: int) -> list[T]:
        """What the lines up to the end of a block hold; one that is indented too far is read like the others.

        A line that cannot be read is passed over, with the block below it.
        """
        found: list[T] = []
        extra, depth, around = 0, self.depth_left, self._block_column
        self._block_column = column
        # `extra` counts blocks that are indented too far: they belong here, and their end is not the end of this block.
        while self.kind != END and (extra or self.kind != DEDENT):
            if self.kind in (INDENT, DEDENT):
                extra += self._change(column)
                continue
            try:
                if self.kind == DOC:
                    self._skip_doc()
                    continue
                item = parse(self)
            except SyntaxProblem:
                self.depth_left = depth
                self.pass_line()
                continue
            if item is not None:
                found.append(item)
        self._block_column = around
        return found

    def _change(self, column: int) -> int:
        """Pass over a change of indentation inside a block; its beginning is reported."""
        if self.kind == DEDENT:
            self.next()
            return -1
        self._report_indent(column)
        self.next()
        return 1

    def body(self, parse: Callable[[Self], T | None], where: str) -> tuple[tuple[T, ...], tuple[str, ...]]:
        """What stands behind a colon: a block below it, or one line of it on the same line."""
        self.descend(where)
        last: tuple[str, ...] = ()
        if self.kind != NEWLINE:
            item = parse(self)
            found = [] if item is None else [item]
        else:
            found, last = self.lines(parse)
        self.depth_left += 1
        return tuple(found), last

    def _skip_doc(self) -> None:
        """A docstring, where it documents nothing or has been read already."""
        self.next()
        self.end_line("after a docstring")

    def pass_line(self) -> None:
        """Go to the end of a broken line, and over the block below it."""
        self.pass_words()
        if self.kind == NEWLINE:
            self.next()
        self.pass_block()

    def pass_words(self) -> None:
        """Go to the end of a broken line; the names on it are noted."""
        start = self.index
        # From the first word of the line on: what stands before the mistake is lost as well.
        while start and self.kinds[start - 1] not in LAYOUT:
            start -= 1
        self.skip_to(lambda: self.kind == NEWLINE)
        self._lose(start)

    def _lose(self, start: int) -> None:
        """Note the names that stand between a token and this place, in a text that could not be read."""
        kinds, texts = self.kinds, self.texts
        self.lost.update(texts[number] for number in range(start, self.index) if kinds[number] == NAME)

    def pass_block(self) -> None:
        """Go over the block that begins here, if one does."""
        opened, start = 0, self.index
        while self.kind == INDENT or (opened and self.kind != END):
            opened += (self.kind == INDENT) - (self.kind == DEDENT)
            self.next()
            if not opened:
                break
        self._lose(start)

    def _column(self) -> int:
        """How far the token ahead is indented."""
        start = self.starts[self.index]
        return start - self.source.text.rfind("\n", 0, start) - 1

    def _next_start(self) -> int:
        """Where the next token with a text begins."""
        index = self.index
        while self.kinds[index] == DEDENT:
            index += 1
        return self.starts[index]

    def _report_indent(self, column: int) -> None:
        start, width = self.starts[self.index], self._column()
        finding = syntax.INDENTATION.at(
            Span(self.source, start - width, start),
            found=width,
            wanted=f"the block it stands in by {column}",
            repair=f"indent it by {column}",
        )
        self.report(finding)

    # --- sections -------------------------------------------------------------------------------------------

    def section_head(self) -> int:
        """`name ':'` of a section that has no notes of its own."""
        first = self.next()
        self.expect(":", f"after '{self.texts[first]}'")
        self.carry(first)
        return first

    def section(self, parse: Callable[[Self], T | None]) -> tuple[T, ...]:
        """`name ':'` with the lines below it; the comments at its end go to the node that follows."""
        self.section_head()
        found, last = self.body(parse, "of sections")
        self.carry_over(last)
        return found

    def twice(self, first: int, where: str) -> None:
        """Report a section that was there before."""
        self.report(syntax.TWICE.at(self.span(first), section=self.texts[first], where=where))

    def has_arrow(self) -> bool:
        """Whether an arrow stands on this line."""
        index = self.index
        while self.kinds[index] not in (NEWLINE, END):
            if self.texts[index] == "->":
                return True
            index += 1
        return False

    def at_stub(self) -> bool:
        """Whether `...` is ahead."""
        return self.text == "..." and self.kind == SIGN

    def stub(self) -> Stub:
        """`...` in the place of a statement, with all that stands behind it on its line."""
        first = self.index
        self.pass_words()
        span, notes = self.settle(first)
        self.end_line("after '...'")
        return Stub(notes, span)

    def skip_stub(self) -> bool:
        """Pass over `...` in the place of a line; it is remembered."""
        if not self.at_stub():
            return False
        self.stub()
        self.has_stub = True
        return True

    def at_named(self) -> bool:
        """Whether `name :` is ahead."""
        return self.kind == NAME and self.ahead() == ":"
