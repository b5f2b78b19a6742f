"""Modules that are not read whole: what they hold, and one operator at a time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang import skriptnd
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.parse import outline, parse, parse_operator
from lamella.lang.skriptnd.write import write
from tests.support.strategies.mutation import mutants
from tests.support.strategies.skriptnd import documents

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").rglob("*.sknd"))
LIBRARY = sorted((Path(str(skriptnd.__file__)).parents[2] / "ops").rglob("*.sknd"))


def agree(source: Source) -> bool:
    """Whether a regular outline holds what the parser finds, operator by operator and place by place."""
    document, findings = parse(source)
    found = outline(source)
    if not found.regular:
        return False
    heads = [(entry.name, entry.graph, entry.public) for entry in found.entries]
    assert found.modules == document.modules
    assert heads == [(item.name, item.graph, item.public) for item in document.declarations]
    read = [parse_operator(source, entry) for entry in found.entries]
    assert tuple(operator for operator, _ in read) == document.declarations
    for (operator, _), item in zip(read, document.declarations, strict=True):
        assert operator is not None
        assert operator.span == item.span
        assert [section.span for section in operator.sections] == [section.span for section in item.sections]
    several = [item for _, some in read for item in some]
    assert errors(several) == errors(findings)
    return True


@pytest.mark.parametrize("path", [*GOOD, *LIBRARY], ids=lambda path: path.stem)
def test_operators_are_read_one_by_one_as_in_the_whole(path: Path) -> None:
    assert agree(Source(path.name, path.read_text(encoding="utf-8")))


@given(documents())
def test_outlines_of_generated_documents(document: n.Document) -> None:
    assert agree(Source("text.sknd", write(document)))


def test_outlines_of_mutated_programs() -> None:
    texts = [path.read_text(encoding="utf-8") for path in GOOD]
    chance = random.Random(3)
    found = []
    for text in mutants(texts, 300, seed=3):
        source = Source("text.sknd", text)
        entries = outline(source).entries
        for entry in chance.sample(entries, min(2, len(entries))):
            operator, findings = parse_operator(source, entry)
            assert operator is not None or errors(findings)
        names = [item.name for item in parse(source).document.declarations]
        if not errors(parse(source).findings):
            found.append(outline(source).regular and [entry.name for entry in entries] == names)
    assert found
    assert all(found)


@pytest.mark.parametrize(
    ("text", "names", "regular"),
    [
        ("", [], True),
        ("# only { a comment\n", [], True),
        ("operator a { # }\n } graph b {}", ["a", "b"], True),
        ("operator a { @assert { x: '}'; } } operator b {}", ["a", "b"], True),
        ("operator a { @assert { x: \"{y}\" '\\'}'; } } operator b {}", ["a", "b"], True),
        ("public operator a {} public\noperator b {}", ["a", "b"], True),
        ("operator # name\n a # brace\n {}", ["a"], True),
        ("operator a {", ["a"], False),
        ("operator a {} }", ["a"], False),
        ("operator a {} import b;", ["a"], False),
        ("nonsense operator a {}", [], False),
        ("import a b; operator c {}", [], False),
        ("operator a { @assert { x: 'open; } } operator b {}", ["a"], False),
    ],
)
def test_outlines(text: str, names: list[str], regular: bool) -> None:
    found = outline(Source("text.sknd", text))
    assert [entry.name for entry in found.entries] == names
    assert found.regular == regular


def test_an_operator_is_found_by_its_name() -> None:
    found = outline(Source("text.sknd", "operator a {} operator b {} operator b { @input {} }"))
    entry = found.find("b")
    assert entry is not None
    assert entry.span.text == "operator b {}"
    assert found.find("c") is None
