"""Every declaration that the specification prints, where its text is at hand, and ours with the same shapes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import pytest

from lamella.base.diagnostic import errors
from lamella.base.source import Span, Trivia
from lamella.lang.module import nodes as n
from tests.support.lang.module.parsed import SHAPES, read, right

FOLDER = os.environ.get("LAMELLA_SPECIFICATIONS", "")
SPECIFICATION = Path(FOLDER) / "module-dsl.md"
NEEDED = pytest.mark.skipif(
    not FOLDER, reason="LAMELLA_SPECIFICATIONS does not name the folder of the specifications"
)
FENCE = re.compile(r"^```(.*)\n((?:(?!```).*\n)*)```", re.MULTILINE)
HEAD = re.compile(
    r"^(?:abstract )?(?:module|block|model|primitive|recipe) +\w+ *(?:[(:]|extends)", re.MULTILINE
)
AFTER = re.compile(r"^(?![#)])\S", re.MULTILINE)
COMMENT = re.compile(r"#.*")


@cache
def printed() -> tuple[str, ...]:
    """The declarations of the specification."""
    text = SPECIFICATION.read_text(encoding="utf-8")
    return tuple(found for tag, block in FENCE.findall(text) if not tag for found in declarations(block))


def declarations(block: str) -> Iterator[str]:
    """The declarations of a block of code, each up to the next line at the margin."""
    for head in HEAD.finditer(block):
        end = AFTER.search(block, head.end())
        yield block[head.start() : end.start() if end else len(block)]


def is_stubbed(text: str) -> bool:
    """Whether `...` stands in a declaration."""
    return "..." in COMMENT.sub("", text)


def shape(node: object) -> object:
    """What is left of a node without its names and numbers; a run of equal items is one."""
    if isinstance(node, tuple):
        shapes = [shape(item) for item in node]
        return tuple(item for index, item in enumerate(shapes) if item not in shapes[:index])
    if not is_dataclass(node) or isinstance(node, Span | Trivia):
        return bool(node) if isinstance(node, bool) or node is None else type(node).__name__
    parts = (
        shape(getattr(node, field.name))
        for field in fields(node)
        if field.name not in ("span", "notes", "doc")
    )
    return (type(node).__name__, *parts)


def statements(node: object) -> Iterator[object]:
    """The nodes of a document that stand on a line of their own."""
    if isinstance(node, tuple):
        for item in node:
            yield from statements(item)
    elif is_dataclass(node) and not isinstance(node, type):
        if hasattr(node, "notes"):
            yield node
        for field in fields(node):
            if field.name not in ("span", "notes"):
                yield from statements(getattr(node, field.name))


LINES = (
    n.Flow,
    n.Param,
    n.Port,
    n.ConfigParam,
    n.Let,
    n.Constraint,
    n.Constant,
    n.Mapping,
    n.Equation,
    n.Selection,
)


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: path.stem)
def test_declarations_of_every_shape_are_read(path: Path) -> None:
    document = right(path.read_text(encoding="utf-8"))
    assert document.items
    assert not any(isinstance(item, n.Broken) for item in document.items)


def test_there_are_enough_of_them() -> None:
    items = [item for path in SHAPES for item in right(path.read_text(encoding="utf-8")).items]
    assert len(items) == 170
    kinds = {type(item).__name__ for item in items}
    assert kinds == {"Module", "Primitive", "Recipe"}


@NEEDED
def test_all_declarations_of_the_specification_are_read() -> None:
    whole = [text for text in printed() if not is_stubbed(text)]
    assert len(printed()) == 182
    assert len(whole) == 152
    for text in whole:
        parsed = read(text)
        assert not parsed.findings, "\n".join(map(str, parsed.findings))
        assert len(parsed.document.items) == 1


@NEEDED
def test_its_unfinished_declarations_are_read_up_to_what_is_missing() -> None:
    for text in filter(is_stubbed, printed()):
        parsed = read(text)
        (item,) = parsed.document.items
        assert isinstance(item, n.Module | n.Primitive)
        for finding in errors(parsed.findings):
            assert finding.code == "E001"
            assert finding.span.text in ("...", "tensor_type")


@NEEDED
def test_our_declarations_have_all_shapes_of_those_of_the_specification() -> None:
    documents = [read(text).document for text in printed() if not is_stubbed(text)]
    ours = [right(path.read_text(encoding="utf-8")) for path in SHAPES]
    known = {
        shape(node) for document in ours for node in statements(document.items) if isinstance(node, LINES)
    }
    theirs = {
        shape(node)
        for document in documents
        for node in statements(document.items)
        if isinstance(node, LINES)
    }
    assert len(theirs) > 100
    assert theirs <= known
