"""Module DSL files for the commands: check, format; without numpy."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.limits import Limits
from lamella.base.paths import read_text, shown
from lamella.base.source import Source
from lamella.lang.module import check as check_text
from lamella.lang.module.check import is_of, settle
from lamella.lang.module.parse import parse
from lamella.lang.module.write import write
from lamella.pipeline.module.declarations import check_declarations
from lamella.pipeline.module.program import lock_program, read_program
from lamella.pipeline.options import Options


def check(path: Path, options: Options) -> list[Diagnostic]:
    """The rules of the language, then every declaration that can stand alone built as a graph.

    With a model named, only that one.
    """
    program = read_program(path, options)
    findings = [*check_text(program.resolved.unit.document, program.resolved.scope)]
    findings += check_declarations(program, options)
    findings = [*program.findings, *(item for item in findings if not is_of(item, program.unbound))]
    if options.lock and not errors(findings):
        lock_program(program)
    return sort_findings(settle(findings, program.lost))


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """The text of a file and its canonical form; a text with syntax errors raises."""
    source = Source(shown(path), read_text(path, limits))
    document, findings = parse(source, limits)
    if errors(findings):
        raise LamellaError(errors(findings))
    return source.text, write(document)
