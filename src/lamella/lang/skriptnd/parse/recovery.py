"""How reading goes on after an error; one mistake makes one finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lamella.base.cursor import END, SyntaxProblem
from lamella.lang.skriptnd.parse.formulas import Formulas
from lamella.lang.skriptnd.parse.lexis import BLOCK, TooDeep

T = TypeVar("T")
DEFINITION_WORDS = frozenset(("operator", "graph", "public", "import"))
BRACES = {"{": 1, "}": -1}


class Recovery(Formulas):
    """Finds the next statement after one that cannot be read."""

    def at_end(self) -> bool:
        """Whether something begins that cannot stand in a block: another one, or a definition."""
        return self.kind == END or self.kind == BLOCK or self.text in DEFINITION_WORDS

    def recovered(self, parse: Callable[[], T], depth: int) -> T | None:
        """A statement of a block, or None where it cannot be read and reading goes on behind it."""
        start = self.index
        try:
            return parse()
        except TooDeep:
            raise
        except SyntaxProblem:
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
