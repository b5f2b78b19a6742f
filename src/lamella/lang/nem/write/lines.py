"""How a long line is broken."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base import lines
from lamella.base.lines import INDENT
from lamella.base.source import Notes

WIDTH = 110


class Lines(lines.Lines):
    """A text whose statements are given as words."""

    def put(self, notes: Notes, groups: Sequence[Sequence[str]], apart: bool = False) -> None:
        """A statement with its notes; `groups` are its words, divided where a long line is broken first."""
        self.place(notes, self._laid_out([group for group in groups if group]), apart)

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
