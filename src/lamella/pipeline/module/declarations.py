"""Declarations built as graphs, to see what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.errors import Found
from lamella.bridge.module_to_graph import (
    CompilationSettings,
    Compiled,
    has_graph,
    is_complete,
    module_to_graph,
)
from lamella.bridge.module_to_graph.backward import declares_gradients, differentiate
from lamella.lang.module.check import is_of
from lamella.lang.module.check.mapped import check_mapped
from lamella.lang.module.check.settings import check_devices, read_settings
from lamella.lang.module.instantiate import Instance, Known, instantiate
from lamella.lang.module.nodes import ConfigParam, Module
from lamella.lang.module.resolve import Declared
from lamella.lang.module.resolve.lineage import config_params, trace_lineage
from lamella.ops.library import Library
from lamella.pipeline.module.examples import example_values
from lamella.pipeline.module.operators import read_operators
from lamella.pipeline.module.program import Program, choose, config_for, configure, require_known
from lamella.pipeline.options import Options

UNFIT = ("E027", "E101")
"""Codes that say that an example is none: it breaks a constraint, or is too large."""
ANYWAY = ("E001", "E002", "E016", "E026")
"""What no value can be the reason of."""


def check_declarations(program: Program, options: Options) -> list[Diagnostic]:
    """What instantiating and building finds; a declaration that nobody asked for may lack values."""
    chosen = [choose(program, options)] if options.model else program.modules
    require_known(options.config, chosen)
    library, findings = read_operators(program, options)
    if errors(findings):
        return findings
    found = (item for declared in chosen for item in check_declaration(program, declared, library, options))
    return [*findings, *found]


def chosen_instances(program: Program, options: Options) -> Iterator[Instance]:
    """The instances of a file that can be built, all of them or the one that is named."""
    for declared in [choose(program, options)] if options.model else program.modules:
        module = declared.declaration
        if not isinstance(module, Module) or module.abstract:
            continue
        values = configure(program, declared, {}, options if options.model else _narrowed(module, options))
        if options.model or not _lacking(declared, values, program):
            found = instantiate(declared, values, program.resolved.scope, options.limits)
            if found.instance is not None and not errors(found.findings):
                yield found.instance


def check_declaration(
    program: Program, declared: Declared, library: Library, options: Options
) -> list[Diagnostic]:
    """What is wrong with one declaration when it has its values."""
    module = declared.declaration
    if not isinstance(module, Module) or (module.abstract and not options.model):
        return []
    own = options if options.model else _narrowed(module, options)
    values = configure(program, declared, {}, own)
    lacking = [] if options.model else _lacking(declared, values, program)
    if lacking:
        # Beside values that a user set for another declaration, examples are not free enough.
        return [] if values else _common_findings(program, declared, lacking, library, options)
    return _findings_of(program, declared, values, library, options)


def _common_findings(
    program: Program,
    declared: Declared,
    lacking: Sequence[ConfigParam],
    library: Library,
    options: Options,
) -> list[Diagnostic]:
    """What is wrong with a declaration for all examples of the values that it lacks: nobody gave any."""
    common: dict[bool, list[Diagnostic]] = {}
    for example in example_values(lacking):
        found = _findings_of(program, declared, example, library, options)
        fits = not any(item.code in UNFIT for item in found)
        kept = [item for item in found if fits or item.code in ANYWAY]
        places = {_place(item) for item in kept}
        common[fits] = [item for item in common.get(fits, kept) if _place(item) in places]
        if fits and not errors(common[fits]):
            break
    return common.get(True, common.get(False, []))


def _place(finding: Diagnostic) -> tuple[str, int, int]:
    return finding.code, finding.span.start, finding.span.end


def _findings_of(
    program: Program,
    declared: Declared,
    values: Mapping[str, Known],
    library: Library,
    options: Options,
) -> list[Diagnostic]:
    found = instantiate(declared, values, program.resolved.scope, options.limits)
    findings = list(found.findings)
    instance = found.instance or found.partial
    if instance is None:
        return findings
    findings += (item for item in check_mapped(instance) if not is_of(item, instance.lost))
    if not has_graph(instance):
        return findings
    partial = not is_complete(instance)
    # A declaration that speaks of gradients is checked both ways; others are not asked for any.
    whole = declares_gradients(instance) and not partial
    settings = CompilationSettings(library=library, once=not whole, partial=partial)
    built = differentiate(instance, settings) if whole else module_to_graph(instance, settings)
    marks = built.marks if isinstance(built, Compiled) else built.compiled.marks
    devices = check_devices(
        ((mark.annotation, mark.arguments) for mark in marks),
        read_settings(program.resolved.unit.document),
    )
    others = [item for item in built.findings if not is_of(item, instance.lost)]
    return [*findings, *others, *devices]


def _lacking(declared: Declared, values: Mapping[str, Known], program: Program) -> list[ConfigParam]:
    """The parameters of a declaration that have no value."""
    try:
        params = config_params(trace_lineage(declared, program.resolved.scope))
    except Found:
        return []
    return [item for item in params if item.default is None and item.name not in values]


def _narrowed(module: Module, options: Options) -> Options:
    """The options with the values that concern one declaration."""
    return replace(options, config=config_for(module, options.config))
