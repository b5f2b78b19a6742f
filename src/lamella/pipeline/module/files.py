"""Module DSL files for the commands: check, format, show; files are checked without numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, read_text, shown
from lamella.base.source import Source
from lamella.bridge.module_to_graph import Settings, is_complete, module_to_graph
from lamella.lang.module import check as check_text
from lamella.lang.module.instantiate import instantiate
from lamella.lang.module.nodes import Module
from lamella.lang.module.parse import parse
from lamella.lang.module.resolve import Declared
from lamella.lang.module.rules.constants import MISSING
from lamella.lang.module.write import write
from lamella.ops.library import Library
from lamella.pipeline.languages import Description, part_of
from lamella.pipeline.module.configuring import config_for, require_known
from lamella.pipeline.module.reading import Program, choose, configure, lock_program, read_program
from lamella.pipeline.options import Options


def check(path: Path, options: Options) -> list[Diagnostic]:
    """The rules of the language, then every declaration that can stand alone built as a graph.

    With a model named, only that one. A folder is checked against its model, tensor by tensor.
    """
    if is_folder(path):
        found: list[Diagnostic] = part_of("module", "checking").check_folder(path, options)
        return found
    program = read_program(path, options)
    findings = [*program.findings, *check_text(program.resolved.unit.document, program.resolved.scope)]
    if not errors(findings):
        findings += _check_declarations(program, options)
    if options.lock and not errors(findings):
        lock_program(program)
    return sort_findings(_once(findings))


def _check_declarations(program: Program, options: Options) -> list[Diagnostic]:
    """What instantiating and building finds; a declaration that nobody asked for may lack values."""
    chosen = [choose(program, options)] if options.model else program.modules
    require_known(options.config, chosen)
    findings: list[Diagnostic] = []
    for declared in chosen:
        found = check_declaration(program, declared, options)
        findings += found if options.model else [item for item in found if item.code != MISSING.code]
    return findings


def check_declaration(program: Program, declared: Declared, options: Options) -> list[Diagnostic]:
    """What is wrong with one declaration when it has its values."""
    module = declared.declaration
    if not isinstance(module, Module) or (module.abstract and not options.model):
        return []
    own = options if options.model else _narrowed(module, options)
    found = instantiate(
        declared, configure(program, declared, {}, own), program.resolved.scope, options.limits
    )
    findings = list(found.findings)
    if found.instance is None or errors(findings):
        return findings
    forward = found.instance.module.forward
    if forward is None or forward.graph is None or not is_complete(forward):
        return findings
    return [
        *findings,
        *module_to_graph(found.instance, Settings(library=Library(limits=options.limits))).findings,
    ]


def _narrowed(module: Module, options: Options) -> Options:
    """The options with the values that concern one declaration."""
    return replace(options, config=config_for(module, options.config))


def _once(findings: list[Diagnostic]) -> list[Diagnostic]:
    """Each finding once: what the text and the graph both show is said by the first."""
    seen: dict[tuple[object, ...], Diagnostic] = {}
    for item in findings:
        seen.setdefault((item.code, item.span.source.name, item.span.start, item.span.end), item)
    return list(seen.values())


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
    described: Description = part_of("module", "describing").describe(Path(name), options)
    return described
