"""Wrong programs say themselves what is wrong with them and how it is repaired; a repaired one has nothing wrong."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from docs.generate import RIGHT, repaired
from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Source
from lamella.lang.skriptnd import check, parse
from tests.support.lang.skriptnd.library import find

BAD = Path(__file__).parent / "bad"
EXPECT = re.compile(r"#\s*expect\s+((?:SKR\d{3}[ ,]*)+)")
MODULE = re.compile(r"^# module: (\w+)$", re.MULTILINE)
OF_CALLS = {*range(260, 390), 391}
"""The codes of what a call, a graph, a run or its data ask."""


def expectations(text: str) -> Counter[tuple[int, str]]:
    """Lines and codes that the markers of a program announce."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(text.split("\n"), 1):
        for match in EXPECT.finditer(line):
            found.update((number, code) for code in re.findall(r"SKR\d{3}", match[1]))
    return found


def wrong_programs() -> list[Path]:
    """The programs whose findings need no call."""
    texts = [(path, path.read_bytes().decode("utf-8", "replace")) for path in sorted(BAD.glob("*.sknd"))]
    return [
        path for path, text in texts if all(int(code[3:]) not in OF_CALLS for _, code in expectations(text))
    ]


def findings_of(name: str, text: str) -> list[Diagnostic]:
    """What parser and checks find; where the text cannot be read whole, nothing is checked."""
    source = Source(name, text)
    document, found = parse(source)
    if any(item.severity == "error" for item in found):
        return list(found)
    module = MODULE.search(text)
    return [*found, *check(document, module[1] if module else "main", find)]


PROGRAMS = wrong_programs()


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_has_exactly_the_findings_it_announces(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    findings = findings_of(path.name, text)
    found = Counter((item.span.line, item.code) for item in findings)
    assert found == expectations(text), "\n".join(map(str, findings))
    assert found


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_repaired_program_has_nothing_wrong(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    if RIGHT.search(text):
        findings = findings_of(path.name, repaired(text))
        assert not findings, "\n".join(map(str, findings))
