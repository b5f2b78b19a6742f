"""Module DSL nodes to text and back: equal nodes, equal text, every comment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.module import nodes as n
from lamella.lang.module.parse import parse
from lamella.lang.module.parse.tokens import LEXER
from lamella.lang.module.write import write, write_expression
from tests.support.strategies.module import documents
from tests.support.strategies.module_expressions import conditions, expressions

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").rglob("*.module"))


def read(text: str) -> n.Document:
    """The document of a text without errors."""
    parsed = parse(Source("text.module", text))
    assert not errors(parsed.findings), "\n".join(map(str, parsed.findings))
    return parsed.document


def comments(text: str) -> Counter[str]:
    """The comments of a text, as often as each occurs."""
    return Counter(comment.text.rstrip() for comment in LEXER.cut(Source("", text)).comments)


@given(documents())
def test_what_is_written_reads_back(document: n.Document) -> None:
    text = write(document)
    again = read(text)
    assert again == document
    assert write(again) == text
    assert comments(text) == comments(write(again))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_right_programs_are_kept(path: Path) -> None:
    text = path.read_bytes().decode("utf-8")
    document = read(text)
    written = write(document)
    assert read(written) == document
    assert write(read(written)) == written
    assert comments(written) == comments(text)
    assert not [line for line in written.split("\n") if line != line.rstrip()]


def alone(expression: n.Expr) -> n.Expr:
    """What the written text of an expression reads back as."""
    (item,) = read(f"module A(a={write_expression(expression)}):\n").items
    assert isinstance(item, n.Module)
    (param,) = item.params or ()
    assert param.default is not None
    return param.default


@given(expressions() | conditions())
def test_expressions_read_back(expression: n.Expr) -> None:
    assert alone(expression) == expression


EXAMPLE = """\
# license

\"\"\"Layers.\"\"\"

# imports
import std.primitives  # all

# one
module A(
  d: int,  # width
  # above
  e: int = 4
):  # head
  # the docstring stood here
  let:
    a = d  # behind

    # below a blank line
    constraint:
      # always
      a > 0, "positive"

  forward:  # forwards
    # the input
    in: x: [B, d]  # tokens
    graph:
      # first
      x -> relu() -> h  # second

      if a > 1:  # wide
        h -> y
        # end of the arm
      elif a > 2:
        ...
      # before else
      else:  # narrow
        h -> f() -> y
      # end of the graph
  # end of the module

# end of the file
"""


def test_comments_stay_where_they_are() -> None:
    """Only those beside the head of a section that is no node go to its first line, or behind its block."""
    written = write(read(EXAMPLE))
    assert comments(written) == comments(EXAMPLE)
    kept = written.split("\n")
    moved = [line.strip() for line in EXAMPLE.split("\n") if line not in kept]
    assert moved == ["# the docstring stood here", "# below a blank line", "# end of the graph"]
    assert write(read(written)) == written
