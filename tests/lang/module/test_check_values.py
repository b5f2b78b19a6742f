"""Declarations are checked with the values that they have, and with examples of those that they lack."""

from __future__ import annotations

from pathlib import Path

import pytest

import lamella
from lamella.base.diagnostic import LamellaError

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
