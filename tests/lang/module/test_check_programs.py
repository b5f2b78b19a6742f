"""Wrong programs have exactly the findings that they announce, and none when they are repaired."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import lamella
from docs.generate import repaired
from lamella.base.diagnostic import Diagnostic
from tests.support.lang.module.parsed import expectations

BAD = Path(__file__).parent / "bad"
CODES = (
    *("e004", "e008", "e010", "e013", "e014", "e015", "e017", "e025", "e118", "e124", "e125"),
    *("w005", "w101", "w102", "w115", "w116", "w117"),
)
PROGRAMS = [
    *(path for code in CODES for path in sorted(BAD.glob(f"{code}_*.module"))),
    BAD / "e007_graph.module",
    *sorted((BAD / "text").glob("*.module")),
]


def shown(path: Path) -> str:
    """A path as a test is called."""
    return path.stem


def judged(path: Path) -> list[Diagnostic]:
    """What is wrong with a program; notes on annotations without effect count where they are what is shown."""
    return [item for item in lamella.check(path) if path.name.startswith("w116") or item.code != "W116"]


def test_there_is_a_program_for_every_code() -> None:
    assert {code for code in CODES if list(BAD.glob(f"{code}_*.module"))} == set(CODES)


@pytest.mark.parametrize("path", PROGRAMS, ids=shown)
def test_a_wrong_program_has_the_findings_it_announces(path: Path) -> None:
    found = judged(path)
    wanted = expectations(path.read_text(encoding="utf-8"))
    assert wanted
    assert Counter((item.span.line, item.code) for item in found) == wanted, "\n".join(map(str, found))


@pytest.mark.parametrize("path", PROGRAMS, ids=shown)
def test_a_repaired_program_has_none(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "# right:" in text
    right = tmp_path / path.name
    right.write_text(repaired(text), encoding="utf-8")
    found = judged(right)
    assert not found, "\n".join(map(str, found))
