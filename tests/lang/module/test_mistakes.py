"""Independent mistakes are all told, each by its own findings and by no others."""

from __future__ import annotations

import random
import re
from collections import Counter
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path

import pytest

import lamella
from lamella.base.diagnostic import LamellaError
from tests.support.lang.module.mistakes import MISTAKES, RIGHT, Mistake
from tests.support.lang.module.parsed import GOOD, HERE

DECISIVE = ("E027",)
"""Codes behind which a declaration is not looked at further: other values are meant."""


def parts() -> list[list[Mistake]]:
    """The mistakes by the part of the program in which they are made."""
    begin = RIGHT.index("module Base")
    ends = [
        RIGHT.index("  forward:", begin),
        RIGHT.index("module Slope"),
        RIGHT.index("model Whole"),
        len(RIGHT),
    ]
    found: list[list[Mistake]] = [[] for _ in ends]
    for item in MISTAKES:
        place = RIGHT.index(item.old)
        found[next(number for number, end in enumerate(ends) if place < end)].append(item)
    return found


def groups() -> list[tuple[Mistake, ...]]:
    """One mistake of every part together, until each was made; a decisive one without those of the same graph."""
    values, graph, backward, model = parts()
    alone = [item for item in values if item.codes in DECISIVE]
    values = [item for item in values if item.codes not in DECISIVE]
    count = max(map(len, (values, graph, backward, model)))
    rows = zip(*(islice(cycle(items), count) for items in (values, graph, backward, model)), strict=True)
    return [*((item, backward[0], model[0]) for item in alone), *rows]


DEPENDENT = {
    ("    norm: Norn(d)", "norm"),
    ("    norm: Norm(d, sps=1.0)", "norm"),
    ("    norm: Norm()", "norm"),
    ('    norm: Norm("a")', "norm"),
    ("half = h // 0", "half"),
    ("half = ceil_dv(h, 2)", "half"),
}
"""Mistakes that take a name away: what is wrong with a use of it cannot be seen beside them."""


def is_independent(group: tuple[Mistake, ...]) -> bool:
    lost = [name for item in group for new, name in DEPENDENT if item.new == new]
    return not any(re.search(rf"\b{name}\b", item.new) for name in lost for item in group[1:2])


GROUPS = [item for item in groups() if is_independent(item)]


def codes(path: Path, text: str) -> Counter[str]:
    path.write_text(text, encoding="utf-8")
    return Counter(item.code for item in lamella.check(path) if item.severity != "note")


def test_the_right_program_is_right(tmp_path: Path) -> None:
    assert not codes(tmp_path / "right.module", RIGHT)
    assert all(RIGHT.count(item.old) == 1 for item in MISTAKES)
    assert {item for group in GROUPS for item in group} >= set(MISTAKES) - {
        item for item in MISTAKES if any(item.new == new for new, _ in DEPENDENT)
    }


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: " and ".join(item.codes for item in group))
def test_mistakes_together_are_told_as_each_alone(group: tuple[Mistake, ...], tmp_path: Path) -> None:
    text = RIGHT
    for item in group:
        text = text.replace(item.old, item.new)
    wanted = Counter(code for item in group for code in item.codes.split())
    path = tmp_path / "wrong.module"
    assert codes(path, text) == wanted, "\n".join(map(str, lamella.check(path)))


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("module Norm(", "modul Norm(", ["E001"]),
        ("  params:\n    up: [h, d]", "  parms:\n    up: [h, d]", ["E001"]),
        ("    in: (x: [B, T, d], z:", "    inn: (x: [B, T, d], z:", ["E001"]),
        ("module Norm(", "module Norm[", ["E001"]),
    ],
)
def test_a_word_that_is_nearly_right_hides_nothing(
    old: str, new: str, wanted: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "wrong.module"
    assert sorted(codes(path, RIGHT.replace(old, new)).elements()) == wanted
    beside = RIGHT.replace(old, new).replace("-> rmsnorm() -> e1", "-> rmsnorn() -> e1")
    assert sorted(codes(path, beside).elements()) == sorted([*wanted, "E014"])


def test_a_name_in_any_place_is_a_finding_and_never_an_exception(tmp_path: Path) -> None:
    texts = [
        RIGHT,
        *(path.read_text(encoding="utf-8") for path in (*GOOD, *(HERE / "complete").glob("*.module"))),
    ]
    draw, path, told = random.Random(5), tmp_path / "mutant.module", 0
    for _ in range(10):
        text = draw.choice(texts)
        word = draw.choice(list(re.finditer(r"[A-Za-z_]\w*", text)))
        other = draw.choice((f"{word[0]}q", word[0][:-1] or "q", "{a: 1}", "[0, ..., -1]"))
        path.write_text(text[: word.start()] + other + text[word.end() :], encoding="utf-8")
        told += bool(lamella.check(path))
        with suppress(LamellaError):
            lamella.load(path)
    assert told


def test_a_wrong_forward_graph_hides_nothing_of_the_backward_one(tmp_path: Path) -> None:
    text = """\
module Map(n: int = 4):
  params:
    w: [n, n]
  forward:
    in: x: [B, n]
    out: y: [B, n]
    graph:
      (x, w) -> matmull(transpose=NT) -> h
      h -> silu() -> y
  backward:
    d_y: [B, n]
    d_x: [B, n]
    graph:
      (d_y, saved.hh) -> silu_backward() -> d_h
      (d_h, w) -> matmll(transpose=NN) -> d_x
"""
    assert sorted(codes(tmp_path / "wrong.module", text).elements()) == ["E006", "E014", "E014"]
