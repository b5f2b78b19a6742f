"""Models as Hugging Face folders: what `hf_to_module` reads, written again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.dtype import find_in, name_in
from lamella.base.errors import OutputError, cause_of
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_there, read_bytes_in, shown
from lamella.base.writer import make_folder, write_bytes, write_text
from lamella.bridge.hf_to_module.folder import CONFIG, Folder
from lamella.bridge.hf_to_module.keys import MISSING, find_value, mapped_keys, spellings, text_of
from lamella.bridge.module_to_hf.store import Numbers, write_store
from lamella.bridge.module_to_hf.tensors import ExportPlan, Mapped, plan_export
from lamella.lang.module.instantiate.nodes import Known
from lamella.lang.module.nodes import Field

# --- A Hugging Face folder written: tensors, the files of the tokenizer, and last of all the config ---------


SHARD_BYTES = 5_000_000_000
BESIDE = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model"),
    *("sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json", "generation_config.json"),
)
"""What a folder holds beside a model and is copied with it; never code."""


@dataclass(frozen=True, slots=True)
class Export:
    """What a folder is to hold: how weights become tensors, the config, and the folder that the model came from."""

    mapped: Mapped
    config: Mapping[str, object]
    source: Folder | None = None
    shard_bytes: int = SHARD_BYTES
    beside: Mapping[str, str] = field(default_factory=dict)
    """Texts that lie beside the tensors, by their places in the folder: the declaration of the model."""


def export_folder(
    destination: Path, weights: Mapping[str, Array], export: Export, limits: Limits = DEFAULT
) -> tuple[Path, ...]:
    """Write a folder that transformers loads, and give its files; LamellaError says why it cannot be.

    The folder must be new or empty. `config.json` comes last: without it a folder is no model, so what was not
    finished is not taken for one. One weight at a time is in memory.
    """
    source = export.source.checkpoint if export.source is not None else None
    plan = plan_export(export.mapped, weights, source)
    if errors(plan.findings):
        raise LamellaError(plan.findings)
    _make_empty(destination)
    numbers = Numbers(weights, source, export.mapped.context.head_dim)
    files = list(write_store(destination, plan.tensors, numbers, export.shard_bytes))
    files += _copy_beside(destination, export.source, limits)
    for name, text in export.beside.items():
        make_folder((destination / name).parent)
        write_text(destination / name, text)
        files.append(destination / name)
    _write_config(destination / CONFIG, export, limits)
    return (*files, destination / CONFIG)


def _make_empty(folder: Path) -> None:
    make_folder(folder)
    try:
        taken = next(iter(os.listdir(folder)), None)
    except OSError as problem:
        raise OutputError(f"cannot read '{shown(folder)}': {cause_of(problem)}", path=folder) from problem
    if taken is not None:
        hint = "name a new folder: files of another model would be taken for parts of this one"
        raise OutputError(f"the folder '{shown(folder)}' is not empty", path=folder, hint=hint)


def _copy_beside(destination: Path, source: Folder | None, limits: Limits) -> list[Path]:
    names = () if source is None else tuple(name for name in BESIDE if is_there(source.path / name))
    for name in names:
        if source is not None:
            write_bytes(destination / name, read_bytes_in(source.path, name, limits))
    return [destination / name for name in names]


def _write_config(path: Path, export: Export, limits: Limits) -> None:
    """The config; one that has not changed is copied as it is."""
    source = export.source
    if source is not None and source.config == export.config:
        write_bytes(path, read_bytes_in(source.path, CONFIG, limits))
    else:
        write_text(path, f"{json.dumps(dict(export.config), indent=2)}\n")


# --- `config.json` from the values of a model: `param_mapping:` backwards, and all else as the --------------


_DTYPE_KEYS = ("dtype", "torch_dtype")


def write_config(
    fields: tuple[Field, ...], values: Mapping[str, Known], source: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The config that says these values.

    A key of the source whose value is still the same stays as it is; a default that the source does not say is not
    said either.
    """
    config = _first(fields) if source is None else {key: deepcopy(value) for key, value in source.items()}
    for entry, keys in mapped_keys(fields):
        known = values.get(entry.name)
        if known is not None and keys:
            default = source is not None and known.source.endswith("default")
            _say(config, keys, known.value, default)
    return config


def _first(fields: tuple[Field, ...]) -> dict[str, object]:
    """A new config: what `hf_config:` says of the architecture."""
    named = {"architectures": [text_of(fields, "architecture")], "model_type": text_of(fields, "model_type")}
    return {key: value for key, value in named.items() if value not in ("", [""])}


def _say(config: dict[str, object], keys: tuple[str, ...], value: object, default: bool) -> None:
    """Put a value where a config has one for these keys, else under the first of them."""
    key, found = find_value(config, keys)
    place = key or _place(config, keys[0])
    wanted = _json_of(value, place)
    if found is MISSING and (default or wanted is None):
        return
    if found is MISSING or found != wanted:
        _put(config, place, wanted)


def _json_of(value: object, key: str) -> object:
    if isinstance(value, tuple):
        return [_json_of(item, key) for item in value]
    if key in _DTYPE_KEYS and isinstance(value, str):
        element = find_in("module", value)
        return value if element is None else name_in("nac", element) or value
    return value


def _place(config: Mapping[str, object], key: str) -> str:
    """How a new key is spelled: as the config spells its neighbours, else as new files do."""
    ways = list(spellings(key))
    for way in ways:
        head, dot, _ = way.rpartition(".")
        if dot and isinstance(config.get(head), dict):
            return way
    return ways[0]


def _put(config: dict[str, object], key: str, value: object) -> None:
    if key in config:
        config[key] = value
        return
    *folders, last = key.split(".")
    place = config
    for part in folders:
        place = _inner(place, part)
    place[last] = value


def _inner(config: dict[str, object], key: str) -> dict[str, object]:
    """The object under a key, made where there is none; RoPE values say of what kind they are."""
    found = config.get(key)
    if isinstance(found, dict):
        return found
    made: dict[str, object] = {"rope_type": "default"} if key == "rope_parameters" else {}
    config[key] = made
    return made


__all__ = ["Export", "ExportPlan", "Mapped", "export_folder", "plan_export", "write_config"]
