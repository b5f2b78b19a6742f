"""The offside rule: which newlines end a line, and where blocks begin and end by indentation."""

from __future__ import annotations

from lamella.base.cursor import END, LOOKAHEAD, Tokens
from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Source, Span
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import HEADERS, OPENERS

NAME, SIGN = "name", "sign"
NEWLINE, INDENT, DEDENT = "newline", "indent", "dedent"
LAYOUT = frozenset((NEWLINE, INDENT, DEDENT))
TAB_WIDTH = 4
"""How many spaces a tab is taken for, once it is reported."""
CLOSING = {"(": ")", "[": "]", "{": "}"}
_NESTING = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


class IndentationLayout:
    """Turns the newlines of a text into the ends of lines, and changes of indentation into tokens without text.

    A newline means nothing inside brackets, before `->`, and before `@` behind a data-flow statement. Lines with
    nothing but a comment never matter.
    """

    def __init__(self, source: Source, tokens: Tokens, max_lines: int) -> None:
        self.findings: list[Diagnostic] = []
        self.cut_at: int | None = None
        """The offset of the first line that is beyond the limit."""
        self._source = source
        self._tokens = tokens
        self._found = Tokens([], [], [], tokens.comments)
        self.unclosed: dict[int, int] = {}
        """By the token that ends a line, the offset of a bracket in it that nothing closes."""
        self.misplaced: set[int] = set()
        """The offsets of lines whose indentation is wrong."""
        self._open: list[tuple[str, int]] = []
        self._counts = dict.fromkeys(CLOSING.values(), 0)
        """How many brackets of each kind are open, by what closes them."""
        self._levels = [0]
        self._depth = 0
        self._is_flow = False
        self._lines_left = max_lines
        self._tab_seen = False

    def lay_out(self) -> Tokens:
        """The tokens of the text with its layout."""
        kinds, texts, starts, _ = self._tokens
        out_kinds, out_texts, out_starts, _ = self._found
        nesting = _NESTING
        self._begin_file()
        index, end = 0, self._tokens.end
        while index < end:
            kind = kinds[index]
            if kind == NEWLINE:
                index = self._newline(index)
                continue
            text = texts[index]
            if kind == SIGN:
                if text in nesting:
                    self._depth = max(0, self._depth + nesting[text])
                    self._bracket(text, starts[index])
                elif text == "->" and not self._depth:
                    self._is_flow = True
            out_kinds.append(kind)
            out_texts.append(text)
            out_starts.append(starts[index])
            index += 1
        self._end_file()
        return self._found

    def _bracket(self, text: str, place: int) -> None:
        """Note a bracket; one that closes another than the last leaves those between them open for good."""
        if text in CLOSING:
            self._open.append((text, place))
            self._counts[CLOSING[text]] += 1
            return
        if not self._counts[text]:
            return
        if CLOSING[self._open[-1][0]] != text:
            self.unclosed[-1] = self._open[-1][1]
        sign = ""
        while CLOSING.get(sign) != text:
            sign, _ = self._open.pop()
            self._counts[CLOSING[sign]] -= 1

    def _end_brackets(self) -> None:
        """At the end of a line: what is open in it stays so."""
        left = self.unclosed.pop(-1, None)
        if left is None and self._open:
            left = self._open[-1][1]
        if left is not None:
            self.unclosed[len(self._found.kinds)] = left
        self._open.clear()
        self._counts = dict.fromkeys(CLOSING.values(), 0)

    def _begin_file(self) -> None:
        first = self._tokens.starts[0]
        lead = self._source.text[:first]
        if self._tokens.kinds[0] not in (NEWLINE, END) and lead:
            self._indent_to(lead, first)

    def _end_file(self) -> None:
        end = len(self._source.text)
        if self._found.kinds and self._found.kinds[-1] not in LAYOUT:
            self._end_brackets()
            self._add(NEWLINE, end)
        for _ in self._levels[1:]:
            self._add(DEDENT, self._last_end())
        kinds, texts, starts, _ = self._found
        kinds += [END] * LOOKAHEAD
        texts += [""] * LOOKAHEAD
        starts += [end] * LOOKAHEAD

    def _newline(self, index: int) -> int:
        """Pass the newlines at a place; what they mean depends on the token behind them."""
        kinds, texts, starts, _ = self._tokens
        ahead = index + 1
        while kinds[ahead] == NEWLINE:
            ahead += 1
        if kinds[ahead] == END:
            if self._found.kinds:
                self._end_brackets()
                self._add(NEWLINE, starts[index])
            return ahead
        lead = texts[ahead - 1].replace("\r", "\n").rpartition("\n")[2]
        if self._continues(ahead, lead):
            return ahead
        self._depth, self._is_flow = 0, False
        if self._found.kinds:
            self._end_brackets()
            self._add(NEWLINE, starts[index])
        if not self._lines_left:
            self.cut_at = starts[ahead]
            return self._tokens.end
        self._lines_left -= 1
        self._indent_to(lead, starts[ahead])
        return ahead

    def _continues(self, ahead: int, lead: str) -> bool:
        """Whether the line whose first token this is goes on with the line before it."""
        text = self._tokens.texts[ahead]
        if self._depth:
            # Else a bracket that is never closed would swallow the rest of the file.
            return not self._begins_anew(ahead, lead)
        # No statement begins with an arrow.
        if text == "->":
            return bool(self._found.kinds)
        if text != "@" or not self._found.kinds:
            return False
        return self._is_flow or (len(lead) > self._levels[-1] and self._found.texts[-1] != ":")

    def _begins_anew(self, ahead: int, lead: str) -> bool:
        """Whether a declaration, a section or a statement begins here: a bracket before it was never closed."""
        kinds, texts, _, _ = self._tokens
        text, behind = texts[ahead], texts[ahead + 1]
        if text in OPENERS and not lead:
            return kinds[ahead + 1] == NAME
        if text in HEADERS and behind == ":":
            return kinds[ahead + 2] in (NEWLINE, END)
        return len(lead) == self._levels[-1] and text != "->" and self._has_arrow(ahead)

    def _has_arrow(self, index: int) -> bool:
        """Whether an arrow stands on the line that begins here, before a bracket closes; no bracket may hold one."""
        kinds, texts, _, _ = self._tokens
        depth = 0
        while depth >= 0 and kinds[index] not in (NEWLINE, END):
            if texts[index] == "->":
                return True
            depth += _NESTING.get(texts[index], 0)
            index += 1
        return False

    def _indent_to(self, lead: str, place: int) -> None:
        """Open or close blocks so that a line with this white space before it stands in its own."""
        width = self._width(lead, place)
        levels = self._levels
        if width > levels[-1]:
            levels.append(width)
            self._add(INDENT, place)
            return
        closed, last = self._last_end(), width
        while width < levels[-1]:
            last = levels.pop()
            self._add(DEDENT, closed)
        if width > levels[-1]:
            self._report_between(width, last, place)
            levels.append(width)
            self._take_back()

    def _take_back(self) -> None:
        """Leave the block open that has just been closed."""
        for items in self._found[:3]:
            items.pop()

    def _width(self, lead: str, place: int) -> int:
        if "\t" not in lead:
            return len(lead)
        if not self._tab_seen:
            self._tab_seen = True
            tab = place - len(lead) + lead.index("\t")
            self.findings.append(syntax.TAB.at(Span(self._source, tab, tab + 1)))
        return len(lead.expandtabs(TAB_WIDTH))

    def _report_between(self, width: int, inner: int, place: int) -> None:
        outer = self._levels[-1]
        self.misplaced.add(place)
        finding = syntax.INDENTATION.at(
            Span(self._source, place - width, place),
            found=width,
            wanted=f"the blocks that end here by {outer} and {inner}",
            repair=f"indent it by {inner} or {outer}",
        )
        self.findings.append(finding)

    def _add(self, kind: str, start: int) -> None:
        kinds, texts, starts, _ = self._found
        kinds.append(kind)
        texts.append("")
        starts.append(start)

    def _last_end(self) -> int:
        """The offset where the last token with a text ends."""
        kinds, texts, starts, _ = self._found
        index = len(kinds) - 1
        while index >= 0 and kinds[index] in (NEWLINE, INDENT):
            index -= 1
        return starts[index] + len(texts[index]) if index >= 0 else 0
