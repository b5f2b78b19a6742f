"""Hugging Face folders: the model of the library that they are, with the values of their config."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lamella.base.diagnostic import LamellaError, errors
from lamella.bridge.hf_to_module import Folder, open_folder, read_config
from lamella.lang.module.instantiate import Instance, Known
from lamella.lang.module.nodes import Module
from lamella.lang.module.resolve import Declared
from lamella.pipeline.module.architectures import find_model
from lamella.pipeline.module.reading import Program, build_instance, choose, read_program
from lamella.pipeline.options import Options


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
    read = read_config(module.hf_config, module.params or (), folder.config)
    if errors(read.findings):
        raise LamellaError(errors(read.findings))
    return dict(read.values)
