"""Keys of `config.json`: how `param_mapping:` says them, and how versions of transformers spell them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from lamella.lang.module.nodes import Call, Expr, Field, List, Member, Name, Rest, Text

FIRST_OF = "first_of"
_NESTED, _SCALING = "rope_parameters", "rope_scaling"
_MOVED = ("rope_theta", "partial_rotary_factor")
"""What stood at the top before version 5 of transformers, and beside the other RoPE values since then."""
_RENAMED = MappingProxyType({"dtype": "torch_dtype", "torch_dtype": "dtype"})


class _Missing:
    """The type of what is not there, which None cannot say: null is a value."""


MISSING = _Missing()


def text_of(fields: tuple[Field, ...], name: str) -> str:
    """A text of `hf_config:`, empty where it is not given."""
    found = next((item.value for item in fields if item.name == name), "")
    return found.value if isinstance(found, Text) else ""


def mapped_keys(fields: tuple[Field, ...]) -> Iterator[tuple[Field, tuple[str, ...]]]:
    """The entries of `param_mapping:`, each with its keys, the first to be tried first."""
    for item in fields:
        if item.name == "param_mapping" and isinstance(item.value, tuple):
            yield from ((entry, keys_of(entry.value)) for entry in item.value)


def keys_of(value: Expr | str | tuple[Field, ...]) -> tuple[str, ...]:
    """The keys that an entry names: one, or those of `first_of(…)`; none where it is no such thing."""
    match value:
        case Call(Name(called), arguments) if called == FIRST_OF and arguments:
            found = [key_of(item.value) for item in arguments if item.name is None]
        case List(items):
            found = ["" if isinstance(item, Rest) else key_of(item) for item in items]
        case str() | tuple():
            found = [value] if isinstance(value, str) else [""]
        case _:
            found = [key_of(value)]
    return tuple(found) if all(found) else ()


def key_of(value: Expr) -> str:
    """A key or a dotted path of keys, empty where an expression is neither."""
    fields: list[str] = []
    while isinstance(value, Member):
        fields.append(value.field)
        value = value.operand
    if isinstance(value, Text) and not fields:
        return value.value
    return ".".join([value.id, *reversed(fields)]) if isinstance(value, Name) else ""


def spellings(key: str) -> Iterator[str]:
    """A key as newer and older files spell it, newer ones first."""
    head, _, field = key.partition(".")
    if key in _MOVED:
        yield f"{_NESTED}.{key}"
        yield key
    elif head in (_NESTED, _SCALING) and field:
        yield f"{_NESTED}.{'rope_type' if field == 'type' else field}"
        yield from (field,) if field in _MOVED else (f"{_SCALING}.{field}",)
        if field == "rope_type":
            yield f"{_SCALING}.type"
    else:
        yield key
        if key in _RENAMED:
            yield _RENAMED[key]


def look_up(config: Mapping[str, object], key: str) -> object:
    """The value at a dotted path of keys, or MISSING; a key that holds a dot itself is found too."""
    if key in config:
        return config[key]
    found: object = config
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return MISSING
        found = found[part]
    return found


def find_value(config: Mapping[str, object], keys: tuple[str, ...]) -> tuple[str, object]:
    """The first key that has a value, and the value; null only where no other has one."""
    empty: tuple[str, object] = ("", MISSING)
    for key in keys:
        for spelled in spellings(key):
            found = look_up(config, spelled)
            if found is not MISSING and found is not None:
                return spelled, found
            if found is None:
                empty = (spelled, None)
    return empty
