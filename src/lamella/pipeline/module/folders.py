"""Hugging Face folders: the model that they are, with the values of their config."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable
from lamella.base.errors import Found, InputError
from lamella.base.limits import DEFAULT
from lamella.base.paths import is_folder, is_there, read_text, shipped, shown
from lamella.base.source import Source as Text
from lamella.base.source import Source as source_Source
from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.bridge.hf_to_module import (
    Folder,
    find_architecture,
    is_gguf,
    is_model_folder,
    open_folder,
    read_config,
    text_of,
)
from lamella.bridge.hf_to_module.config import mapped_keys, split_head
from lamella.bridge.hf_to_module.quantised import QUANTIZATION, SCHEMES, schemes_of
from lamella.lang.module.instantiate import Instance, Known
from lamella.lang.module.nodes import Field, Module
from lamella.lang.module.resolve import Declared
from lamella.lang.module.resolve.lineage import config_params, inherited_config, trace_lineage
from lamella.lang.module.rules import mappings as rules
from lamella.lang.module.rules.constants import CONSTRAINT
from lamella.lang.module.rules.mappings import CONFIG, UNREAD
from lamella.lang.module.words import ROPE_KINDS, called_rope
from lamella.pipeline.module.library import find_file
from lamella.pipeline.module.program import Program, build_instance, choose, read_program
from lamella.pipeline.options import Options

# --- the model that a Hugging Face folder is: of a file that the user names, of one in the folder -----------


_MODEL = re.compile(r'^model +([A-Za-z_]\w*)|^ +(?:architecture|model_type): *"([^"]*)"', re.MULTILINE)
_HEADED = re.compile(r"^  head: enum\(", re.MULTILINE)
_HEAD = re.compile(r"(For[A-Z]\w*|LMHeadModel|Model)$")
FOLDER = "models"
TRAVELLING = "architecture.module"
"""The file of a folder that declares its model, where that is none of the library; what it imports lies beside it."""


class FoundArchitecture(NamedTuple):
    """The program and the declaration that a folder is, and what there is to say about the choice."""

    program: Program
    declared: Declared
    findings: tuple[Diagnostic, ...] = ()


@cache
def architectures() -> Mapping[str, tuple[Path, str]]:
    """For each architecture and each type of a model, the file and the model that it is."""
    found: dict[str, tuple[Path, str]] = {}
    for path in sorted((shipped("models") / FOLDER).glob("*.module")):
        model, early = "", list[str]()
        for match in _MODEL.finditer(read_text(path, DEFAULT)):
            model = match[1] or model
            early += [match[2]] if match[2] else []
            if model:
                # What a base says before any model is the first one's: the model without a head.
                found.update({name: (path, model) for name in early if name not in found})
                early.clear()
    return found


def find_model(folder: Folder, options: Options) -> FoundArchitecture:
    """The model for a folder: of `--architecture`, else of its own file, else of the library; LamellaError if none."""
    known = find_known(folder.config)
    if options.architecture is not None:
        program = read_program(_file_of(options.architecture, options), options)
        return FoundArchitecture(program, pick(program, folder.config, options))
    if is_there(folder.path / TRAVELLING):
        program = read_program(folder.path / TRAVELLING, options, inside=True)
        declared = pick(program, folder.config, options)
        over = "" if known is None else f", before '{known[1]}' of std.models.{known[0].stem}"
        note = rules.TRAVELS.at(_place(folder), file=TRAVELLING, model=declared.name, over=over)
        return FoundArchitecture(program, declared, (note,))
    if known is None:
        raise LamellaError([unknown_architecture(folder)])
    program = read_program(known[0], options)
    return FoundArchitecture(program, next(item for item in program.modules if item.name == known[1]))


def find_known(config: Mapping[str, object]) -> tuple[Path, str] | None:
    """The file and the model of the library that a config names, itself or with another head than that of words."""
    known = architectures()
    for name in find_architecture(config):
        found = known.get(name) or known.get(split_head(name)[0])
        if found is not None and (name in known or _HEADED.search(read_text(found[0], DEFAULT))):
            return found
    return None


def names_of(folder: Folder) -> tuple[str, ...]:
    """The names under which the architecture of a folder may be known."""
    return find_architecture(folder.config)


def _file_of(path: Path, options: Options) -> Path:
    """The file of `--architecture`: a path, or the name of one of the library such as `std.models.llama`."""
    if not is_there(path) and path.name.startswith("std."):
        return find_file(path.name, options)
    if is_folder(path):
        hint = "name a .module file, or one of the library such as std.models.llama"
        raise InputError(f"'{shown(path)}' is a folder", path=shown(path), hint=hint)
    return path


def pick(program: Program, config: Mapping[str, object], options: Options) -> Declared:
    """The declaration of a file that a config means: the one that is named, else by its names, else the first model."""
    if options.model is None:
        kind = config.get("model_type")
        names = (*find_architecture(config), *((kind,) if isinstance(kind, str) else ()))
        for name in names:
            for declared in program.modules:
                if name in called(declared):
                    return declared
    return choose(program, options)


def called(declared: Declared) -> tuple[str, ...]:
    """What a declaration says that it is called in Hugging Face."""
    module = declared.declaration
    fields = (module.hf_config or ()) if isinstance(module, Module) else ()
    return tuple(text for key in ("architecture", "model_type") if (text := text_of(fields, key)))


# --- architectures without a model ------------------------------------------------------------------------------


def unknown_architecture(folder: Folder) -> Diagnostic:
    """The finding that nothing here is the architecture of a folder: what is there, and what can be done."""
    names, kind = names_of(folder), folder.config.get("model_type")
    name = " or ".join(f"'{item[:100]}'" for item in names) or "that config.json does not name"
    if isinstance(kind, str) and kind not in names:
        name += f", model_type '{kind[:100]}'"
    repair = f"{_suggested(names, kind)}{WAYS}: `lamella show {folder.path}` prints both"
    return rules.ARCHITECTURE.at(_place(folder), name=name, there=_contents(folder), repair=repair)


WAYS = (
    "install lamella[transformers], which reads it through torch, or write its architecture as a .module file of your "
    "own and say --architecture F.module"
)


def _contents(folder: Folder) -> str:
    tensors = folder.checkpoint.tensors.values()
    count, size = len(tensors), sum(item.length for item in tensors)
    types = ", ".join(sorted({str(item.dtype) for item in tensors}))
    return f"{count} tensors, {size:,} bytes of {types}" if count else "no tensors"


def _suggested(names: tuple[str, ...], kind: object) -> str:
    """
    A model that is meant: the same type with another head, or nearly the same name with the same numbers in it.

    Names that begin otherwise are other families: MBart is not Bart, and XGLM not Glm.
    """
    known = architectures()
    if isinstance(kind, str) and kind in known:
        path, model = known[kind]
        return f"'{kind}' with another head is '{model}' here, --architecture std.models.{path.stem}; "
    stems = {_HEAD.sub("", item): item for item in known if item[:1].isupper()}
    for name in names:
        stem = _HEAD.sub("", name[:100])
        alike = [item for item in stems if _start_and_numbers(item) == _start_and_numbers(stem)]
        close = nearest(stem, alike)
        if close:
            return f"did you mean '{stems[close[0]]}'? "
    return ""


def _start_and_numbers(stem: str) -> tuple[str, str]:
    """What two names of architectures must share for one of them to be a mistake for the other."""
    return stem[:1].casefold(), re.sub(r"\D", "", stem)


def recipe_lines(folder: Folder) -> Iterator[str]:
    """The two ways to run a folder that no model here is, to copy."""
    kind = folder.config.get("model_type")
    yield "  two ways lead on:"
    yield "  1. through transformers and PyTorch, by itself where both are installed (lamella[transformers]):"
    yield ""
    yield f"       lamella run {printable(str(folder.path))}"
    yield ""
    yield "  2. as a model of your own: a .module file whose hf_config: and hf_mapping: say what config.json and the"
    yield f"     tensors mean, such as std.models.llama does it (lamella show std.models.llama){_named(kind)}:"
    yield ""
    yield f"       lamella run {printable(str(folder.path))} --architecture mine.module"


def _named(kind: object) -> str:
    return f", with model_type: {json.dumps(printable(kind))}" if isinstance(kind, str) else ""


def _place(folder: Folder) -> Span:
    return Span(source_Source(shown(folder.path / "config.json"), ""), 0, 0)


CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True)
class Source:
    """What a path leads to: an instance, the program that declares it, and the folder of its weights."""

    program: Program
    instance: Instance
    folder: Folder | None = None
    findings: tuple[Diagnostic, ...] = ()
    """What there is to say about the folder, and about the model that it is read as."""


def read_source(path: Path, options: Options) -> Source:
    """The instance of a file, or of a folder; LamellaError where something is wrong."""
    if not is_folder(path) and not is_gguf(path):
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
    except Found as problem:
        raise LamellaError([problem.finding]) from None
    fields = inherited_config(lineage)
    span = declared.declaration.span
    if not any(mapped_keys(fields)):
        unread = "nothing of config.json is read"
        return {}, (UNREAD.at(span, model=declared.name, lack="no param_mapping:", unread=unread),)
    read = read_config(fields, config_params(lineage), folder.config)
    if errors(read.findings):
        raise LamellaError(errors(read.findings))
    given = _keys_of(fields)
    standard = program.resolved.unit.standard
    refused = list(_refused_angles(given, folder)) if standard else []
    if refused:
        raise LamellaError(refused)
    keys = _unread_windows(given, folder) if standard else _unread_keys(given, folder, options)
    if not keys:
        return dict(read.values), ()
    unread = f"{', '.join(keys)} of config.json {'is' if len(keys) == 1 else 'are'} not read"
    lack = f"no entry for {'it' if len(keys) == 1 else 'them'} in param_mapping:"
    return dict(read.values), (UNREAD.at(span, model=declared.name, lack=lack, unread=unread),)


def _keys_of(fields: tuple[Field, ...]) -> set[str]:
    """The keys of a config that a model reads."""
    return {key for _, keys in mapped_keys(fields) for key in keys}


def _refused_angles(read: set[str], folder: Folder) -> Iterator[Diagnostic]:
    """What a config says of its positions that no table has, or that this model does not read."""
    config, place = folder.config, Span(Text(shown(folder.path / CONFIG_FILE), ""), 0, 0)
    if not any(key.startswith(_TABLES) for key in read):
        return
    listed = [item for key in _TABLES if isinstance(item := config.get(key), dict)]
    for said in [one for item in listed for one in (item, *item.values()) if isinstance(one, dict)]:
        kind = called_rope(said.get("rope_type") or said.get("type") or "default")
        if kind not in ROPE_KINDS:
            wanted = ", ".join(ROPE_KINDS)
            yield CONFIG.at(place, key="rope_type", file=CONFIG_FILE, found=kind, wanted=wanted, repair="")
        part = said.get(_PARTIAL, config.get(_PARTIAL))
        if kind != "default" and part not in (None, 1, 1.0) and not any(_PARTIAL in key for key in read):
            wanted = f"1.0, since all elements of its heads turn by '{kind}' positions"
            yield CONFIG.at(place, key=_PARTIAL, file=CONFIG_FILE, found=part, wanted=wanted, repair="")


_TABLES = ("rope_parameters", "rope_scaling")
_PARTIAL = "partial_rotary_factor"


def _unread_windows(read: set[str], folder: Folder) -> list[str]:
    """The keys by which a config asks for windows of attention that the model does not have: it sees everything."""
    config = folder.config
    kinds, width = config.get("layer_types"), config.get("sliding_window")
    asked = isinstance(kinds, list) and "sliding_attention" in kinds
    found = {"layer_types": asked, "sliding_window": asked and isinstance(width, int)}
    return [key for key, there in found.items() if there and key not in read]


def _unread_keys(read: set[str], folder: Folder, options: Options) -> list[str]:
    """The keys of a config that the library's model of that architecture reads, and one's own does not."""
    known = find_known(folder.config)
    if known is None:
        return []
    program = read_program(known[0], Options(limits=options.limits))
    declared = next(item for item in program.modules if item.name == known[1])
    wanted = _keys_of(inherited_config(trace_lineage(declared, program.resolved.scope)))
    return sorted(key for key in wanted - read if folder.config.get(key) is not None)


def _find_refused(folder: Folder) -> Iterator[Diagnostic]:
    """What a config says that no model of ours does: quantised weights, two different tables of angles."""
    config, place = folder.config, Span(Text(shown(folder.path / CONFIG_FILE), ""), 0, 0)
    settings = config.get(QUANTIZATION)
    if settings is not None and not (isinstance(settings, dict) and schemes_of(settings)):
        repair = f"those that are read are {', '.join(SCHEMES)}; save other weights in a floating type"
        yield CONFIG.at(
            place,
            key=QUANTIZATION,
            file=CONFIG_FILE,
            found=_method(settings),
            wanted="a known method",
            repair=repair,
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


def _method(settings: object) -> str:
    """What a config says of the method by which its weights are quantised."""
    keys = ("quant_method", "format", "version")
    given = settings if isinstance(settings, dict) else {}
    said = [f"{key} {given[key]!s:.40}" for key in keys if key in given]
    return printable(", ".join(said)) or "no quant_method"


# --- folders that are read through PyTorch ----------------------------------------------------------------------


PACKAGES = ("torch", "transformers")
FALLS_BACK = frozenset((rules.ARCHITECTURE.code, CONFIG.code, CONSTRAINT.code))
"""Findings that say that the library has no such model, or not with what its config asks for."""


def reason_for_torch(path: Path, options: Options) -> Diagnostic | None:
    """Why a folder is read through PyTorch, as a note; None where a model of ours reads it, or refuses it."""
    if not is_folder(path) or not is_model_folder(path) or options.via == "module":
        if options.via == "torch":
            raise InputError("--via torch reads folders of Hugging Face", path=shown(path))
        return None
    if options.via == "torch":
        return _note(path, "as --via torch asks")
    if options.architecture is not None or not all(find_spec(name) for name in PACKAGES):
        return None
    try:
        read_source(path, options)
    except LamellaError as problem:
        codes = {item.code for item in problem.findings}
        if codes <= FALLS_BACK:
            return _note(path, problem.findings[0].message.partition(";")[0])
    return None


def _note(path: Path, why: str) -> Diagnostic:
    place = Span(Text(shown(path / CONFIG_FILE), ""), 0, 0)
    return rules.THROUGH_TORCH.at(place, why=why)
