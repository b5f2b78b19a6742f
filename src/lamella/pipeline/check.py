"""Checking and formatting files; loads a language and the plan's rules, no numpy."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import read_bytes
from lamella.lang.nem import parse, write
from lamella.pipeline.languages import is_stream, language_of
from lamella.pipeline.program import read_program, read_source
from lamella.plan.stcb import read_stream


def check(
    path: str | Path,
    language: str | None = None,
    device: str | None = None,
    limits: Limits = DEFAULT,
    root: Path | None = None,
) -> list[Diagnostic]:
    """What is wrong in a file; never raises for bad input. Includes stay below `root`, by default its folder."""
    try:
        path = Path(path)
        if language is None and is_stream(path):
            read_stream(read_bytes(path, limits), limits)
            return []
        language_of(path, language)
        return list(read_program(path, device, limits, root).findings)
    except LamellaError as problem:
        return list(problem.findings)


def canonical_text(path: Path, language: str | None, limits: Limits) -> tuple[str, str]:
    """The text of a file and its canonical form; a text with syntax errors raises."""
    language_of(path, language)
    source = read_source(path, limits)
    document, findings = parse(source, limits)
    if errors(findings):
        raise LamellaError(errors(findings))
    return source.text, write(document)
