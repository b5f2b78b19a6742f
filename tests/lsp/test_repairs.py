"""Repairs on the wrong programs of all rules: what a hint says, done, takes its finding away and brings no other."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, errors
from lamella.lsp.features import repairs
from lamella.lsp.workspace import EditorWorkspace, check_text, language_at

ROOT = Path(__file__).parents[2]
LEAST = 40
"""Findings of the wrong programs that can be repaired; a rule may get a better hint, so there may be more."""


def findings(path: Path, text: str) -> list[Diagnostic]:
    return check_text(path, {path: text}).findings[path]


def key(finding: Diagnostic) -> tuple[str, str, int]:
    return finding.code, finding.message, finding.span.start


def test_a_repair_takes_its_finding_away() -> None:
    count = 0
    for path in sorted((ROOT / "tests/lang").glob("*/bad/**/*")):
        text = path.read_text(encoding="utf-8") if language_at(path) is not None else "\0"
        document = None if "\0" in text else EditorWorkspace((path.parent,)).show(path, text)
        if document is None:
            continue
        before = findings(path, text)
        for finding in before:
            for repair in repairs(document, finding):
                count += 1
                start, end = repair.span[1:]
                after = findings(path, text[:start] + repair.text + text[end:])
                assert key(finding) not in {key(item) for item in after}, (path.name, repair.title)
                assert len(errors(after)) <= len(errors(before)), (path.name, repair.title)
    assert count >= LEAST
