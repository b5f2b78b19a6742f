"""Wrong programs say themselves what is wrong with them and how it is repaired; right ones have nothing wrong."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from docs.generate import RIGHT, repaired
from lamella.base.source import Source
from lamella.pipeline.nem.program import Program, check_program, read_program

HERE = Path(__file__).parent
BAD = sorted((HERE / "bad").glob("*.nem"))
GOOD = sorted((HERE / "good").glob("*.nem"))
EXPECT = re.compile(r"#\s*expect\s+((?:NEM\d{3}[ ,]*)+)")


def expectations(source: Source) -> Counter[tuple[int, str]]:
    """Lines and codes that the markers of a program announce."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(source.text.splitlines(), 1):
        for match in EXPECT.finditer(line):
            found.update((number, code) for code in re.findall(r"NEM\d{3}", match[1]))
    return found


def teaching(folder: Path) -> list[Path]:
    """The wrong programs of a folder that say how they are repaired."""
    return [path for path in sorted(folder.glob("*.nem")) if RIGHT.search(path.read_text("utf-8", "replace"))]


def read_repaired(path: Path) -> Program:
    """A wrong program with its right lines in place of the wrong ones."""
    return check_program(Source(path.name, repaired(path.read_text(encoding="utf-8"))), path)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_wrong_program_has_exactly_the_findings_it_announces(path: Path) -> None:
    program = read_program(path)
    found = Counter(
        (item.span.line, item.code) for item in program.findings if item.span.source is program.source
    )
    assert found == expectations(program.source), "\n".join(map(str, program.findings))
    assert found


@pytest.mark.parametrize("path", teaching(HERE / "bad"), ids=lambda path: path.stem)
def test_a_repaired_program_has_nothing_wrong(path: Path) -> None:
    assert not read_repaired(path).findings


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_right_program_has_no_errors(path: Path) -> None:
    program = read_program(path)
    found = Counter((item.span.line, item.code) for item in program.findings)
    assert found == expectations(program.source), "\n".join(map(str, program.findings))
    assert not [item for item in program.findings if item.severity == "error"]
