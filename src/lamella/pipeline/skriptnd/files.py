"""SkriptND files for the commands: check, format; models are checked without numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, read_text, shown
from lamella.base.source import Source
from lamella.graph.runnable import refusals
from lamella.lang.skriptnd import parse, write
from lamella.lang.skriptnd.check.definitions import invoked
from lamella.lang.skriptnd.rules.graphs import NOT_COMPOSED
from lamella.ops.instance import Definition
from lamella.ops.library import LoadedModule
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.compose import chosen_graph, compose_graph, place_finding, read_module
from lamella.pipeline.skriptnd.config import config_for, missing_config, report_missing, require_config


def check(path: Path, options: Options) -> list[Diagnostic]:
    """The rules of the language, then every graph composed; with a model named, only that one.

    A model folder has a graph; a file alone may be a module of operators.
    """
    read = read_module(path, options)
    findings = list(read.findings)
    if read.sound:
        chosen = options.model or (is_folder(path) and not read.module.graphs)
        graphs = [chosen_graph(read.module, options)] if chosen else _main_graphs(read.module)
        require_config(graphs, options.config)
        for definition in graphs:
            findings += _check_graph(read.module, definition, options)
    return sort_findings(findings)


def _main_graphs(module: LoadedModule) -> list[Definition]:
    """The graphs that stand for themselves: the primary one, and those that no other definition invokes."""
    called = {name for item in module.document.declarations for name in invoked(item)}
    return [
        item for number, item in enumerate(module.graphs) if not number or item.operator.name not in called
    ]


def _check_graph(module: LoadedModule, definition: Definition, options: Options) -> list[Diagnostic]:
    """What composing a graph finds, and why it could not run; one that nobody asked for by name may lack values."""
    operator = definition.operator
    config = config_for(operator, options.config)
    missing = missing_config(operator, config)
    if missing and not options.model:
        return [report_missing(NOT_COMPOSED, operator, missing)]
    graph, findings = compose_graph(module, definition, replace(options, config=config))
    if graph is not None:
        findings += [
            place_finding(item, operator.span) for item in refusals(graph, module.library, options.limits)
        ]
    return findings


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """The text of a file and its canonical form; a text with syntax errors raises."""
    if is_folder(path):
        hint = "name the file in it, such as main.sknd"
        raise InputError(f"'{shown(path)}' is a folder", path=shown(path), hint=hint)
    source = Source(shown(path), read_text(path, limits))
    document, findings = parse(source, limits)
    if errors(findings):
        raise LamellaError(errors(findings))
    return source.text, write(document)
