"""Declarations are checked with the values that they have, and with examples of those that they lack."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import lamella
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.paths import shipped
from lamella.base.source import Source
from lamella.lang.module import parse, write
from lamella.lang.module.nodes import ConfigParam, Document, Module

HEADS = """\
module Heads({head}):
  let:
    constraint:
      heads > 0, "there are heads"
      width % heads == 0, "heads divide the width"
  forward:
    in: x: [B, width]
    out: y: [B, width]
    graph:
      {graph}
"""
OPEN = "width: int, heads: int"


def codes(text: str, path: Path) -> list[str]:
    file = path / "heads.module"
    file.write_text(text, encoding="utf-8")
    return [item.code for item in lamella.check(file)]


def test_a_false_constraint_answers_for_those_behind_it(tmp_path: Path) -> None:
    text = HEADS.format(head="width: int = 4, heads: int = 0", graph="x -> relu() -> y")
    assert codes(text, tmp_path) == ["E027"]


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ("x -> relu() -> y", []),
        ("x -> view([B, heads, width // heads]) -> view([B, width]) -> y", []),
        ("x -> view([B, width + 1]) -> y", ["E004"]),
        ("x -> view([B, heads]) -> y", ["E004"]),
        ("x -> relu(width) -> y", ["E003"]),
        ("x -> relu() -> (y, z)", ["E003"]),
        ("x -> relu() -> z", ["E012"]),
        ("(x, y) -> add() -> y", ["E007"]),
    ],
)
def test_what_is_wrong_with_all_values_is_found_without_any(
    graph: str, found: list[str], tmp_path: Path
) -> None:
    assert codes(HEADS.format(head=OPEN, graph=graph), tmp_path) == found


def test_what_holds_for_some_values_is_left_alone(tmp_path: Path) -> None:
    text = HEADS.format(head=f"{OPEN}, size: int", graph="x -> view([B, heads * size]) -> y")
    assert codes(text, tmp_path) == []
    (tmp_path / "set.module").write_text(text, encoding="utf-8")
    with pytest.raises(LamellaError):
        lamella.load(tmp_path / "set.module", config={"width": 8, "heads": 2, "size": 3})


def test_types_without_meaning_are_not_loaded(tmp_path: Path) -> None:
    text = HEADS.format(head="width: int = 4, heads: int = 2", graph="x -> relu() -> y")
    path = tmp_path / "variadic.module"
    path.write_text(text.replace("in: x: [B, width]", "in: x: [B, *, width]"), encoding="utf-8")
    with pytest.raises(LamellaError, match="E001"):
        lamella.load(path)


RESERVED = "E009"
"""What is said of words of the language that the library alone may give as names."""


def _open(param: ConfigParam) -> ConfigParam:
    """A number without its default."""
    kind = param.type
    is_number = kind is not None and kind.name == "int" and not (kind.listed or kind.optional)
    return replace(param, default=None) if is_number else param


def _without_defaults() -> Iterator[tuple[str, Document]]:
    """Files of the library in which one declaration has lost the defaults of its numbers."""
    for path in sorted(shipped("models").glob("m*/*.module")):
        document, _ = parse(Source(path.name, path.read_text(encoding="utf-8")))
        for place, item in enumerate(document.items):
            if not isinstance(item, Module) or item.abstract:
                continue
            params = tuple(map(_open, item.params or ()))
            if params != (item.params or ()):
                items = (*document.items[:place], replace(item, params=params), *document.items[place + 1 :])
                yield f"{path.stem}.{item.name}", replace(document, items=items)


OPENED = dict(_without_defaults())
SHARE = 1 if "LAMELLA_FUZZ" in os.environ else 4


@pytest.mark.parametrize("name", list(OPENED)[::SHARE])
def test_right_declarations_are_right_without_their_values(name: str, tmp_path: Path) -> None:
    file = tmp_path / "open.module"
    file.write_text(write(OPENED[name]), encoding="utf-8")
    assert {item.code for item in errors(lamella.check(file))} <= {RESERVED}
