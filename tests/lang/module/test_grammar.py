"""The page that shows the grammar and the parser that reads the Module DSL judge alike."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from lark import Lark, Token
from lark.exceptions import LarkError
from lark.lark import PostLex

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.module import nodes as n
from lamella.lang.module.parse import __file__ as parser_file
from lamella.lang.module.parse import parse
from lamella.lang.module.write import write
from tests.support.strategies.module import documents
from tests.support.strategies.mutation import mutants

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").rglob("*.module"))
BAD = sorted((HERE / "bad").glob("*.module"))
GRAMMAR = (Path(str(parser_file)).parents[1] / "grammar.lark").read_text(encoding="utf-8")
OPENING, CLOSING = frozenset("([{"), frozenset(")]}")

UNGRAMMATICAL = {
    "stands twice": "module A():\n  let:\n  let:\n",
    "beyond the limit": f"module A(a={'(' * 300}1{')' * 300}):",
    "too large": "module A(a=9223372036854775808):",
    "a single size": "module A():\n  params:\n    a: [fp32] x B()\n",
}
"""What the parser rejects and a grammar does not, since it would have to count; with an example of each."""


class Layout(PostLex):
    """Newlines to the ends of lines, and changes of indentation to blocks; a text begins with a newline."""

    ends = ("_NL_ANEW", "_NL_LAST")
    always_accept = ("_NL", "_NL_ANEW", "_NL_AT", "_NL_ELSE", "_NL_LAST")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """The tokens of a text with its layout."""
        levels, depth, is_flow = [0], 0, False
        last = ""
        for token in stream:
            if token.type not in self.always_accept:
                depth = max(0, depth + (token.value in OPENING) - (token.value in CLOSING))
                is_flow = is_flow or (token.value == "->" and not depth)
                last = token.value
                yield token
                continue
            width = self.width(token)
            is_deeper = width > levels[-1] and not last.endswith(":")
            goes_on = token.type == "_NL_AT" and last and (is_flow or is_deeper)
            if goes_on or (depth and token.type not in self.ends):
                continue
            depth = 0
            yield from self.line(token, levels, width, bool(last))
            is_flow = False
        yield from (Token("_DEDENT", "") for _ in levels[1:])

    def line(self, token: Token, levels: list[int], width: int, is_end: bool) -> Iterator[Token]:
        """What stands between two lines."""
        if is_end:
            yield Token("_NL", token.value)
        if token.type == "_NL_LAST":
            return
        yield from self.blocks(levels, width)
        if token.type != "_NL_ELSE":
            yield Token("_LINE", "")

    def width(self, token: Token) -> int:
        """How far the line behind a newline is indented."""
        lead = token.value.replace("\r", "\n").rpartition("\n")[2]
        return -1 if "\t" in lead else len(lead)

    def blocks(self, levels: list[int], width: int) -> Iterator[Token]:
        """Open or close blocks up to an indentation."""
        if width > levels[-1]:
            levels.append(width)
            yield Token("_INDENT", "")
        while width < levels[-1]:
            levels.pop()
            if width > (levels[-1] if levels else 0) or width < 0:
                raise LarkError("a line between two blocks, or a tab")
            yield Token("_DEDENT", "")


@cache
def grammar() -> Lark:
    """The grammar as a parser."""
    return Lark(GRAMMAR, parser="lalr", postlex=Layout())


def derives(text: str) -> bool:
    """Whether the grammar derives a text."""
    try:
        grammar().parse(f"\n{text}\n")
    except LarkError:
        return False
    return True


def judge(text: str) -> bool | None:
    """Whether the parser takes a text; None where only such things are wrong that a grammar does not see."""
    found = errors(parse(Source("text.module", text)).findings)
    seen = [item for item in found if not any(words in item.message for words in UNGRAMMATICAL)]
    return None if found and not seen else not found


def read(path: Path) -> str:
    """A text as it is, line ends and all."""
    return path.read_bytes().decode("utf-8")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_both_take_what_is_right(path: Path) -> None:
    assert derives(read(path))
    assert judge(read(path))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_both_judge_wrong_programs_alike(path: Path) -> None:
    assert judge(read(path)) in (None, derives(read(path)))


@pytest.mark.parametrize("words", UNGRAMMATICAL)
def test_the_grammar_does_not_count(words: str) -> None:
    text = UNGRAMMATICAL[words]
    assert derives(text)
    assert judge(text) is None
    assert errors(parse(Source("text.module", text)).findings)


@given(documents())
def test_both_take_what_is_written(document: n.Document) -> None:
    text = write(document)
    assert judge(text)
    assert derives(text)


def test_both_judge_mutated_programs_alike() -> None:
    texts = [read(path) for path in GOOD if len(read(path)) < 2000]
    found = [(judge(text), derives(text), text) for text in mutants(texts, 500, seed=7)]
    assert {one for one, _, _ in found} >= {True, False}
    assert not [text for one, other, text in found if one not in (None, other)]


@pytest.mark.parametrize(
    "text",
    [
        "module A():\n\tlet:\n",
        "module A():\n    let:\n  params:\n",
        "  module A():\n",
        "module A(a,, b):\n",
        "module A(a, ...):\n",
        "module A():\n  forward:\n    graph:\n      x -> relu()\n",
        "module A():\n  forward:\n    graph:\n      x -> (a, b) -> relu() -> y\n",
        "module A():\n  forward:\n    graph:\n      (a) + b -> y\n",
        "module A():\n  forward:\n    in: x\n",
        "module A():\n  forward:\n    d_x: [B]\n",
        "module A():\n  params:\n    w: [d] y B()\n",
        "module A():\n  let:\n    a = .5\n",
        "module A():\n  let:\n    a = 5.\n",
        'module A():\n  let:\n    a = "\\q"\n',
        "primitive a:\n  - b\n",
        "recipe a:\n  -\n",
        "module A():\n  hf_mapping:\n    w: fuse(dim=0)\n",
        "export setting a\n",
        "module A(a=[...]):\n",
        "module A(a=[0, ...]):\n",
        "module A(a=[0, ..., ..., 2]):\n",
        "module A(a={b: 1, 2}):\n",
        "module A(a={1, b: 2}):\n",
        "module A(a={1: 2}):\n",
        "topology a:\n",
    ],
)
def test_both_refuse(text: str) -> None:
    assert judge(text) is False
    assert not derives(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment",
        "module A(): forward: graph: x -> y",
        "module A():\n  forward:\n    graph:\n      if a: x -> y\n      else if b: ...\n      else: z -> y\n",
        "module if(else=1, in: int = 2,):\r\n  params:\r\n    if: [in]\r\n      @frozen\r\n",
        "module A():\n  forward:\n    graph:\n      in -> f\n   -> out.in()\n # c\n  -> y\n @frozen\n",
        "primitive a:\n  backward:\n    out: d_x = f(x)\n    a, b = c\n    _\n  impl: any text [ at all\n",
        "from a import (B, C as D,)\nimport a.{B,}\nimport a.*\n",
        "module A(a: [enum(b, c)]? = None, d: [enum(e)] = [e]):\n",
        "export *\nexport preset a\n",
        'module A(a=[0, ..., -2], b={}, c={d: {1, 2,}, "e f": [1, ..., 3, 5], if: 3,}):\n',
        'topology:\n  dp_size: 8\ngroups:\n  "dp": devices within same TP/PP position\n  ep: all\n',
        "verify_backward: shapes: {B: 2}\n",
    ],
)
def test_both_take(text: str) -> None:
    assert judge(text)
    assert derives(text)
