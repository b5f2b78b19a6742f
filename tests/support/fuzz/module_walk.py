"""The way of a Module DSL file, or a folder of weights, through `check`: findings come out, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lamella
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, render
from lamella.base.limits import DEFAULT
from lamella.base.source import Source
from lamella.lang.module.parse import parse
from lamella.lang.module.rules import RULES
from lamella.lang.module.write import write

LIMITS = replace(DEFAULT, max_operations=2000)
"""Few operations: a mutant with many layers shows no more than one with some."""
CODES = {rule.code for rule in RULES} | {"LAM001"}
"""Those of the language, and that of texts that are none."""


def assert_clean(finding: Diagnostic, codes: set[str]) -> None:
    """A finding has a known code, lies in its text and can be shown on a terminal."""
    assert finding.code in codes, finding
    assert 0 <= finding.span.start <= finding.span.end <= len(finding.span.source.text)
    assert all(line.isprintable() for line in render(finding).split("\n")), ascii(render(finding))


def check(path: Path) -> list[Diagnostic]:
    """All that is found in a file or a folder, however it is told."""
    try:
        return lamella.check(path, limits=LIMITS)
    except LamellaError as problem:
        return list(problem.findings)


def walk(text: str, folder: Path) -> list[Diagnostic]:
    """Check a text; what can be written again is read as the same."""
    path = folder / "mutant.module"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    found = check(path)
    for finding in found:
        assert_clean(finding, CODES)
    document, findings = parse(Source("mutant.module", text), LIMITS)
    if not errors(findings):
        written = write(document)
        again, problems = parse(Source("written.module", written), LIMITS)
        assert not errors(problems), (text, written)
        assert write(again) == written
    return found
