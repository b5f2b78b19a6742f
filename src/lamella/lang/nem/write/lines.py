"""Lines with their indents, blank lines and comments."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.source import Notes

INDENT = "    "
WIDTH = 110


class Lines:
    """A text that grows line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.level = 0

    def text(self) -> str:
        """All lines."""
        return "".join(f"{line}\n" for line in self.lines)

    def put(self, notes: Notes, groups: Sequence[Sequence[str]], apart: bool = False) -> None:
        """A statement with its notes; `groups` are its words, divided where a long line is broken first."""
        self.above(notes, apart)
        self.lines += self._laid_out([group for group in groups if group])
        if notes.behind:
            self.lines[-1] += f"  {notes.behind}"

    def open_block(self, notes: Notes, head: str, apart: bool = False) -> None:
        """The line that opens a block."""
        self.put(notes, [[head]], apart)
        self.level += 1

    def close_block(self, notes: Notes, end: str) -> None:
        """The line that closes a block, after the comments at the block's end."""
        if notes.above:
            self.above(notes)
        self.level -= 1
        self.put(Notes(behind=notes.behind), [[end]])

    def above(self, notes: Notes, apart: bool = False) -> None:
        """The blank line and the comments before a statement; a block does not begin with a blank line."""
        if (notes.blank or apart) and not self._at_start():
            self.lines.append("")
        self.comments(notes.above)

    def comments(self, lines: Sequence[str]) -> None:
        """Comments on lines of their own."""
        indent = INDENT * self.level
        self.lines += [indent + line if line else "" for line in lines]

    def _at_start(self) -> bool:
        if not self.lines or not self.lines[-1]:
            return True
        # the line that opened this block is indented less than the block
        return self._indent_of(self.lines[-1]) < self.level

    @staticmethod
    def _indent_of(line: str) -> int:
        return (len(line) - len(line.lstrip(" "))) // len(INDENT)

    def _laid_out(self, groups: Sequence[Sequence[str]]) -> list[str]:
        """One line where it fits; else a line for each group, and more where a group is too long itself."""
        indent = INDENT * self.level
        whole = indent + " ".join(word for group in groups for word in group)
        if len(whole) <= WIDTH or sum(map(len, groups)) <= 1:
            return [whole]
        found: list[str] = []
        for group in groups:
            found += _filled(group, indent + INDENT if found else indent, indent + INDENT)
        return found


def _filled(words: Sequence[str], first: str, others: str) -> list[str]:
    """Words in lines that are as full as they may be."""
    found: list[str] = []
    line, length = [first + words[0]], len(first) + len(words[0])
    for word in words[1:]:
        if length + 1 + len(word) > WIDTH:
            found.append(" ".join(line))
            line, length = [others + word], len(others) + len(word)
        else:
            line.append(word)
            length += 1 + len(word)
    return [*found, " ".join(line)]
