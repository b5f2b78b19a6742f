"""Gradients of the declarations of a file against differences; this runs what it checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lamella.backend.reference import compile_model
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.bridge.module_to_graph import Settings, is_complete
from lamella.bridge.module_to_graph.backward.verify import Verification, verify_backward
from lamella.lang.module.instantiate import Instance
from lamella.ops.library import Library
from lamella.pipeline.module.building import chosen_instances
from lamella.pipeline.module.operators import library_of
from lamella.pipeline.module.reading import read_program
from lamella.pipeline.options import Options


def verify(path: Path, options: Options) -> tuple[list[Diagnostic], list[str]]:
    """What is wrong with the gradients of a file, and a line for each declaration that was compared."""
    program = read_program(path, options)
    library = library_of(program, options)
    findings: list[Diagnostic] = []
    lines: list[str] = []
    extents: set[str] = set()
    for instance in chosen_instances(program, options):
        forward = instance.module.forward
        if forward is None or forward.graph is None or not is_complete(forward):
            continue
        found = _verify(instance, library, options)
        findings += found.findings
        extents |= found.extents
        lines += [f"{instance.name}: {line}" for line in _first(found.lines())]
    unknown = next((name for name in options.shape if name not in extents), None)
    if unknown is not None:
        hint = f"open extents are: {', '.join(sorted(extents)) or 'none'}"
        raise InputError(f"nothing that was compared has an open extent '{unknown[:80]}'", hint=hint)
    return findings, lines


def _verify(instance: Instance, library: Library, options: Options) -> Verification:
    settings = Settings(library=library)

    return verify_backward(
        instance,
        settings,
        options.shape,
        lambda model: compile_model(model, dtype="f64", limits=options.limits),
    )


def _first(lines: Iterator[str]) -> list[str]:
    """The line that says how many were compared; those behind it are of single gradients."""
    line = next(lines, None)
    return [] if line is None else [line]
