"""A model as a Hugging Face folder that transformers loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.bridge.hf_to_module import Folder, is_model_folder, open_folder
from lamella.bridge.module_to_graph import Settings, graph_name
from lamella.bridge.module_to_hf import Export, Mapped, export_folder, write_config
from lamella.lang.module.instantiate import Instance
from lamella.ops.library import Library
from lamella.pipeline.module.execution import build
from lamella.pipeline.module.faithful import require_faithful
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.module.planning import context_of, plan_weights, weights_of
from lamella.pipeline.options import Options


def export(path: Path, target: Path, options: Options) -> tuple[Path, ...]:
    """Write the folder of a model, and give its files; tensors that are not changed keep their bytes."""
    source = read_source(path, is_model_folder(path), options)
    module = source.instance.module
    if module.hf_config is None or module.hf_mapping is None:
        hint = "add hf_config: and hf_mapping: to the model"
        raise InputError(f"'{module.name}' does not say what it is called in Hugging Face", hint=hint)
    folder = source.folder or _given_folder(options)
    config = write_config(module.hf_config, source.instance.values, None if folder is None else folder.config)
    mapped = Mapped(
        weights_of(source.instance), module.hf_mapping, module.hf_export or (), context_of(source.instance)
    )
    numbers = _numbers(source, folder, options)
    require_faithful(source.instance, mapped, config, numbers, options)
    return export_folder(target, numbers, Export(mapped, config, folder), options.limits)


def _given_folder(options: Options) -> Folder | None:
    home = options.weights
    return open_folder(home, options.limits) if home is not None and is_model_folder(home) else None


def _numbers(source: Source, folder: Folder | None, options: Options) -> Mapping[str, Array]:
    """The weights by path: as the folder has them, or those of a file, or random ones from the seed."""
    instance: Instance = source.instance
    if folder is not None and (options.weights is None or is_model_folder(options.weights)):
        return plan_weights(instance, folder, options.allow, "").data()
    model = build(source, options, Settings(library=Library(limits=options.limits)))
    state = compile_model(model, seed=options.seed, limits=options.limits).state
    return {
        item.path: state[name] for item in weights_of(instance) if (name := graph_name(item.path)) in state
    }
