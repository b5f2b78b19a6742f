"""Canonical text: what is written is read back equal, and written again the same."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.parse import parse
from lamella.lang.skriptnd.parse.tokens import LEXER
from lamella.lang.skriptnd.write import WIDTH, write, write_expression
from tests.support.strategies.skriptnd import documents
from tests.support.strategies.skriptnd_expressions import expressions

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").rglob("*.sknd"))
COMMENT = re.compile(r"#[^\n]*")


def read(text: str) -> n.Document:
    """The document of a text without errors."""
    parsed = parse(Source("text.sknd", text))
    assert not errors(parsed.findings), "\n".join(map(str, parsed.findings))
    return parsed.document


def comments(text: str) -> list[str]:
    """The comments of a text, in no order."""
    found = LEXER.cut(Source("text.sknd", text)).comments
    return sorted(comment.text.rstrip() for comment in found)


def expression(text: str) -> n.Expr:
    """The value of a helper symbol."""
    (using,) = read(f"operator o {{ @using {{ a = {text}; }} }}").declarations[0].items("using")
    assert isinstance(using, n.Using)
    return using.value


@given(documents())
def test_a_written_document_is_read_back_equal(document: n.Document) -> None:
    text = write(document)
    again = read(text)
    assert again == document
    assert write(again) == text


@given(expressions())
def test_a_written_expression_is_read_back_equal(node: n.Expr) -> None:
    assert expression(write_expression(node)) == node


@given(expressions())
def test_parentheses_are_needed(node: n.Expr) -> None:
    """Without any one pair of parentheses around an operand, the text means something else, or nothing."""
    text = write_expression(node)
    for start, end in _pairs(text):
        bare = text[:start] + text[start + 1 : end] + text[end + 1 :]
        parsed = parse(Source("text.sknd", f"operator o {{ @using {{ a = {bare}; }} }}"))
        if not errors(parsed.findings):
            (using,) = parsed.document.declarations[0].items("using")
            assert isinstance(using, n.Using)
            assert using.value != node, (text, bare)


def _pairs(text: str) -> list[tuple[int, int]]:
    """The places of parentheses that enclose an operand, not those of a call, a count or a zip.

    A substitution as an operand and a fold that is expanded are set apart for the reader, needed or not.
    """
    tokens = LEXER.cut(Source("text.sknd", text))
    opened: list[int] = []
    found = []
    for index in range(tokens.end):
        if tokens.texts[index] == "(":
            opened.append(index)
        elif tokens.texts[index] == ")":
            first = opened.pop()
            before = tokens.kinds[first - 1] if first else ""
            is_expanded = tokens.texts[index - 1] == "..." and tokens.texts[index + 1] == ".."
            is_operand = (
                not is_expanded
                and before not in ("name", "builtin")
                and tokens.texts[max(first - 1, 0)] != ".."
            )
            if is_operand and not {",", "<-"} & set(tokens.texts[first:index]):
                found.append((tokens.starts[first], tokens.starts[index]))
    return found


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_examples_are_canonical(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert write(read(text)) == text


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_every_comment_survives(path: Path) -> None:
    chance = random.Random(path.stem)
    text = path.read_text(encoding="utf-8")
    tokens = LEXER.cut(Source("text.sknd", text))
    places = sorted(chance.sample(range(tokens.end), min(40, tokens.end)), reverse=True)
    for number, token in enumerate(places):
        start = tokens.starts[token]
        text = f"{text[:start]}# comment {number}\n{chance.choice(('', chr(10)))}{text[start:]}"
    written = write(read(text))
    assert comments(written) == comments(text)
    assert read(written) == read(text)
    assert write(read(written)) == written


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("(a + b) + c", "(a + b) + c"),
        ("(a * b) + (c * d)", "a * b + c * d"),
        ("((a)) ?? ((b))", "a ?? b"),
        ("-(2 ** 2)", "-2 ** 2"),
        ("(-2) ** 2", "(-2) ** 2"),
        ("(x * ..) * b", "x * .. * b"),
        ("(x * ..) / b", "(x * ..) / b"),
        ("(x + ..) * b", "(x + ..) * b"),
        ("(c ? a : b) ?? d", "(c ? a : b) ?? d"),
        ("[(1) ..(5)]", "[1 ..(5)]"),
        ("[(x + ...)..]", "[(x + ...)..]"),
        ("exp( x )", "`exp`(x)"),
        ("a <? b >? c", "a << b >> c"),
        ("'it' ' is'", '"it is"'),
        ("'say \"x\"'", "'say \"x\"'"),
        ("1.50", "1.5"),
        ("007", "7"),
    ],
)
def test_canonical_expressions(text: str, canonical: str) -> None:
    assert write_expression(expression(text)) == canonical


@given(documents())
def test_long_lines_cannot_be_broken(document: n.Document) -> None:
    for line in write(document).splitlines():
        if len(line) > WIDTH and "#" not in line:
            words = re.sub(r"\"[^\"]*\"|'[^']*'", lambda found: "x" * len(found[0]), line.strip()).split(" ")
            assert sum(len(word) > 3 for word in words[:-1]) <= 2, line
