"""A model as a Hugging Face folder that transformers loads, and that Lamella reads again whatever the model is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.bridge.hf_to_module import Folder, is_model_folder, open_folder
from lamella.bridge.module_to_graph import Settings, graph_name
from lamella.bridge.module_to_hf import Export, Mapped, export_folder, write_config
from lamella.lang.module.instantiate import Instance
from lamella.ops.modules import file_of
from lamella.pipeline.module.architectures import TRAVELLING, find_known, pick
from lamella.pipeline.module.execution import build
from lamella.pipeline.module.faithful import require_faithful
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.module.operators import library_of, own_units
from lamella.pipeline.module.planning import context_of, plan_weights, weights_of
from lamella.pipeline.options import Options


class Exported(NamedTuple):
    """The files of a folder that was written, the config last, and what there is to tell about it."""

    files: tuple[Path, ...]
    findings: tuple[Diagnostic, ...] = ()


def export(path: Path, target: Path, options: Options) -> Exported:
    """Write the folder of a model; tensors that are not changed keep their bytes.

    A model that is none of the library travels in the folder, with the files that it imports.
    """
    source = read_source(path, options)
    module = source.instance.module
    if module.hf_config is None or module.hf_mapping is None:
        hint = "add hf_config: and hf_mapping: to the model"
        raise InputError(f"'{module.name}' does not say what it is called in Hugging Face", hint=hint)
    folder = source.folder or _given_folder(options)
    config = write_config(module.hf_config, source.instance.values, None if folder is None else folder.config)
    mapped = Mapped(
        weights_of(source.instance), module.hf_mapping, module.hf_export or (), context_of(source.instance)
    )
    beside = _travelling(source, config, options)
    numbers, findings = _numbers(source, folder, options)
    require_faithful(source.instance, mapped, config, numbers, options)
    files = export_folder(target, numbers, Export(mapped, config, folder, beside=beside), options.limits)
    return Exported(files, (*source.findings, *findings))


def _given_folder(options: Options) -> Folder | None:
    home = options.weights
    return open_folder(home, options.limits) if home is not None and is_model_folder(home) else None


def _numbers(
    source: Source, folder: Folder | None, options: Options
) -> tuple[Mapping[str, Array], tuple[Diagnostic, ...]]:
    """The weights by path: as the folder has them, or those of a file, or random ones from the seed."""
    instance: Instance = source.instance
    if folder is not None and (options.weights is None or is_model_folder(options.weights)):
        plan = plan_weights(instance, folder, options.unused, "")
        return plan.data(), plan.findings
    model = build(source, options, Settings(library=library_of(source.program, options)))
    state = compile_model(model, seed=options.start_seed, limits=options.limits).state
    numbers = {
        item.path: state[name] for item in weights_of(instance) if (name := graph_name(item.path)) in state
    }
    return numbers, ()


def _travelling(source: Source, config: Mapping[str, object], options: Options) -> dict[str, str]:
    """The texts of a model, by their places in the folder; none for one that the library has under its names."""
    program = source.program
    main = program.resolved.unit
    if main.standard and find_known(config) == (main.path, source.instance.name):
        return {}
    again = pick(program, config, replace(options, model=None))
    if again.name != source.instance.name:
        hint = f"let hf_config: of '{source.instance.name}' name an architecture of its own"
        raise InputError(f"the folder would be read as '{again.name}'", hint=hint)
    texts = {TRAVELLING: main.document.span.source.text}
    for unit in (item for item in own_units(program) if item is not main):
        *folders, stem = unit.name.split(".")
        name = "/".join((*folders, unit.path.name if unit.path is not None else f"{stem}.module"))
        _add(texts, name, unit.document.span.source.text)
    for module, document in library_of(program, options).own_modules().items():
        _add(texts, file_of(module), document.span.source.text)
    return texts


def _add(texts: dict[str, str], name: str, text: str) -> None:
    if texts.setdefault(name, text) != text:
        hint = "rename one of them: all files of a model travel in one folder"
        raise InputError(f"two files of the model would be '{name}'", hint=hint)
