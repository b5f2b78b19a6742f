"""What a file says beyond the fields of the format: `lamella.json`, one object of JSON, and operators of its own.

The operators of module `mine` are SkriptND text in the resource `operators.mine.sknd`, those of the main module in
`operators.main.sknd`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from lamella.base.errors import Malformed
from lamella.base.jsontext import decode_object
from lamella.lang.nac.nodes import File, Resource

NAME = "lamella.json"
FORMAT_KEY, FORMAT = "format", 1
_LONGEST = 1 << 24
_FIRST, _LAST = "operators.", ".sknd"


def operators_name(module: str) -> str:
    """The name of the resource that holds the operators of a module."""
    return f"{_FIRST}{module}{_LAST}"


def operators_module(name: str) -> str | None:
    """The module whose operators a resource of this name holds; None where it holds something else."""
    inner = name.removeprefix(_FIRST).removesuffix(_LAST)
    return inner if name == operators_name(inner) and inner else None


def find_notes(file: File) -> dict[str, object] | None:
    """What the resource holds: nothing where a file has none, None where it is no object."""
    resource = next((item for item in file.resources if item.name == NAME), None)
    if resource is None:
        return {}
    return read_object(resource)


def read_object(resource: Resource, most: int = _LONGEST) -> dict[str, object] | None:
    """The JSON object of a resource, read without trust: bounded length and nesting, each key once; else None."""
    if len(resource.data) > most:
        return None
    try:
        return decode_object(resource.data)
    except Malformed:
        return None


def notes_resource(notes: Mapping[str, object]) -> Resource:
    """The resource that holds these notes, always in the same bytes."""
    text = json.dumps(notes, sort_keys=True, separators=(",", ":"))
    return Resource(NAME, text.encode())


def with_notes(file: File, notes: Mapping[str, object]) -> File:
    """The file with these notes, in the place of those it has; without any where they say nothing."""
    made = [notes_resource({FORMAT_KEY: FORMAT, **notes})] if notes.keys() - {FORMAT_KEY} else []
    places = [index for index, item in enumerate(file.resources) if item.name == NAME]
    at = places[0] if places else len(file.resources)
    return replace(file, resources=(*file.resources[:at], *made, *file.resources[at + 1 :]))
