"""Nodes of a compiled unit as values of JSON, and back without trust: the types of the fields are the schema."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TypeVar, get_args, get_origin, get_type_hints

from lamella.base.errors import Malformed
from lamella.base.limits import in_range

Item = TypeVar("Item")
_WORDS = {str: "a text", int: "an integer", float: "a number", bool: "true or false", tuple: "a list"}


# --- writing ----------------------------------------------------------------------------------------------------


def encode(value: object) -> object:
    """A node as a value of JSON; fields that have their default are left out."""
    if is_dataclass(value):
        found = ((item, getattr(value, item.name)) for item in fields(value))
        return {item.name: encode(inner) for item, inner in found if not _is_default(item, inner)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


def _is_default(item: Field[object], value: object) -> bool:
    return item.default is not MISSING and type(value) is type(item.default) and value == item.default


def write_text(node: object) -> str:
    """The file of a part: the items of its lists one to a line; the same node gives the same text."""
    top = encode(node)
    if not isinstance(top, dict):
        raise TypeError("a part of a unit is an object")
    return "{\n" + ",\n".join(f"{_dump(key)}: {_lines(value)}" for key, value in top.items()) + "\n}\n"


def _lines(value: object) -> str:
    if not isinstance(value, list) or not value:
        return _dump(value)
    return "[\n" + ",\n".join(map(_dump, value)) + "\n]"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


# --- reading ----------------------------------------------------------------------------------------------------


def decode(kind: type[Item], value: object, place: str) -> Item:
    """The node of a kind that a value of JSON is; Malformed where it is none."""
    found = _decode(kind, value, place)
    if not isinstance(found, kind):
        raise _misfit(place, kind.__name__)
    return found


def _misfit(place: str, wanted: str) -> Malformed:
    return Malformed(f"'{place[:200]}' is not {wanted}")


def _decode(kind: object, value: object, place: str) -> object:
    if kind is object:
        return _free(value, place)
    if isinstance(kind, UnionType):
        return _decode(_chosen(kind, value, place), value, place)
    if kind is NoneType:
        return value
    if isinstance(kind, type) and is_dataclass(kind):
        return _node(kind, value, place)
    if get_origin(kind) is tuple:
        return _items(get_args(kind), value, place)
    if get_origin(kind) is Mapping:
        return _mapping(get_args(kind)[1], value, place)
    return _single(kind, value, place)


def _chosen(kind: UnionType, value: object, place: str) -> object:
    """The member of a union that a value can be."""
    for member in get_args(kind):
        plain = get_origin(member) or member
        if plain is NoneType:
            suits = value is None
        elif plain is tuple:
            suits = isinstance(value, list)
        else:
            suits = (
                isinstance(value, Mapping)
                if plain is Mapping or is_dataclass(plain)
                else _suits(plain, value)
            )
        if suits:
            return member
    wanted = [
        _WORDS.get(get_origin(item) or item, "an object") for item in get_args(kind) if item is not NoneType
    ]
    raise _misfit(place, " or ".join(wanted))


def _suits(plain: object, value: object) -> bool:
    """Whether a plain value is of a type; an integer is a number too."""
    if plain is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is plain


def _single(kind: object, value: object, place: str) -> object:
    if not _suits(kind, value):
        raise _misfit(place, next((word for item, word in _WORDS.items() if item is kind), "known"))
    if isinstance(value, float):
        return _finite(value, place)
    if isinstance(value, int) and not in_range(value):
        raise _misfit(place, "a 64-bit integer")
    return float(value) if kind is float and isinstance(value, int) else value


def _finite(value: float, place: str) -> float:
    if not math.isfinite(value):
        raise _misfit(place, "a finite number")
    return value


def _free(value: object, place: str) -> object:
    """A value without a schema: lists are tuples."""
    if isinstance(value, list):
        return tuple(_free(item, f"{place}[{number}]") for number, item in enumerate(value))
    if isinstance(value, Mapping):
        return {key: _free(item, f"{place}.{key}") for key, item in value.items()}
    return value if value is None else _single(type(value), value, place)


def _items(kinds: tuple[object, ...], value: object, place: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise _misfit(place, "a list")
    if kinds[-1] is Ellipsis:
        return tuple(_decode(kinds[0], item, f"{place}[{number}]") for number, item in enumerate(value))
    if len(kinds) != len(value):
        raise _misfit(place, f"a list of {len(kinds)}")
    return tuple(_decode(kind, item, place) for kind, item in zip(kinds, value, strict=True))


def _mapping(kind: object, value: object, place: str) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise _misfit(place, "an object")
    return {str(key): _decode(kind, item, f"{place}.{key}") for key, item in value.items()}


@cache
def _schema(kind: type) -> tuple[dict[str, object], frozenset[str]]:
    """The fields of a node with their types, and those that may be left out."""
    hints = get_type_hints(kind)
    found = [item for item in fields(kind) if is_dataclass(kind)]
    free = frozenset(item.name for item in found if item.default is not MISSING)
    return {item.name: hints[item.name] for item in found}, free


def _node(kind: type, value: object, place: str) -> object:
    if not isinstance(value, Mapping):
        raise _misfit(place, "an object")
    schema, free = _schema(kind)
    unknown = next((key for key in value if key not in schema), None)
    if unknown is not None:
        raise Malformed(f"'{place[:200]}' has the unknown field '{str(unknown)[:100]}'")
    missing = next((key for key in schema if key not in value and key not in free), None)
    if missing is not None:
        raise Malformed(f"'{place[:200]}' lacks the field '{missing}'")
    return kind(**{key: _decode(schema[key], item, f"{place}.{key}") for key, item in value.items()})
