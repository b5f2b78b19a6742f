"""Module DSL models and Hugging Face folders for the API: load; what is loaded is a graph."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.bridge.hf_to_module import is_model_folder
from lamella.bridge.ir_to_graph import read_ir
from lamella.bridge.module_to_graph import Compiled, Settings, module_to_graph
from lamella.bridge.module_to_ir import is_unit
from lamella.graph.model import Model
from lamella.lang.module.instantiate import Instance
from lamella.ops.library import Library
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.module.weights import with_data
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.shaping import with_extents

BATCH = "B"
"""The dimension of sequences, as the models of the library call it."""


def load(path: Path, options: Options) -> Model:
    """The graph of a model with its weights; LamellaError holds all findings when something is wrong."""
    if is_unit(path):
        return with_extents(read_ir(path, options.limits), options)
    source = read_source(path, is_model_folder(path), options)
    return with_extents(build(source, options, settings_of(options)), options)


def settings_of(options: Options) -> Settings:
    """What the options decide for a compilation: one that keeps what it computed is for one sequence at a time."""
    extents = {BATCH: 1} if options.cache else {}
    return Settings(library=Library(limits=options.limits), extents=extents, cached=options.cache)


def build(source: Source, options: Options, settings: Settings) -> Model:
    """The graph of a model with its weights, built as the settings say."""
    compiled = compile_instance(source.instance, settings)
    if compiled.model is None:
        raise InputError("the model gives no tensor", hint="declare its outputs, and bind them in its graph")
    return with_data(compiled.model, compiled, source.instance, source.folder, options)


def compile_instance(instance: Instance, settings: Settings) -> Compiled:
    """The graph of an instance; LamellaError where something is wrong."""
    compiled = module_to_graph(instance, settings)
    if errors(compiled.findings):
        raise LamellaError(errors(compiled.findings))
    return compiled
