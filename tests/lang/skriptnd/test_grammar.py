"""The page that shows the grammar and the parser that reads SkriptND judge alike."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from lark import Lark, Token
from lark.exceptions import UnexpectedInput

from lamella.base.diagnostic import Rule, errors
from lamella.base.source import Source
from lamella.lang import skriptnd
from lamella.lang.skriptnd import words
from lamella.lang.skriptnd.nodes import Document, Expr
from lamella.lang.skriptnd.parse import parse
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.write import write, write_expression
from tests.support.strategies.mutation import mutants
from tests.support.strategies.skriptnd import documents
from tests.support.strategies.skriptnd_expressions import expressions

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").rglob("*.sknd"))
BAD_SYNTAX = sorted((HERE / "bad").glob("skr0[0-2]*.sknd"))
PACKAGE = Path(str(skriptnd.__file__)).parents[2]
LIBRARY = sorted((PACKAGE / "ops").rglob("*.sknd"))
GRAMMAR = (Path(str(skriptnd.__file__)).parent / "grammar.lark").read_text(encoding="utf-8")
HOLES = re.compile(r"\\[{}]|\{([^}]*)\}")

UNGRAMMATICAL = {
    syntax.LITERAL_RANGE: "1e999",
    syntax.LIMIT: f"{'(' * 300}1{')' * 300}",
    syntax.HOLE: "'}'",
    syntax.NO_FOLD: "x - ..",
    syntax.FOLD_CONTINUED: "x + .. - 1",
    syntax.ACCESS_OPERAND: "(x + y)[i,]",
    syntax.DOUBLE_BLOCK: "1; } @using { b = 2",
}
"""What the parser rejects and a grammar does not, since it would have to count; with an example of each."""


@cache
def grammar() -> Lark:
    """The grammar as a parser."""
    return Lark(GRAMMAR, parser="lalr", start=["start", "expr"])


def derives(text: str, start: str = "start") -> bool:
    """Whether the grammar derives a text, and an expression for each hole of its strings."""
    try:
        tree = grammar().parse(text, start=start)
    except UnexpectedInput:
        return False
    leaves = (leaf for node in tree.iter_subtrees() for leaf in node.children if isinstance(leaf, Token))
    strings = (str(leaf)[1:-1] for leaf in leaves if leaf.type == "STRING")
    return all(derives(hole, "expr") for text in strings for hole in HOLES.findall(text) if hole.strip())


def judge(text: str) -> bool | None:
    """Whether the parser takes a text; None where such things are wrong that a grammar does not see."""
    codes = {finding.code for finding in errors(parse(Source("text.sknd", text)).findings)}
    return None if codes & {rule.code for rule in UNGRAMMATICAL} else not codes


def using(text: str) -> str:
    """A module with one expression."""
    return f"operator o {{ @using {{ a = {text}; }} }}"


def read(path: Path) -> str:
    """A text as it is, line ends and all."""
    return path.read_bytes().decode("utf-8")


@pytest.mark.parametrize("path", [*GOOD, *LIBRARY], ids=lambda path: path.stem)
def test_both_take_what_is_right(path: Path) -> None:
    assert derives(read(path))
    assert not errors(parse(Source(path.name, read(path))).findings)


@pytest.mark.parametrize("path", BAD_SYNTAX, ids=lambda path: path.stem)
def test_both_judge_wrong_syntax_alike(path: Path) -> None:
    assert judge(read(path)) in (None, derives(read(path)))


@pytest.mark.parametrize("rule", UNGRAMMATICAL, ids=lambda rule: rule.code)
def test_the_grammar_does_not_count(rule: Rule) -> None:
    text = using(UNGRAMMATICAL[rule])
    assert derives(text)
    assert {finding.code for finding in parse(Source("text.sknd", text)).findings} == {rule.code}


@given(documents())
def test_both_take_what_is_written(document: Document) -> None:
    text = write(document)
    assert judge(text)
    assert derives(text)


@given(expressions())
def test_both_take_written_expressions(node: Expr) -> None:
    assert derives(write_expression(node), "expr")


def test_both_judge_mutated_programs_alike() -> None:
    texts = [read(path) for path in GOOD if len(read(path)) < 5000]
    found = [(judge(text), derives(text), text) for text in mutants(texts, 400, seed=11)]
    assert {one for one, _, _ in found} >= {True, False}
    assert not [text for one, other, text in found if one not in (None, other)]


@pytest.mark.parametrize("word", sorted({*words.KEYWORDS, "_", *words.BUILT_INS, "f16", "shape"}))
def test_both_reserve_the_same_words(word: str) -> None:
    for text in (
        f"operator {word} {{}}",
        using(word),
        using(f"{word}(x)"),
        using(f"?{word}"),
        using(f"x.{word}"),
    ):
        assert judge(text) == derives(text), text
    for value in (word, f"{word}(x)", f"{word}<int>(x)", f"l: {word}(x)", f"{word}: f(x)"):
        text = f"graph g {{ @compose {{ {word} = {value}; y = {value}; }} }}"
        assert judge(text) == derives(text), text


@pytest.mark.parametrize("name", words.BLOCKS)
def test_both_have_the_same_blocks(name: str) -> None:
    assert derives(f"operator o {{ @{name} {{ }} }}")
    assert judge(f"operator o {{ @{name} {{ }} }}")


@pytest.mark.parametrize(
    "text",
    [
        *("a<-1", "a < -1", "a[i]<-1", "||i||", "| |i| |", "1..", "1...", "[1..(5)]", "[1 ..(5)]", "[1.5..(5)]"),
        *("a<?b", "a<?=b", "a**-b**c", "-a**b", "a ? b ? c : d", "a ?? b ? c : d", "a ? b : c ?? d", "x[]", "x[,]"),
        *("x[i,]", "x[i,j,]", "x[:]", "x[:,]", "x[::]", "x[:::]", "x[a:b:c]", "[a:]", "[(a,b)]", "[(a,b)..]"),
        *("[(a)..]", "x + ....", "x := ..", "x := ...", "x := y", "1e", "1e+", "1.e5", "1.x", "1x", ".5", "5."),
        *("'a' 'b'", "'a", "'a\\'", "'a\\''", '"\\"', "'{a}'", "'{a'", "'{a b}'", "'{}'", "x.shape[0]", "x.y"),
        *("`exp`(x)", "exp(x)", "exp()", "`foo`(x)", "exp", "T()", "int()", "num(x)", "inf(x)", "nn.relu(x)"),
    ],
)  # fmt: skip
def test_both_judge_pitfalls_alike(text: str) -> None:
    assert judge(using(text)) in (None, derives(using(text)))


@pytest.mark.parametrize(
    "text",
    [
        *("n < 3", "f<T>(x)", "f<T, int>{a=1}(x)", "f < T > (x)", "a < b > c", "a < b > (c)", "f{}(x)", "f{a=1,}(x)"),
        *("f{a: 1, b=2}(x)", "f{a:: 1}(x)"),
        *("f{,}(x)", "f16(x)", "f16{a=1}(x)", "l: f16(x)", "f(x,)", "f(~)", "f()", "f", "{ yield x; }", "{ x; }"),
        *("l: { yield x; }", "l: x", "a.b.c(x)", "a.shape(x)", "a.shape", "f # c\n (x)", "if a then b", "T(x) + 1"),
        *("if a then b else c", "if if a then b else c then d else e", "do f(x)", "for x : y do..(i ->) f(x)"),
        *("with a = 1, b: real[] = 2.0 while c do f(a)", "do..() f(x)", "do..(3) f(x) while g(x)"),
        *("unroll..(i -> 3) x", "with a = 1 f(a)", "for x do f(x)", "while a b"),
    ],
)  # fmt: skip
def test_both_judge_components_alike(text: str) -> None:
    whole = f"graph g {{ @compose {{ y = {text}; }} }}"
    assert judge(whole) == derives(whole)
