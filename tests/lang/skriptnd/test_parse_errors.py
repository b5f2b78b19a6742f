"""What an error costs: one finding, and nothing of what stands around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.parse import ParsedSkriptnd, parse
from lamella.lang.skriptnd.parse.tokens import LEXER
from lamella.lang.skriptnd.rules import syntax

GOOD = sorted((Path(__file__).parent / "good").rglob("*.sknd"))


def read(text: str) -> ParsedSkriptnd:
    """Parse a text."""
    return parse(Source("text.sknd", text))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_one_wrong_word_makes_one_finding(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    text = text[: text.find("\n}\n", 800) + 3]
    tokens = LEXER.cut(Source("", text))
    for index in range(len(path.stem) % 5, tokens.end, 5):
        start, word = tokens.starts[index], tokens.texts[index]
        before, after = text[:start], text[start + len(word) :]
        for other in ("", f"{word} {word}", "$", " 7 "):
            found = errors(read(before + other + after).findings)
            assert len(found) <= 1, (other, *map(str, found))


def test_statements_around_a_broken_one_are_read() -> None:
    text = """
        operator o {
            @using { a = 1; b = ); c = 3; d = [1, 2; e = 5; }
            @compose {
                f = op{a = ]}(x);
                g = if a then { h = 1 +; yield h; } else { yield i; };
                j = op(k);
            }
        }
        graph p { @input { x: real[2; y: real[3]; } }
    """
    parsed = read(text)
    one, two = parsed.document.declarations
    assert [item.target for item in one.items("using") if isinstance(item, n.Using)] == [
        n.Result("a"),
        n.Result("c"),
        n.Result("e"),
    ]
    assert [item.results for item in one.items("compose") if isinstance(item, n.Component)] == [
        (n.Result("j"),)
    ]
    assert [item.name for item in two.parameters("input")] == ["y"]
    assert [finding.code for finding in parsed.findings] == [syntax.SYNTAX.code] * 5


@pytest.mark.parametrize(
    "text",
    [
        "operator o { @input { x: real; @output { y: real; } }",
        "operator o { @input { x: real; } @output { y: real; }",
        "operator o { @input { x: real; } @output { y: real; ",
    ],
)
def test_a_missing_brace_is_one_finding(text: str) -> None:
    parsed = read(text + " graph g { @input { z: real; } }")
    assert [finding.code for finding in parsed.findings] == [syntax.SYNTAX.code]
    one, two = parsed.document.declarations
    assert [item.name for item in (*one.parameters("input"), *one.parameters("output"))] == ["x", "y"]
    assert [item.name for item in two.parameters("input")] == ["z"]


def test_a_document_always_comes_back() -> None:
    for text in ("", "}", "operator", "import", "graph g", "@", "'"):
        assert isinstance(read(text).document, n.Document)
