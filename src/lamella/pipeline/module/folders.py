"""Hugging Face folders: the model that they are, with the values of their config."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.paths import is_folder, shown
from lamella.base.source import Source as Text
from lamella.base.source import Span
from lamella.bridge.hf_to_module import Folder, open_folder, read_config
from lamella.bridge.hf_to_module.config import mapped_keys
from lamella.lang.module.instantiate import Instance, Known
from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.nodes import Field
from lamella.lang.module.resolve import Declared
from lamella.lang.module.resolve.lineage import config_params, trace_lineage
from lamella.lang.module.rules.mappings import CONFIG, UNREAD
from lamella.pipeline.module.architectures import find_known, find_model
from lamella.pipeline.module.reading import Program, build_instance, choose, read_program
from lamella.pipeline.options import Options

CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True)
class Source:
    """What a path leads to: an instance, the program that declares it, and the folder of its weights."""

    program: Program
    instance: Instance
    folder: Folder | None = None
    findings: tuple[Diagnostic, ...] = ()
    """What there is to tell about the folder, and about the model that it is read as."""


def read_source(path: Path, options: Options) -> Source:
    """The instance of a file, or of a folder; LamellaError where something is wrong."""
    if not is_folder(path):
        if options.architecture is not None:
            hint = f"leave it out: '{shown(path)}' declares its model itself"
            raise InputError("--architecture says what a Hugging Face folder is", hint=hint)
        program = read_program(path, options)
        return Source(program, build_instance(program, choose(program, options), {}, options))
    folder = open_folder(path, options.limits)
    if errors(folder.findings):
        raise LamellaError(errors(folder.findings))
    return read_folder(folder, options)


def read_folder(folder: Folder, options: Options) -> Source:
    """The instance of a folder that is open; LamellaError where something is wrong with its config or its model."""
    program, declared, notes = find_model(folder, options)
    if errors(program.findings):
        raise LamellaError(errors(program.findings))
    refused = list(_find_refused(folder))
    if refused:
        raise LamellaError(refused)
    read, unread = read_values(program, declared, folder, options)
    instance = build_instance(program, declared, read, options)
    return Source(program, instance, folder, (*folder.findings, *notes, *unread))


def read_values(
    program: Program, declared: Declared, folder: Folder, options: Options
) -> tuple[dict[str, Known], tuple[Diagnostic, ...]]:
    """What the config of a folder says of the parameters of a model, and a warning where nothing of it is read."""
    try:
        lineage = trace_lineage(declared, program.resolved.scope)
    except Problem as problem:
        raise LamellaError([problem.finding]) from None
    sections = (item.module.hf_config for item in reversed(lineage))
    fields = next((item for item in sections if item is not None), ())
    span = declared.declaration.span
    if not any(mapped_keys(fields)):
        unread = "nothing of config.json is read"
        return {}, (UNREAD.at(span, model=declared.name, lack="no param_mapping:", unread=unread),)
    read = read_config(fields, config_params(lineage), folder.config)
    if errors(read.findings):
        raise LamellaError(errors(read.findings))
    keys = [] if program.resolved.unit.standard else _unread_keys(_keys_of(fields), folder, options)
    if not keys:
        return dict(read.values), ()
    unread = f"{', '.join(keys)} of config.json {'is' if len(keys) == 1 else 'are'} not read"
    lack = f"no entry for {'it' if len(keys) == 1 else 'them'} in param_mapping:"
    return dict(read.values), (UNREAD.at(span, model=declared.name, lack=lack, unread=unread),)


def _keys_of(fields: tuple[Field, ...]) -> set[str]:
    """The keys of a config that a model reads."""
    return {key for _, keys in mapped_keys(fields) for key in keys}


def _unread_keys(read: set[str], folder: Folder, options: Options) -> list[str]:
    """The keys of a config that the library's model of that architecture reads, and one's own does not."""
    known = find_known(folder.config)
    if known is None:
        return []
    program = read_program(known[0], Options(limits=options.limits))
    declared = next(item for item in program.modules if item.name == known[1])
    sections = (item.module.hf_config for item in reversed(trace_lineage(declared, program.resolved.scope)))
    wanted = _keys_of(next((item for item in sections if item is not None), ()))
    return sorted(key for key in wanted - read if folder.config.get(key) is not None)


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
