"""Wrong programs that only a composition finds, and their repairs, which compose; `# graph: NAME` chooses a graph."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from docs.generate import RIGHT, repaired
from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.source import Source
from lamella.graph.compose import compose
from lamella.lang.skriptnd import check
from lamella.ops.library import Library

BAD = Path(__file__).parents[2] / "lang" / "skriptnd" / "bad"
EXPECT = re.compile(r"#\s*expect\s+((?:SKR\d{3}[ ,]*)+)")
GRAPH = re.compile(r"^# graph: (\w+)$", re.MULTILINE)
COMPOSED = range(260, 320)
"""The codes that a composition finds: what a call asks, and what a graph asks."""


def expectations(text: str) -> Counter[tuple[int, str]]:
    """Lines and codes that the markers of a program announce."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(text.split("\n"), 1):
        for match in EXPECT.finditer(line):
            found.update((number, code) for code in re.findall(r"SKR\d{3}", match[1]))
    return found


def wrong_programs() -> list[Path]:
    """The programs whose findings need a composition, and no run."""
    return [
        path
        for path in sorted(BAD.glob("*.sknd"))
        if any(
            int(code[3:]) in COMPOSED
            for _, code in expectations(path.read_text(encoding="utf-8", errors="replace"))
        )
    ]


def composed(path: Path, text: str) -> list[Diagnostic]:
    """What loading and composing find."""
    module = Library().load(Source(path.name, text))
    if not module.sound:
        return errors(module.findings)
    graph = GRAPH.search(text)
    return errors(compose(module, graph[1] if graph else None).findings)


PROGRAMS = wrong_programs()


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_has_exactly_the_findings_it_announces(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    findings = composed(path, text)
    found = Counter((item.span.line, item.code) for item in findings)
    assert found == expectations(text), "\n".join(map(str, findings))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_repaired_program_is_checked_and_composed_without_findings(path: Path) -> None:
    text = repaired(path.read_text(encoding="utf-8"))
    assert RIGHT.search(path.read_text(encoding="utf-8"))
    library = Library()
    module = library.load(Source(path.name, text))
    findings = [*module.findings, *check(module.document, "main", library.find_operator)]
    assert not findings, "\n".join(map(str, findings))
    assert not composed(path, text)
