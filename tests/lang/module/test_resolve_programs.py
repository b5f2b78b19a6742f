"""Wrong programs say themselves what is wrong with them and how it is repaired."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from docs.generate import repaired
from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Source
from lamella.lang.module.instantiate import instantiate
from lamella.lang.module.nodes import Module
from lamella.lang.module.resolve import Resolved, SourceUnit, Workspace, resolve

BAD = Path(__file__).parent / "bad"
CODES = [
    "e002",
    "e003",
    "e007",
    "e009",
    "e011",
    "e012",
    "e016",
    "e023",
    "e024",
    "e026",
    "e027",
    "e101",
    "w001",
    "w002",
]
EXPECT = re.compile(r"#\s*expect\s+((?:[EW]\d{3}[ ,]*)+)")
OURS = re.compile(r"|".join(code.upper() for code in CODES))


def programs() -> list[Path]:
    """The wrong programs about names and values alone; those about graphs need a graph."""
    found = [path for code in CODES for path in sorted(BAD.glob(f"{code}_*.module"))]
    return [path for path in found if "graph:" not in path.read_text() or path.stem in WITH_GRAPHS]


WITH_GRAPHS = {"e002_parent", "e009_added", "e011_outputs", "e011_restated", "e012_parent"}


def is_complete(module: Module) -> bool:
    """Whether a declaration can be instantiated without arguments."""
    return not module.abstract and all(param.default is not None for param in module.params or ())


def judge(unit: SourceUnit, workspace: Workspace) -> list[Diagnostic]:
    """What resolution and instantiation say of a file."""
    resolved = resolve(unit, workspace)
    found = list(resolved.findings)
    for declared in resolved.scope.local.values():
        if isinstance(declared.declaration, Module) and is_complete(declared.declaration):
            found += instantiate(declared, {}, resolved.scope).findings
    unique = {(item.span.line, item.code, item.message): item for item in found}
    return list(unique.values())


def expectations(text: str) -> Counter[tuple[int, str]]:
    """Lines and codes that the markers of a program announce."""
    return Counter(
        (number, code)
        for number, line in enumerate(text.splitlines(), 1)
        for match in EXPECT.finditer(line)
        for code in OURS.findall(match[1])
    )


@pytest.mark.parametrize("path", programs(), ids=lambda path: path.stem)
def test_a_wrong_program_has_exactly_the_findings_it_announces(path: Path) -> None:
    workspace = Workspace()
    findings = judge(workspace.read(path), workspace)
    found = Counter((item.span.line, item.code) for item in findings)
    assert found == expectations(path.read_text()), "\n".join(map(str, findings))
    assert found


@pytest.mark.parametrize("path", programs(), ids=lambda path: path.stem)
def test_a_repaired_program_has_nothing_wrong(path: Path) -> None:
    workspace = Workspace()
    unit = workspace.take(Source(path.name, repaired(path.read_text())), path)
    assert judge(unit, workspace) == []


@pytest.mark.parametrize("path", sorted(BAD.parent.glob("good/*.module")), ids=lambda path: path.stem)
def test_names_of_other_programs_never_end_in_an_exception(path: Path) -> None:
    workspace = Workspace()
    found: Resolved = resolve(workspace.read(path), workspace)
    assert found.scope.local
