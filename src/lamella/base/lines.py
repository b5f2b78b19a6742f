"""Lines with their indents, blank lines and comments: what every canonical writer stands on."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.source import Trivia

INDENT = "    "


class Lines:
    """A text that grows line by line."""

    indent = INDENT

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.level = 0

    def text(self) -> str:
        """All lines."""
        return "".join(f"{line}\n" for line in self.lines)

    def place(self, notes: Trivia, lines: Sequence[str], apart: bool = False) -> None:
        """The lines of a statement, indented as they are, with its notes."""
        self.above(notes, apart)
        self.lines += lines
        if notes.behind:
            self.lines[-1] += f"  {notes.behind}"

    def open_block(self, notes: Trivia, head: str, apart: bool = False) -> None:
        """The line that opens a block."""
        self.place(notes, [self.indent * self.level + head], apart)
        self.level += 1

    def close_block(self, notes: Trivia, end: str) -> None:
        """The line that closes a block, after the comments at the block's end."""
        if notes.above:
            self.above(notes)
        self.level -= 1
        self.place(Trivia(behind=notes.behind), [self.indent * self.level + end])

    def above(self, notes: Trivia, apart: bool = False) -> None:
        """The blank line and the comments before a statement; a block does not begin with a blank line."""
        if (notes.blank or apart) and not self._at_start():
            self.lines.append("")
        self.comments(notes.above)

    def comments(self, lines: Sequence[str]) -> None:
        """Comments on lines of their own."""
        indent = self.indent * self.level
        self.lines += [indent + line if line else "" for line in lines]

    def _at_start(self) -> bool:
        if not self.lines or not self.lines[-1]:
            return True
        # the line that opened this block is indented less than the block
        return self._indent_of(self.lines[-1]) < self.level

    def _indent_of(self, line: str) -> int:
        return (len(line) - len(line.lstrip(" "))) // len(self.indent)
