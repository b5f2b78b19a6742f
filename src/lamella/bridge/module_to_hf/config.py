"""`config.json` from the values of a model: `param_mapping:` backwards, and all else as the source has it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

from lamella.base.dtype import find_in, name_in
from lamella.bridge.hf_to_module.keys import MISSING, find_value, mapped_keys, spellings, text_of
from lamella.lang.module.instantiate.nodes import Known
from lamella.lang.module.nodes import Field

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
