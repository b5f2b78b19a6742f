"""Module DSL models and Hugging Face folders for the API: what is loaded is a graph, units are written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lamella.base.diagnostic import NOTE, LamellaError, errors
from lamella.base.errors import InputError
from lamella.bridge.ir_to_graph import read_ir
from lamella.bridge.module_to_graph import Compiled, Settings, module_to_graph
from lamella.bridge.module_to_ir import is_unit
from lamella.graph.model import Model
from lamella.pipeline import languages
from lamella.pipeline.languages import execution_of, part_of
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.module.operators import library_of
from lamella.pipeline.module.reading import Program
from lamella.pipeline.module.weights import find_home, with_data
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.shaping import with_extents

if TYPE_CHECKING:
    from lamella.pipeline.module.units import CompiledUnit

BATCH = "B"
"""The dimension of sequences, as the models of the library call it."""


def load(path: Path, options: Options) -> Model:
    """The graph of a model with its weights; LamellaError holds all findings when something is wrong."""
    if is_unit(path):
        return with_extents(read_ir(path, options.limits), options)
    source = read_source(path, options)
    return with_extents(build(source, options, settings_of(source.program, options)), options)


def compile(  # the API's word: lamella.compile
    model: CompiledUnit, backend: str | None, options: Options
) -> languages.Executable:
    """Make the graph of a unit executable."""
    return execution_of("skriptnd").compile(model.model, backend, options)


def lower(model: CompiledUnit, to: str, options: Options) -> languages.Model:
    """Lower the graph of a unit."""
    return execution_of("skriptnd").lower(model.model, to, options)


def save(model: CompiledUnit, path: Path) -> None:
    """Write a unit into a folder."""
    part_of("module", "units").save_unit(model, path)


def settings_of(program: Program, options: Options) -> Settings:
    """What the options decide for a compilation: one that keeps what it computed is for one sequence at a time."""
    extents = {BATCH: 1} if options.cache else {}
    return Settings(library=library_of(program, options), extents=extents, cached=options.cache)


def build(source: Source, options: Options, settings: Settings) -> Model:
    """The graph of a model with its weights, built as the settings say."""
    return build_compiled(source, options, settings)[1]


def build_compiled(source: Source, options: Options, settings: Settings) -> tuple[Compiled, Model]:
    """A model compiled, with what its graph cannot say, and its graph with its weights.

    A parameter that may be missing is there where its numbers are. LamellaError holds what is wrong.
    """
    home = find_home(source.instance, source.folder, options)
    compiled = module_to_graph(source.instance, replace(settings, given=home.has))
    if errors(compiled.findings):
        raise LamellaError(errors(compiled.findings))
    if compiled.model is None:
        raise InputError("the model gives no tensor", hint="declare its outputs, and bind them in its graph")
    if options.cache and not compiled.model.graph.updates:
        hint = "leave --cache out (cache=): causal attention, rope and Mamba's operators are what keeps something"
        raise InputError(f"'{compiled.model.graph.name}' keeps nothing from call to call", hint=hint)
    model = with_data(compiled.model, compiled, home, options)
    # Notes on a folder, such as which file declares its model, are for `check` and `show`.
    told = (item for item in source.findings if item.severity != NOTE)
    return compiled, replace(model, findings=(*told, *model.findings))
