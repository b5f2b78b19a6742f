"""What the tests of the parser share: texts read into nodes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from lamella.base.diagnostic import errors
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.module import nodes as n
from lamella.lang.module.parse import ParsedModule, parse

HERE = Path(__file__).parents[3] / "lang" / "module"
GOOD = sorted((HERE / "good").glob("*.module"))
SHAPES = sorted((HERE / "specification").glob("*.module"))
BAD = sorted((HERE / "bad").glob("e001_*.module"))
EXPECT = re.compile(r"#\s*expect\s+((?:[EW]\d{3}[ ,]*)+)")


def read(text: str, limits: Limits | None = None) -> ParsedModule:
    """Parse a text."""
    return parse(Source("text.module", text), limits or Limits())


def right(text: str) -> n.Document:
    """The document of a text without findings."""
    parsed = read(text)
    assert not parsed.findings, "\n".join(map(str, parsed.findings))
    return parsed.document


def codes(text: str, limits: Limits | None = None) -> list[str]:
    """The codes of the errors."""
    return [finding.code for finding in errors(read(text, limits).findings)]


def places(text: str) -> list[tuple[int, int, str]]:
    """Line, column and message of each finding."""
    return [(item.span.line, item.span.column, item.message) for item in read(text).findings]


def indented(text: str, width: int) -> str:
    """Lines indented by a number of spaces."""
    return "".join(" " * width + line + "\n" for line in text.splitlines())


def module(text: str) -> n.Module:
    """The only declaration of a text, a module."""
    (found,) = right(text).items
    assert isinstance(found, n.Module)
    return found


def body(text: str) -> n.Module:
    """A module with these sections."""
    return module("module M():\n" + indented(text, 2))


def forward(text: str) -> n.Forward:
    """A forward section with these parts."""
    found = body("forward:\n" + indented(text, 2)).forward
    assert found is not None
    return found


def statement(text: str) -> n.Statement:
    """The only statement of a graph."""
    graph = forward("graph:\n" + indented(text, 2)).graph
    assert graph is not None
    (found,) = graph
    return found


def flow(text: str) -> n.Flow:
    """The only statement of a graph, a data flow."""
    found = statement(text)
    assert isinstance(found, n.Flow)
    return found


def value(text: str) -> n.Expr:
    """The value of a let."""
    (found,) = body(f"let:\n  a = {text}").bindings
    assert isinstance(found, n.Let)
    return found.value


def param(text: str) -> n.Param:
    """The only line of `params:`."""
    (found,) = body(f"params:\n  {text}").tensors
    return found


def primitive(text: str) -> n.Primitive:
    """A primitive with these sections."""
    (found,) = right("primitive p:\n" + indented(text, 2)).items
    assert isinstance(found, n.Primitive)
    return found


def expectations(text: str) -> Counter[tuple[int, str]]:
    """Lines and codes that the markers of a program announce."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(text.split("\n"), 1):
        for match in EXPECT.finditer(line):
            found.update((number, code) for code in re.findall(r"[EW]\d{3}", match[1]))
    return found
