"""The lexer and the cursor that every hand-written parser of the house stands on."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.source import EditedSource, Source, Span

T = TypeVar("T")
END = "end"
BAD = "bad"
COMMENT = "comment"
SHOWN = 40
LOOKAHEAD = 8
CLOSING = {"(": ")", "[": "]", "{": "}"}
"""Brackets, each with the one that closes it."""
CLOSED = frozenset(CLOSING.values())


class Comment(NamedTuple):
    """A comment and the offset where it starts."""

    start: int
    text: str


class Tokens(NamedTuple):
    """The tokens of a text side by side, and its comments.

    Three lists instead of a list of objects: a text has so many tokens that the garbage collector would spend more
    time on them than the parser. `end` is the index of the end token; some more end tokens follow it, so that looking a
    few tokens ahead needs no care.
    """

    kinds: list[str]
    texts: list[str]
    starts: list[int]
    comments: list[Comment]

    @property
    def end(self) -> int:
        """The index of the end token."""
        return len(self.kinds) - LOOKAHEAD


class Lexer:
    """Cuts a text into tokens with one regular expression; a character that matches nothing is a `bad` token.

    The patterns are tried in order and hold no groups of their own; they should not backtrack (`*+`, `++`). Where
    none of them takes a newline (`by_lines`), only the lines that changed are cut again of a text that was edited.
    """

    def __init__(
        self, patterns: Mapping[str, str], skip: str = r"[ \t\r\n]*+", by_lines: bool = False
    ) -> None:
        self.patterns = patterns
        self._by_lines = by_lines
        groups = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in patterns.items())
        self._pattern = re.compile(rf"{skip}(?:{groups}|(?P<{BAD}>[\s\S])|\Z)")

    def cut(self, source: Source, start: int = 0, end: int | None = None) -> Tokens:
        """The tokens and the comments of a text, or of a part of it; their offsets are those of the whole."""
        if isinstance(source, EditedSource) and start == 0 and end is None:
            if not isinstance(source.tokens, Tokens):
                source.tokens = self._cut_edited(source)
            return source.tokens
        return self._cut(source, start, len(source.text) if end is None else end)

    def _cut_edited(self, source: EditedSource) -> Tokens:
        """The tokens of an edited text: those of lines that did not change are kept, and moved."""
        earlier, source.earlier = source.earlier, None
        if earlier is None or not isinstance(earlier.tokens, Tokens) or not self._by_lines:
            return self._cut(source, 0, len(source.text))
        start, end = changed_lines(earlier.text, source.text)
        moved = len(source.text) - len(earlier.text)
        kinds, texts, starts, comments = earlier.tokens
        first, last = (bisect_left(starts, place, 0, earlier.tokens.end) for place in (start, end))
        new = self._cut(source, start, end + moved)
        return Tokens(
            kinds[:first] + new.kinds[: new.end] + kinds[last:],
            texts[:first] + new.texts[: new.end] + texts[last:],
            starts[:first] + new.starts[: new.end] + [place + moved for place in starts[last:]],
            [item for item in comments if item.start < start]
            + new.comments
            + [Comment(item.start + moved, item.text) for item in comments if item.start >= end],
        )

    def _cut(self, source: Source, start: int, end: int) -> Tokens:
        tokens = Tokens([], [], [], [])
        kinds, texts, starts, comments = tokens
        for match in self._pattern.finditer(source.text, start, end):
            kind = match.lastgroup
            if kind is None:
                break
            text = match[kind]
            if kind == COMMENT:
                comments.append(Comment(match.end() - len(text), text))
            else:
                kinds.append(kind)
                texts.append(text)
                starts.append(match.end() - len(text))
        kinds += [END] * LOOKAHEAD
        texts += [""] * LOOKAHEAD
        starts += [end] * LOOKAHEAD
        return tokens


def changed_lines(old: str, new: str) -> tuple[int, int]:
    """The stretch of whole lines of an old text that a new one has others for; what is around it is the same."""
    head, tail = common_ends(old, new)
    end = old.find("\n", len(old) - tail)
    return old.rfind("\n", 0, head) + 1, len(old) if end < 0 else end


def common_ends(one: Sequence[object], other: Sequence[object]) -> tuple[int, int]:
    """How many items two sequences begin with alike, and how many of the rest they end with alike."""
    least = min(len(one), len(other))
    head = _longest(least, lambda size: one[:size] == other[:size])
    ends = len(one), len(other)
    tail = _longest(least - head, lambda size: one[ends[0] - size :] == other[ends[1] - size :])
    return head, tail


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, where all below one that fits do: whole slices compare fast."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        low, most = (middle, most) if fits(middle) else (low, middle - 1)
    return low


class SyntaxProblem(Exception):
    """Leaves the statement being parsed; the cursor has recorded the finding."""


class Cursor:
    """A place in the tokens of a text, with the small questions a recursive parser asks.

    A token is known by its index. `kind` and `text` are those of the token ahead: parsers read them often, so they are
    plain attributes.
    """

    def __init__(self, source: Source, tokens: Tokens, syntax: Rule, bad: Rule) -> None:
        self.source = source
        self.kinds, self.texts, self.starts, _ = tokens
        self.end = tokens.end
        self.findings: list[Diagnostic] = []
        self.depth_left = 200
        self._syntax = syntax
        self._bad = bad
        self.move_to(0)

    def move_to(self, index: int) -> None:
        """Stand before the token with this index."""
        self.index = index
        self.kind = self.kinds[index]
        self.text = self.texts[index]

    def next(self) -> int:
        """Take the token ahead and give its index; the end token is never passed."""
        index = self.index
        if index < self.end:
            self.index = ahead = index + 1
            self.kind = self.kinds[ahead]
            self.text = self.texts[ahead]
        return index

    def ahead(self, distance: int = 1) -> str:
        """The text of a token further ahead, at most `LOOKAHEAD` tokens."""
        return self.texts[self.index + distance]

    def accept(self, text: str) -> bool:
        """Take the token ahead if it is this word or sign."""
        if self.text != text:
            return False
        self.next()
        return True

    def expect(self, text: str, where: str) -> int:
        """Take this word or sign, or report that it is missing."""
        if self.text != text:
            raise self.problem(f"'{text}'", where)
        index = self.index  # no word or sign is the end token, so nothing is passed: `next` without its test
        self.index = ahead = index + 1
        self.kind = self.kinds[ahead]
        self.text = self.texts[ahead]
        return index

    def expect_kind(self, kind: str, what: str, where: str) -> int:
        """Take a token of a kind, or report what is missing."""
        if self.kind != kind:
            raise self.problem(what, where)
        return self.next()

    def problem(self, wanted: str, where: str, hint: str = "") -> SyntaxProblem:
        """Record what is wrong at the token ahead and give the exception that leaves the statement."""
        if self.kind == BAD:
            return self._unreadable()
        found = "the end of the file" if self.kind == END else f"'{self.text[:SHOWN]}'"
        span = self.span(self.index)
        return self.report(self._syntax.at(span, hint=hint or None, wanted=wanted, where=where, found=found))

    def unclosed(self, first: int) -> SyntaxProblem:
        """Report that a bracket is not closed before the token ahead, at the bracket itself.

        It is the last one from the token `first` on that is open still, unless a brace is closed in the column of an
        outer one: then that one has no end, and has taken the end of another.
        """
        opened, taken = self._find_unclosed(first)
        sign, found = self.texts[opened], self.text[:SHOWN]
        shown = "the end of the file" if self.kind == END else f"'{found}'"
        wanted, where = f"'{CLOSING[sign]}'", f"to close this '{sign}'"
        line = None if taken is None else self.span(taken).line
        hint = (
            None
            if line is None
            else f"the {wanted} in line {line} is taken for it; by its column it closes another"
        )
        return self.report(
            self._syntax.at(self.span(opened), hint=hint, wanted=wanted, where=where, found=shown)
        )

    def has_open(self, first: int) -> bool:
        """Whether a bracket from the token `first` on is not closed before the token ahead."""
        depth = 0
        for text in self.texts[first : self.index]:
            depth += (text in CLOSING) - (text in CLOSED)
        return depth > 0

    def _find_unclosed(self, first: int) -> tuple[int, int | None]:
        """The bracket that has no end, and the one that was taken for its end, as far as columns tell."""
        opened: list[tuple[int, int]] = []
        indent = self._indent_of(first) or 0
        for token in range(first, self.index):
            own, text = self._indent_of(token), self.texts[token]
            indent = indent if own is None else own
            if text in CLOSING:
                opened.append((token, indent))
            elif opened and text == CLOSING[self.texts[opened[-1][0]]]:
                start, column = opened.pop()
                if text == "}" and own is not None and own < column:
                    return start, token
        return (opened[-1][0] if opened else first), None

    def _indent_of(self, token: int) -> int | None:
        """How far a token is indented; None where it is not the first of its line."""
        start = self.starts[token]
        before = self.end_of(token - 1) if token else 0
        newline = self.source.text.rfind("\n", before, start)
        return start - newline - 1 if newline >= 0 or token == 0 else None

    def _unreadable(self) -> SyntaxProblem:
        """Report the run of unreadable characters ahead, as one."""
        last = self.index
        while self.kinds[last + 1] == BAD and self.starts[last + 1] == self.starts[last] + 1:
            last += 1
        span = self.span(self.index, last)
        return self.report(self._bad.at(span, text=span.text[:SHOWN]))

    def report(self, finding: Diagnostic) -> SyntaxProblem:
        """Record a finding and give the exception that leaves the statement, to be raised or not."""
        self.findings.append(finding)
        return SyntaxProblem()

    def end_of(self, index: int) -> int:
        """The offset where a token ends."""
        return self.starts[index] + len(self.texts[index])

    def span(self, first: int, last: int | None = None) -> Span:
        """The place of a token or of a run of tokens."""
        return Span(self.source, self.starts[first], self.end_of(first if last is None else last))

    def span_from(self, first: int) -> Span:
        """The place from a token to the last one taken."""
        last = max(first, self.index - 1)
        return Span(self.source, self.starts[first], self.starts[last] + len(self.texts[last]))

    def separated(self, parse: Callable[[], T], separator: str = ",") -> list[T]:
        """One or more items with a separator between them."""
        items = [parse()]
        while self.text == separator:
            self.next()
            items.append(parse())
        return items

    def descend(self, where: str) -> None:
        """Go one level deeper; nesting is bounded so that the Python stack never is the bound.

        The way back is `depth_left += 1`; who catches a SyntaxProblem restores the depth of its own level.
        """
        if self.depth_left == 0:
            raise self.too_deep(where)
        self.depth_left -= 1

    def too_deep(self, where: str) -> SyntaxProblem:
        """Report that the nesting limit is reached."""
        return self.problem("less nesting", where)

    def chain(
        self,
        first: T,
        levels: Mapping[str, int],
        operand: Callable[[], T],
        build: Callable[[T, list[tuple[str, T]]], T],
    ) -> T:
        """Operators by precedence (a higher level binds tighter), all associative to the left.

        Operators of one level in a row become one flat node, however many they are; nothing recurses.
        """
        opened: list[_Open[T]] = []
        value = first
        while (level := levels.get(self.text)) is not None:
            while opened and opened[-1].level > level:
                value = opened.pop().close(value, build)
            if opened and opened[-1].level == level:
                opened[-1].rest.append((opened[-1].sign, value))
            else:
                opened.append(_Open(level, value))
            opened[-1].sign = self.text
            self.next()
            value = operand()
        while opened:
            value = opened.pop().close(value, build)
        return value

    def skip_to(self, stop: Callable[[], bool]) -> range:
        """Leave a broken statement: go on until a place where the next may begin; what was skipped is returned."""
        start = self.index
        while self.index < self.end and not stop():
            self.next()
        return range(start, self.index)


class _Open(Generic[T]):
    """A chain of operators of one level that still grows."""

    __slots__ = ("first", "level", "rest", "sign")

    def __init__(self, level: int, first: T) -> None:
        self.level = level
        self.first = first
        self.rest: list[tuple[str, T]] = []
        self.sign = ""

    def close(self, last: T, build: Callable[[T, list[tuple[str, T]]], T]) -> T:
        """The node of the whole chain."""
        self.rest.append((self.sign, last))
        return build(self.first, self.rest)
