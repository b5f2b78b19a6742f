"""A Hugging Face folder against the model that it is: config, tensors, shapes."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import shown
from lamella.bridge.module_to_graph import CompilationSettings, module_to_graph
from lamella.lang.module import check as check_text
from lamella.lang.module.check import settle
from lamella.pipeline.module.folders import read_source
from lamella.pipeline.module.operators import library_of, read_operators
from lamella.pipeline.module.program import Program
from lamella.pipeline.module.weight_plan import plan_weights
from lamella.pipeline.options import Options


def check(path: Path, options: Options) -> list[Diagnostic]:
    """What is wrong with a folder; nothing of its numbers is read."""
    try:
        source = read_source(path, options)
        findings = [*source.findings, *check_program(source.program, options)]
        if source.folder is not None and not errors(findings):
            findings += plan_weights(source.instance, source.folder, options.unused).findings
        if not source.program.resolved.unit.standard and not errors(findings):
            # A model of one's own may name operators that are not there: only its graph says so.
            settings = CompilationSettings(library=library_of(source.program, options), once=True)
            findings += module_to_graph(source.instance, settings).findings
        return findings
    except LamellaError as problem:
        return list(problem.findings)


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """A folder has no text; InputError."""
    raise InputError(f"'{shown(path)}' is a folder", path=shown(path), hint="name a .module file")


def check_program(program: Program, options: Options) -> list[Diagnostic]:
    """What is wrong with the text of a model that is none of the library, and with the operators that it names."""
    unit = program.resolved.unit
    if unit.standard:
        return []
    text = settle(check_text(unit.document, program.resolved.scope))
    return [*program.findings, *text, *read_operators(program, options)[1]]
