"""What only .module files and Hugging Face folders can do: become units and folders, be observed and verified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lamella.backend.reference import compile_model
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import InputError
from lamella.base.paths import is_there, read_bytes
from lamella.base.suggest import list_known
from lamella.bridge.hf_to_module import is_gguf, is_model_folder
from lamella.bridge.module_to_graph import CompilationSettings, is_complete
from lamella.bridge.module_to_graph.backward.verify import Trial, Verification, verify_backward
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.lang.module.check.settings import read_settings
from lamella.lang.module.instantiate import Instance
from lamella.lang.module.nodes import Module
from lamella.pipeline.module.declarations import chosen_instances
from lamella.pipeline.module.export import export
from lamella.pipeline.module.generate import generate_text, generate_tokens
from lamella.pipeline.module.observe import observe
from lamella.pipeline.module.operators import library_of
from lamella.pipeline.module.program import choose, read_program
from lamella.pipeline.module.units import build_unit
from lamella.pipeline.options import Options


def verify(path: Path, options: Options) -> tuple[list[Diagnostic], list[str]]:
    """What is wrong with the gradients of a file, and a line for each declaration that was compared."""
    program = read_program(path, options)
    library = library_of(program, options)
    settings = read_settings(program.resolved.unit.document)
    trial = Trial(**settings.verify, shapes={**settings.shapes, **options.shape})
    chosen = [choose(program, options)] if options.model else program.modules
    modules = [item.declaration for item in chosen if isinstance(item.declaration, Module)]
    known = {param.name for module in modules for param in module.params or ()}
    small = {name: size for name, size in settings.shapes.items() if name in known}
    options = replace(options, config={**small, **options.config})
    findings: list[Diagnostic] = []
    lines: list[str] = []
    extents: set[str] = set()
    for instance in chosen_instances(program, options):
        if not is_complete(instance):
            continue
        found = _verify(instance, CompilationSettings(library=library), trial, options)
        findings += found.findings
        extents |= found.extents
        lines += [f"{instance.name}: {line}" for line in _first(found.lines())]
    unknown = next((name for name in options.shape if name not in extents), None)
    if unknown is not None:
        hint = list_known(unknown, sorted(extents), "open extents are:")
        raise InputError(f"nothing that was compared has an open extent '{unknown[:80]}'", hint=hint)
    return findings, lines


def _verify(
    instance: Instance, settings: CompilationSettings, trial: Trial, options: Options
) -> Verification:
    return verify_backward(
        instance,
        settings,
        trial,
        lambda model: compile_model(model, dtype="f64", limits=options.limits),
    )


def _first(lines: Iterator[str]) -> list[str]:
    """The line that says how many were compared; those behind it are of single gradients."""
    line = next(lines, None)
    return [] if line is None else [line]


__all__ = ["build_unit", "export", "generate_text", "generate_tokens", "observe", "verify", "with_parts"]

CONFIG, TOKENIZER = "config.json", "tokenizer.json"


def with_parts(source: Path, options: Options) -> Options:
    """The options that also put the config and the tokenizer of a folder into a NAC file.

    A tokenizer that the manifest of a file cannot say travels as it is.
    """
    if not is_model_folder(source) or is_gguf(source):
        return options
    embed = {CONFIG: str(source / CONFIG), **options.embed}
    path = source / TOKENIZER
    if options.tokenizer is not None or not is_there(path):
        return replace(options, embed=embed)
    try:
        tokenizer_to_nac(read_bytes(path, options.limits))
    except LamellaError:
        return replace(options, embed={TOKENIZER: str(path), **embed})
    return replace(options, embed=embed, tokenizer=path)
