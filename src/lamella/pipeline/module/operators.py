"""The operators that a Module DSL program may call: those of the library, and of SkriptND files beside its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.paths import is_there, shown
from lamella.base.source import Span
from lamella.lang.module.nodes import Primitive
from lamella.lang.module.resolve import SourceUnit
from lamella.lang.module.rules.graphs import OPERATOR_CLASH
from lamella.lang.module.rules.names import HIDDEN_BY_LIBRARY
from lamella.lang.skriptnd import check as check_operators
from lamella.ops.library import Library
from lamella.ops.modules import file_of
from lamella.pipeline.module.program import Program
from lamella.pipeline.options import Options

WAYS = ("forward", "backward")


def library_of(program: Program, options: Options) -> Library:
    """The library of a program; LamellaError where a SkriptND file that its primitives name is wrong."""
    library, findings = read_operators(program, options)
    if errors(findings):
        raise LamellaError(errors(findings))
    return library


def read_operators(program: Program, options: Options) -> tuple[Library, list[Diagnostic]]:
    """The library of a program, with the operators that `impl:` of its primitives names, and what is wrong with them.

    `impl: forward: mine.softcap` names the operator `softcap` of `mine.sknd` beside the file of the primitive, beside
    the main file, or in the folder of `--root`. A name of the library means the library.
    """
    library = Library(limits=options.limits)
    findings: list[Diagnostic] = []
    homes: dict[str, Path] = {}
    for module, folder, span in _wanted(program, options):
        if module in library.standard:
            file = shown(folder / file_of(module))
            findings.append(HIDDEN_BY_LIBRARY.at(span, what=f"'{file}'", name=module))
        elif homes.setdefault(module, folder) != folder:
            first, second = (shown(item / file_of(module)) for item in (homes[module], folder))
            findings.append(OPERATOR_CLASH.at(span, name=module, first=first, second=second))
    for folder in dict.fromkeys(homes.values()):
        findings += library.load_modules((item for item in homes if homes[item] == folder), folder)
    if not errors(findings):
        for name, document in library.own_modules().items():
            findings += check_operators(document, name, library.find_operator, library.operators)
    return library, sort_findings(findings)


def own_units(program: Program) -> list[SourceUnit]:
    """The files of a program that are not of the library, its main file first."""
    main = program.resolved.unit
    others = (unit for unit in program.resolved.scope.scopes if unit is not main)
    return [unit for unit in (main, *others) if not unit.standard]


def _wanted(program: Program, options: Options) -> Iterator[tuple[str, Path, Span]]:
    """The SkriptND modules that primitives name and that have a file, each with its folder, once for each folder."""
    seen: set[tuple[str, Path]] = set()
    for unit in own_units(program):
        near = [item.path.parent for item in (unit, program.resolved.unit) if item.path is not None]
        folders = list(dict.fromkeys([*near, *([] if options.root is None else [options.root])]))
        for item in unit.document.items:
            for way in WAYS if isinstance(item, Primitive) else ():
                operator = item.operator(way) if isinstance(item, Primitive) else None
                module = (operator or "").rpartition(".")[0]
                folder = next((place for place in folders if module and is_here(place, module)), None)
                if folder is not None and (module, folder) not in seen:
                    seen.add((module, folder))
                    yield module, folder, item.span


def is_here(folder: Path, module: str) -> bool:
    """Whether a folder has a file of that name; a link that leads nowhere is one, and is refused when it is read."""
    path = folder / file_of(module)
    return is_there(path) or os.path.islink(path)
