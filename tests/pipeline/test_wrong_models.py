"""Wrong programs that only the whole road finds: a graph without values, and a run without weights."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import repaired
from lamella import check, compile
from lamella.base.diagnostic import Diagnostic, LamellaError

BAD = Path(__file__).parents[1] / "lang" / "skriptnd" / "bad"
PROGRAMS = [path for code in ("330", "331", "336") for path in sorted(BAD.glob(f"skr{code}*.sknd"))]


def findings_of(path: Path, text: str) -> list[Diagnostic]:
    """What a check finds, and then a run."""
    model = re.search(r"^# with model=(\w+)$", text, re.MULTILINE)
    found = check(path, model=model[1] if model else None)
    if found:
        return found
    try:
        executable = compile(path, random=True)
        executable()
    except LamellaError as problem:
        return list(problem.findings)
    return executable.findings


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_has_exactly_the_finding_it_announces(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    expected = [
        (number, match[1])
        for number, line in enumerate(text.split("\n"), 1)
        for match in re.finditer(r"# expect (SKR\d{3})", line)
    ]
    assert [(item.span.line, item.code) for item in findings_of(path, text)] == expected
    assert expected


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_repaired_program_has_nothing_wrong(path: Path, tmp_path: Path) -> None:
    text = repaired(path.read_text(encoding="utf-8"))
    copy = tmp_path / path.name
    copy.write_text(text, encoding="utf-8")
    assert not findings_of(copy, text)
