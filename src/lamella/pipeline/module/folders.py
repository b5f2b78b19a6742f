"""Hugging Face folders: the model of the library that they are, with the values of their config."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.paths import shown
from lamella.base.source import Source as Text
from lamella.base.source import Span
from lamella.bridge.hf_to_module import Folder, open_folder, read_config
from lamella.lang.module.instantiate import Instance, Known
from lamella.lang.module.nodes import Module
from lamella.lang.module.resolve import Declared
from lamella.lang.module.rules.mappings import CONFIG
from lamella.pipeline.module.architectures import find_model
from lamella.pipeline.module.reading import Program, build_instance, choose, read_program
from lamella.pipeline.options import Options

CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True)
class Source:
    """What a path leads to: an instance, the program that declares it, and the folder of its weights."""

    program: Program
    instance: Instance
    folder: Folder | None = None


def read_source(path: Path, is_folder: bool, options: Options) -> Source:
    """The instance of a file, or of a folder; LamellaError where something is wrong."""
    if not is_folder:
        program = read_program(path, options)
        return Source(program, build_instance(program, choose(program, options), {}, options))
    folder = open_folder(path, options.limits)
    if errors(folder.findings):
        raise LamellaError(errors(folder.findings))
    file, name = find_model(folder)
    program = read_program(file, options)
    declared = next(item for item in program.modules if item.name == name)
    read = read_values(declared, folder)
    return Source(program, build_instance(program, declared, read, options), folder)


def read_values(declared: Declared, folder: Folder) -> dict[str, Known]:
    """What the config of a folder says of the parameters of a model."""
    module = declared.declaration
    if not isinstance(module, Module) or module.hf_config is None:
        return {}
    refused = list(_find_refused(folder))
    if refused:
        raise LamellaError(refused)
    read = read_config(module.hf_config, module.params or (), folder.config)
    if errors(read.findings):
        raise LamellaError(errors(read.findings))
    return dict(read.values)


def _find_refused(folder: Folder) -> Iterator[Diagnostic]:
    """What a config says that no model of ours does: quantised weights, two different tables of angles."""
    config, place = folder.config, Span(Text(shown(folder.path / CONFIG_FILE), ""), 0, 0)
    if config.get("quantization_config") is not None:
        repair = "weights that are quantised are not read; save them in a floating type"
        yield CONFIG.at(
            place, key="quantization_config", file=CONFIG_FILE, found="there", wanted="none", repair=repair
        )
    new = config.get("rope_parameters")
    if not isinstance(new, dict):
        return
    scaling = config.get("rope_scaling")
    old = {**(scaling if isinstance(scaling, dict) else {}), "rope_theta": config.get("rope_theta")}
    for key in ("rope_theta", "factor", "rope_type"):
        first, second = new.get(key), old.get(key)
        if first is not None and second is not None and first != second:
            repair = "keep 'rope_parameters', or the older keys"
            yield CONFIG.at(place, key=key, file=CONFIG_FILE, found=second, wanted=first, repair=repair)
