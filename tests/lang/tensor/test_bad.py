"""Wrong programs say themselves what is wrong with them and how it is repaired; a repaired one has nothing wrong."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from docs.generate import RIGHT, repaired
from lamella.base.diagnostic import ERROR, Diagnostic
from lamella.base.source import Source
from lamella.lang.tensor import check, parse
from lamella.lang.tensor.rules.syntax import EXTENSION

BAD = Path(__file__).parent / "bad"
EXPECT = re.compile(r";\s*expect\s+((?:TEN\d{3}[ ,]*)+)")
BEHIND_CHECK = 200
MEMORY = 140
UNPROVED = ("TEN142", "TEN143")
"""Notes on what cannot be proved of memory, which programs about other rules need not avoid."""


def expectations(text: str) -> Counter[tuple[int, str]]:
    """Lines and codes that the markers of a program announce."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(text.split("\n"), 1):
        for match in EXPECT.finditer(line):
            found.update((number, code) for code in re.findall(r"TEN\d{3}", match[1]))
    return found


def wrong_programs() -> list[Path]:
    """The programs whose findings are those of the parser and the checker."""
    paths = sorted(BAD.glob("ten*.tensor"))
    return [path for path in paths if int(path.name[3:6]) < BEHIND_CHECK or not _is_run(path)]


def _is_run(path: Path) -> bool:
    """Whether a program is right until it runs, or code is written for it."""
    return re.search(r"^; (?:launch|target) ", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def findings_of(name: str, text: str) -> list[Diagnostic]:
    """What parser and checker find; a text that cannot be read is not checked."""
    program, found = parse(Source(name, text))
    if any(item.severity == ERROR for item in found):
        return list(found)
    ignored = () if int(name[3:6]) >= MEMORY else UNPROVED
    return [*found, *(item for item in check(program) if item.code not in ignored)]


PROGRAMS = wrong_programs()


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_has_exactly_the_findings_it_announces(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    findings = findings_of(path.name, text)
    found = Counter((item.span.line, item.code) for item in findings)
    assert found == expectations(text), "\n".join(map(str, findings))
    assert found


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_repaired_program_has_nothing_wrong(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert RIGHT.search(text)
    kept = {code for _, code in expectations(text)} & {EXTENSION.code}
    findings = [item for item in findings_of(path.name, repaired(text)) if item.code not in kept]
    assert not findings, "\n".join(map(str, findings))
