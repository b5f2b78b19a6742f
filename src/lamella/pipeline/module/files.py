"""Module DSL files for the commands: check, format, show; files are checked without numpy."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, is_there, read_text, shown
from lamella.base.source import Source
from lamella.lang.module import check as check_text
from lamella.lang.module.check import settle
from lamella.lang.module.parse import parse
from lamella.lang.module.write import write
from lamella.pipeline.languages import Description, is_standard, part_of
from lamella.pipeline.module.reading import lock_program, read_program
from lamella.pipeline.options import Options

UNIT = "config_schema.json"
"""The file by which a folder is known as a compiled unit."""


def check(path: Path, options: Options) -> list[Diagnostic]:
    """The rules of the language, then every declaration that can stand alone built as a graph.

    With a model named, only that one. A folder is checked against its model, tensor by tensor.
    """
    if is_folder(path) and is_there(path / UNIT):
        wrong: list[Diagnostic] = part_of("module", "units").check_unit(path, options)
        return wrong
    if is_folder(path):
        found: list[Diagnostic] = part_of("module", "checking").check_folder(path, options)
        return found
    program = read_program(path, options)
    findings = [*program.findings, *check_text(program.resolved.unit.document, program.resolved.scope)]
    findings += part_of("module", "building").check_declarations(program, options)
    if options.lock and not errors(findings):
        lock_program(program)
    return sort_findings(settle(findings, program.lost))


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """The text of a file and its canonical form; a text with syntax errors raises."""
    if is_folder(path):
        raise InputError(f"'{shown(path)}' is a folder", path=shown(path), hint="name a .module file")
    source = Source(shown(path), read_text(path, limits))
    document, findings = parse(source, limits)
    if errors(findings):
        raise LamellaError(errors(findings))
    return source.text, write(document)


def describe(name: str, options: Options) -> Description:
    """What a file declares, or what a folder holds."""
    path = Path(name)
    if is_standard(name) and not is_there(path):
        library: Description = part_of("module", "library").describe_standard(name, options)
        return library
    if is_there(path / UNIT):
        unit: Description = part_of("module", "units").describe_unit(path, options)
        return unit
    described: Description = part_of("module", "describing").describe(path, options)
    return described
