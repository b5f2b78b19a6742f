"""The page that shows the grammar and the parser that reads NEM judge alike."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from lark import Lark
from lark.exceptions import UnexpectedInput

from lamella.base.diagnostic import Rule, errors
from lamella.base.source import Source
from lamella.lang import nem
from lamella.lang.nem import rules, words
from lamella.lang.nem.nodes import Document
from lamella.lang.nem.parse import parse
from lamella.lang.nem.write import write
from tests.support.strategies.mutation import mutants
from tests.support.strategies.nem import documents

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").rglob("*.nem"))
BAD_SYNTAX = sorted((HERE / "bad").glob("syntax_*.nem"))
GRAMMAR = (Path(str(nem.__file__)).parent / "grammar.lark").read_text(encoding="utf-8")

UNGRAMMATICAL = {
    rules.LITERAL_RANGE: "const a = 9223372036854775808",
    rules.LIMIT: f"const a = {'(' * 300}1{')' * 300}",
    rules.BUFFER_PROPERTY: "buffer A : L2 (align=1)",
    rules.DOUBLE_TYPE: "a = region(A, 0, 1) elem=i8, elem=i8",
    rules.DUPLICATE_ATTRIBUTE: "relu.sync in a out a deps=[] deps=[]",
    rules.MOVE_OPERANDS: "transfer.sync(dst=a)",
    rules.DOUBLE_SETTING: "device a { topology {} topology {} }",
}
"""What the parser rejects and a grammar does not, since it would have to count; with an example of each."""


@cache
def grammar() -> Lark:
    """The grammar as a parser."""
    return Lark(GRAMMAR, parser="lalr")


def derives(text: str) -> bool:
    """Whether the grammar derives a text."""
    try:
        grammar().parse(text)
    except UnexpectedInput:
        return False
    return True


def judge(text: str) -> bool | None:
    """Whether the parser takes a text; None where only such things are wrong that a grammar does not see."""
    codes = {finding.code for finding in errors(parse(Source("text.nem", text)).findings)}
    return None if codes and codes <= {rule.code for rule in UNGRAMMATICAL} else not codes


def read(path: Path) -> str:
    """A text as it is, line ends and all."""
    return path.read_bytes().decode("utf-8")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_both_take_what_is_right(path: Path) -> None:
    assert derives(read(path))
    assert not errors(parse(Source(path.name, read(path))).findings)


@pytest.mark.parametrize("path", BAD_SYNTAX, ids=lambda path: path.stem)
def test_both_judge_wrong_syntax_alike(path: Path) -> None:
    assert judge(read(path)) in (None, derives(read(path)))


@pytest.mark.parametrize("rule", UNGRAMMATICAL, ids=lambda rule: rule.code)
def test_the_grammar_does_not_count(rule: Rule) -> None:
    text = UNGRAMMATICAL[rule]
    assert derives(text)
    assert {finding.code for finding in parse(Source("text.nem", text)).findings} == {rule.code}


@given(documents())
def test_both_take_what_is_written(document: Document) -> None:
    text = write(document)
    assert judge(text)
    assert derives(text)


def test_both_judge_mutated_programs_alike() -> None:
    texts = [read(path) for path in GOOD if len(read(path)) < 3000]
    found = [(judge(text), derives(text), text) for text in mutants(texts, 300, seed=7)]
    assert {one for one, _, _ in found} >= {True, False}
    assert not [text for one, other, text in found if one not in (None, other)]


def test_the_grammar_reserves_the_same_words() -> None:
    for word in sorted(words.RESERVED):
        assert not derives(f"const {word} = 1")
        assert derives(f"let a = {word}") == (word not in words.KEYWORDS)
