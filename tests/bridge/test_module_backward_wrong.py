"""What is wrong with a backward graph is told with its code at its line, and the right program has nothing wrong."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from docs.generate import repaired
from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Source
from lamella.bridge.module_to_graph.backward import differentiate
from lamella.lang.module.instantiate import instantiate
from lamella.lang.module.nodes import Module
from lamella.lang.module.resolve import Workspace, resolve

BAD = Path(__file__).parents[1] / "lang" / "module" / "bad"
CODES = ("e005", "e006", "e018", "e019", "e020", "e021", "e022", "w003", "w004")
PROGRAMS = [path for code in CODES for path in sorted(BAD.glob(f"{code}_*.module"))]
EXPECT = re.compile(r"#\s*expect\s+([EW]\d{3})")


def judge(text: str) -> list[Diagnostic]:
    """What is found in the declarations of a text that have all their values."""
    workspace = Workspace()
    resolved = resolve(workspace.take(Source("test.module", text)), workspace)
    found = list(resolved.findings)
    for declared in resolved.scope.local.values():
        module = declared.declaration
        if isinstance(module, Module) and all(item.default is not None for item in module.params or ()):
            made = instantiate(declared, {}, resolved.scope)
            assert made.instance is not None
            found += differentiate(made.instance).findings
    return found


def test_every_code_has_a_program() -> None:
    assert {path.name[:4] for path in PROGRAMS} == set(CODES)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_has_exactly_the_findings_it_announces(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    expected = Counter(
        (number, match[1])
        for number, line in enumerate(text.splitlines(), 1)
        for match in EXPECT.finditer(line)
    )
    found = judge(text)
    assert Counter((item.span.line, item.code) for item in found) == expected, "\n".join(map(str, found))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_repaired_program_has_nothing_wrong(path: Path) -> None:
    found = judge(repaired(path.read_text(encoding="utf-8")))
    assert found == [], "\n".join(map(str, found))
