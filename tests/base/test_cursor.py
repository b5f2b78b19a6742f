"""The lexer and the cursor, on a small language of sums."""

from __future__ import annotations

import gc
import math
import random
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.cursor import BAD, END, Cursor, Lexer, SyntaxProblem
from lamella.base.diagnostic import Rule
from lamella.base.gc import gc_paused
from lamella.base.source import Source

SYNTAX = Rule("X001", "Syntax", "expected {wanted} {where}, found {found}")
UNREADABLE = Rule("X002", "Lexis", "'{text}' means nothing")
LEXER = Lexer({"int": r"[0-9]++", "comment": r"//[^\n]*+", "sign": r"[-+*/()]"})
LEVELS = {"+": 1, "-": 1, "*": 2}


class Sums(Cursor):
    """Evaluates sums while it reads them."""

    def __init__(self, text: str) -> None:
        source = Source("sum", text)
        super().__init__(source, LEXER.cut(source), SYNTAX, UNREADABLE)

    def whole(self) -> int:
        """A sum and nothing else."""
        value = self.sum()
        self.expect_kind(END, "the end", "after a sum")
        return value

    def sum(self) -> int:
        """Operands with signs between them."""
        return self.chain(self.operand(), LEVELS, self.operand, self.evaluate)

    def operand(self) -> int:
        """A number or a sum in parentheses."""
        if not self.accept("("):
            return int(self.texts[self.expect_kind("int", "a number", "here")])
        self.descend("of a sum")
        value = self.sum()
        self.depth_left += 1
        self.expect(")", "after a sum")
        return value

    @staticmethod
    def evaluate(first: int, rest: list[tuple[str, int]]) -> int:
        """All operators of a chain are of one level."""
        if rest[0][0] == "*":
            return math.prod([first, *(value for _, value in rest)])
        return first + sum(value if sign == "+" else -value for sign, value in rest)


def messages(text: str) -> list[str]:
    """What is found in a text."""
    cursor = Sums(text)
    with pytest.raises(SyntaxProblem):
        cursor.whole()
    return [finding.message for finding in cursor.findings]


@given(st.recursive(st.integers(0, 99).map(str), lambda inner: st.lists(inner, min_size=2, max_size=4).flatmap(
    lambda parts: st.lists(st.sampled_from("+-*"), min_size=len(parts) - 1, max_size=len(parts) - 1).map(
        lambda signs: "(" + "".join(f" {word}" for pair in zip(parts, [*signs, ""], strict=True) for word in pair) + ")"
    ))))  # fmt: skip
def test_chains_have_the_value_that_python_gives_them(text: str) -> None:
    assert Sums(text).whole() == eval(text)


def test_long_chains_do_not_recurse() -> None:
    chance = random.Random(1)
    text = "1" + "".join(f"{chance.choice('+-')}{chance.randint(1, 9)}*1" for _ in range(50_000))
    total = sum(int(part.removesuffix("*1")) for part in text.replace("-", "+-").split("+"))
    assert Sums(text).whole() == total


def test_tokens_and_comments_are_told_apart() -> None:
    tokens = LEXER.cut(Source("", " 12 // a\n+$$ 3"))
    assert tokens.texts[: tokens.end] == ["12", "+", "$", "$", "3"]
    assert tokens.kinds[: tokens.end + 1] == ["int", "sign", BAD, BAD, "int", END]
    assert tokens.starts[: tokens.end + 1] == [1, 9, 10, 11, 13, 14]
    assert [(comment.start, comment.text) for comment in tokens.comments] == [(4, "// a")]


def test_the_end_is_never_passed() -> None:
    cursor = Sums("1")
    assert [cursor.next() for _ in range(4)] == [0, 1, 1, 1]
    assert [cursor.ahead(distance) for distance in (0, 1, 6)] == ["", "", ""]
    assert cursor.span_from(0).text == "1"


def test_problems_say_what_was_found() -> None:
    assert messages("1 +") == ["expected a number here, found the end of the file"]
    assert messages("(1") == ["expected ')' after a sum, found the end of the file"]
    assert messages("1 2") == ["expected the end after a sum, found '2'"]
    assert messages("1 + $$ $") == ["'$$' means nothing"]
    assert messages("$" * 100) == [f"'{'$' * 40}' means nothing"]
    assert messages("(" * 201 + "1") == ["expected less nesting of a sum, found '1'"]


def test_the_collector_is_given_back() -> None:
    def fail() -> None:
        with gc_paused(), gc_paused():
            seen.append(gc.isenabled())
            raise KeyError

    seen = [gc.isenabled()]
    with pytest.raises(KeyError):
        fail()
    assert [*seen, gc.isenabled()] == [True, False, True]


@pytest.fixture
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is frozen, as in a process that runs no tests."""
    monkeypatch.setattr("lamella.base.gc._frozen", [])
    gc.unfreeze()
    yield
    gc.freeze()


def test_what_was_made_meanwhile_is_old_and_its_cycles_are_found(thawed: None) -> None:
    class Node:
        other: Node

    with gc_paused():
        made = Node()
        made.other = made
        left = weakref.ref(made)
        del made
    gc.collect(0)  # what is young
    assert left() is not None
    gc.collect()
    assert left() is None


def test_what_somebody_froze_stays_frozen(thawed: None) -> None:
    gc.freeze()
    count = gc.get_freeze_count()
    with gc_paused():
        pass
    assert gc.get_freeze_count() == count > 0
